"""`/live` and `/ready` tell whether a server works, and whether to send it requests."""

from time import monotonic

import pytest
from starlette.requests import Request
from starlette.responses import Response
from tests.serve.asgi import asgi_request, run_async
from tests.serve.client import Server

from regard.predict import Translator
from regard.serve.app import make_app
from regard.serve.health import STUCK_SECONDS, Health
from regard.serve.settings import ServerSettings


class ResponsiveWorker:
    """A worker that waits for jobs, or has been busy since some time."""

    def __init__(self, busy_since: float | None = None) -> None:
        self.busy_since = busy_since


def statuses_of(health: Health, request: Request) -> list[int]:
    """Return the statuses of `/live`, `/ready` and `/health`."""

    async def responses() -> list[Response]:
        return [await health.live(), await health.ready(request), await health.health(request)]

    return [response.status_code for response in run_async(responses())]


def test_a_server_is_ready_between_loading_and_shutdown(translator: Translator) -> None:
    app = make_app({"model": translator}, ServerSettings())
    statuses = []
    for phase in ("loading", "ready", "stopping"):
        if phase != "loading":  # where an application begins
            app.state.health.phase = phase
        response = asgi_request(app, "/ready")
        statuses.append((response.status, response.json["status"]))
        assert asgi_request(app, "/live").status == 200
    assert statuses == [(503, "loading"), (200, "ready"), (503, "stopping")]


def test_a_server_that_is_not_ready_says_why_and_when_to_retry(translator: Translator) -> None:
    response = asgi_request(make_app({"model": translator}, ServerSettings()), "/ready")
    assert response.json["code"] == "unavailable"
    assert "being loaded" in response.json["message"]
    assert response.headers["retry-after"] == "1"


def test_a_worker_without_progress_makes_a_server_neither_live_nor_ready() -> None:
    now, request = monotonic(), Request({"type": "http"})
    health = Health([ResponsiveWorker(), ResponsiveWorker(now)])
    health.phase = "ready"
    assert statuses_of(health, request) == [200, 200, 200]
    health.workers = [ResponsiveWorker(), ResponsiveWorker(now - STUCK_SECONDS - 1)]
    assert statuses_of(health, request) == [503, 503, 503]


def test_a_server_that_is_about_to_stop_is_live_but_not_ready() -> None:
    health = Health()
    health.phase = "ready"
    assert statuses_of(health, Request({"type": "http", "state": {"draining": True}})) == [200, 503, 503]


@pytest.mark.parametrize("path", ["/health", "/live", "/ready"])
def test_health_checks_answer_head_without_a_body(server: Server, path: str) -> None:
    expected = server.request(path)
    response = server.request(path, method="HEAD")
    assert (expected.status, response.status, response.body) == (200, 200, b"")
    assert response.headers["content-length"] == expected.headers["content-length"] == str(len(expected.body))
