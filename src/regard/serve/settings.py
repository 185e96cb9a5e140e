"""Settings of a server: the address it listens on, which clients may send requests, and the limits of a request."""

from dataclasses import dataclass, field, fields
from urllib.parse import urlsplit

_BYTES_PER_CHARACTER = 12  # a character outside the BMP takes two JSON escapes of six bytes each
_BYTES_BESIDE_TEXT = 16_384  # field names, numbers and punctuation


@dataclass(frozen=True)
class ServerLimits:
    """Upper bounds on one request, and on all requests together. Every limit must be positive."""

    characters: int = 20_000
    """Characters of all text in a request."""
    sentences: int = 256
    """Lines, or sentence pairs, per request."""
    beam: int = 32
    """Beam width, n-best size or number of samples per line."""
    tokens: int = 1000
    """Maximum length that a request may ask for in a reply of a chatbot."""
    seconds: float = 30.0
    """Time limit of a request, from its last byte to the response."""
    waiting: int = 2048
    """Lines in the queue of a model. A request that exceeds this gets status 429."""
    connections: int = 512
    """Simultaneous connections."""
    read_timeout: float = 10.0
    """Seconds a client has to send its headers, and again for its body."""
    write_timeout: float = 10.0
    """Seconds a client has to read each 64 KiB of a response."""

    def __post_init__(self) -> None:
        """Raise `ValueError` if a limit is not positive."""
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not value > 0:
                raise ValueError(f"the limit '{limit.name}' is {value}, which allows no request; use a positive number")

    @property
    def body(self) -> int:
        """Maximum size of a request body in bytes, derived from `characters`."""
        return _BYTES_PER_CHARACTER * self.characters + _BYTES_BESIDE_TEXT


@dataclass(frozen=True)
class ServerSettings:
    """Address, access control and limits of a server."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str = ""
    """Bearer token that clients must send in `Authorization`. Empty means no authentication."""
    origins: tuple[str, ...] = ()
    """Origins of web pages, such as `https://example.org`, that may send requests (CORS)."""
    limits: ServerLimits = field(default_factory=ServerLimits)
    hosts: tuple[str, ...] = ()
    """Host names accepted in the `Host` header besides this machine's own; `*` accepts any."""
    access_log: bool = False
    """Write a JSON object to stdout for each request, without any text."""
    drain_seconds: float = 2.0
    """Seconds after SIGTERM in which requests are still accepted, while `/health` says that the server is stopping."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for an origin that no browser sends."""
        for origin in self.origins:
            check_origin(origin)

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """All configured host names: the address to listen on, and `hosts`."""
        return (self.host, *self.hosts)


def check_origin(origin: str) -> None:
    """Raise `ValueError` unless a text is an origin as browsers send it in the `Origin` header (RFC 6454)."""
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    host = parts.hostname or ""
    written_host = f"[{host}]" if ":" in host else host
    default = {"http": 80, "https": 443}.get(parts.scheme)
    expected = f"{parts.scheme}://{written_host}" + (f":{port}" if port not in (None, default) else "")
    if not host or default is None or "*" in host or origin != expected:
        example = expected if host and default is not None and "*" not in host else "https://example.org"
        raise ValueError(
            f"'{origin}' is not an origin that a browser sends, so it would allow no page; an origin is a scheme, a "
            f"host name and a port unless it is the default one, without a path: give one such as {example}"
        )
