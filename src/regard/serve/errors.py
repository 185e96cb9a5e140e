"""The one shape of every error response, and the table of statuses with their codes."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import Send

from regard.serve.request_context import HEADER, RequestContext, current_request

Headers = tuple[tuple[bytes, bytes], ...]

ERRORS: dict[int, tuple[str, str]] = {
    400: ("bad_request", "The length of the body is ambiguous, the request is not HTTP, or OpenAI's form is invalid."),
    401: ("unauthorized", "The token is missing or wrong."),
    403: ("forbidden", "The host name or the origin of the page is not allowed."),
    404: ("not_found", "There is no such path, or no model of that name."),
    405: ("method_not_allowed", "The path does not allow this method."),
    408: ("request_timeout", "The body did not arrive in time."),
    413: ("body_too_large", "The body is too large."),
    415: ("unsupported_media_type", "The body is not declared to be JSON."),
    422: ("invalid_request", "The request is invalid; the message says why."),
    429: ("queue_full", "The queue is full; `Retry-After` says when to retry."),
    431: ("headers_too_large", "URL and headers are too large."),
    500: ("internal_error", "Internal error; the server continues."),
    503: ("unavailable", "Too many connections, or the server is not ready."),
    504: ("timeout", "The time limit of a request has elapsed."),
}
"""Code and description of each status that an error can have."""

_UNMATCHED = {
    404: "there is no such path; GET /docs lists all of them",
    405: "this path does not allow this method; GET /docs lists those that it allows",
}


class FieldError(ValueError):
    """An error in one field of a request."""

    def __init__(self, message: str, field: str | None) -> None:
        """Create an error for a field, or for the whole request without one."""
        super().__init__(message)
        self.field = field


class RequestError(HTTPException):
    """An HTTP error that may name the field of the request that caused it."""

    def __init__(
        self, status: int, message: str, field: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Create an error with a status, a message, and perhaps a field and response headers."""
        super().__init__(status, message, headers)
        self.field = field


def error_content(
    status: int, message: str, field: str | None = None, request: RequestContext | None = None
) -> dict[str, Any]:
    """Return the JSON object of an error.

    `error` repeats the message: LibreTranslate clients, and those of regard before it had codes, read it there. Clients
    of OpenAI read an object there.

    Args:
        status: HTTP status, which decides the code.
        message: What is wrong, what was found and what to do.
        field: Field of the request that is wrong.
        request: The request that failed. Default: the one that is being handled.
    """
    code = ERRORS[status][0] if status in ERRORS else HTTPStatus(status).name.lower()
    context = request or current_request()
    kind = "invalid_request_error" if status < 500 else "server_error"
    nested = {"message": message, "type": kind, "param": field, "code": code}
    error = nested if context.is_openai else message
    return {"code": code, "message": message, "field": field, "request_id": context.id, "error": error}


def exception_content(error: HTTPException, status: int) -> dict[str, Any]:
    """Return the JSON object for an `HTTPException` that is sent with a status."""
    message = str(error.detail)
    if message == HTTPStatus(error.status_code).phrase:  # raised by the router, without a message of its own
        message = _UNMATCHED.get(error.status_code, message)
    return error_content(status, message, error.field if isinstance(error, RequestError) else None)


def early_error(status: int, message: str) -> tuple[bytes, Headers]:
    """Return body and headers of an error outside the application, before a request has a context."""
    request = RequestContext()
    return _encode(error_content(status, message, None, request), (HEADER.encode(), request.id.encode()))


async def send_error(send: Send, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
    """Send an HTTP response with a JSON error, without the application."""
    body, own = _encode(error_content(status, message))
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body})


def _encode(content: dict[str, Any], *headers: tuple[bytes, bytes]) -> tuple[bytes, Headers]:
    body = json.dumps(content).encode()
    length = str(len(body)).encode()
    return body, ((b"content-type", b"application/json"), (b"content-length", length), *headers)
