"""The token that clients must send."""

import hmac
from collections.abc import Iterable

TOKEN_REQUIRED = "a token is required; send it as 'Authorization: Bearer TOKEN'"


class TokenCheck:
    """Compares tokens with the one of the server, in constant time."""

    def __init__(self, token: str) -> None:
        """Require a token; empty requires none."""
        self._token = token.encode()

    def accepts(self, token: bytes) -> bool:
        """Return whether a token is the right one, or none is required."""
        return not self._token or hmac.compare_digest(token, self._token)

    def accepts_header(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Return whether the `Authorization` header has the right token, or none is required."""
        header = next((value for name, value in headers if name == b"authorization"), b"")
        scheme, _, token = header.partition(b" ")
        return self.accepts(token.strip()) and (not self._token or scheme.lower() == b"bearer")
