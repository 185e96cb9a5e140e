"""What a server may be told: where it listens, who may ask, and how much."""

from dataclasses import dataclass, field

_BYTES_OF_CHARACTER = 12  # an astral character as JSON may spell it: two escapes of six bytes
_BESIDE_TEXT = 16_384  # bytes for names, numbers and what stands between


@dataclass(frozen=True)
class Limits:
    """How much one request may ask for, and all of them together."""

    characters: int = 20_000
    """Characters of all text in a request."""
    sentences: int = 256
    """Lines, or pairs, of a request."""
    beam: int = 32
    """Hypotheses kept, or samples drawn, for each line."""
    seconds: float = 30.0
    """From the moment a request has been read to its answer."""
    waiting: int = 2048
    """Lines that may wait; who brings more is told to come back."""
    connections: int = 512
    """Connections at a time."""
    patience: float = 10.0
    """Seconds a client has to send its headers, and again for its body."""

    def __post_init__(self) -> None:
        """Refuse limits under which nothing could be asked."""
        for name in ("characters", "sentences", "beam", "seconds", "waiting", "connections", "patience"):
            if not getattr(self, name) > 0:
                raise ValueError(f"the limit of {name} is {getattr(self, name)}; nothing would be allowed: raise it")

    @property
    def body(self) -> int:
        """Bytes a request's body may have: what its characters may need."""
        return _BYTES_OF_CHARACTER * self.characters + _BESIDE_TEXT


@dataclass(frozen=True)
class Settings:
    """Where a server listens, and to whom."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str = ""
    """What clients must show as `Authorization: Bearer …`; anybody may ask where it is empty."""
    origins: tuple[str, ...] = ()
    """Web pages, as `https://example.org`, whose scripts may ask; none by default."""
    limits: Limits = field(default_factory=Limits)
    hosts: tuple[str, ...] = ()
    """Names besides this machine's own by which clients may address the server; `*` is any."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names that were told."""
        return (self.host, *self.hosts)
