"""Whether a server is alive and ready, as `/live`, `/ready` and `/health` report it."""

import json
import time
from collections.abc import Sequence
from typing import Literal, Protocol

from starlette.requests import Request
from starlette.responses import Response

from regard import __version__
from regard.serve.connections import is_draining
from regard.serve.errors import error_content

STUCK_SECONDS = 60.0
"""Duration after which a step that has not ended counts as stuck."""

Phase = Literal["loading", "ready", "stopping"]
_PROBLEMS = {
    "loading": "the models are being loaded; retry later",
    "stopping": "the server is shutting down; send the request to another one",
    "stuck": f"a worker has made no progress for {STUCK_SECONDS:g} s; restart the server",
}


class BusyWorker(Protocol):
    """The part of a worker that tells whether it makes progress."""

    busy_since: float | None


class Health:
    """The state of a server. Whoever starts or stops it sets `phase`."""

    def __init__(self, workers: Sequence[BusyWorker] = ()) -> None:
        """Begin in the phase `loading`."""
        self.workers = workers
        self.phase: Phase = "loading"

    @property
    def is_stuck(self) -> bool:
        """Whether a worker has made no progress for a minute."""
        now = time.monotonic()
        starts = [worker.busy_since for worker in self.workers]
        return any(start is not None and now - start > STUCK_SECONDS for start in starts)

    async def live(self) -> Response:
        """Return whether the process works: 503 if a worker is stuck, so that only a restart helps."""
        return _response("stuck" if self.is_stuck else "live")

    async def ready(self, request: Request) -> Response:
        """Return whether to send requests here: 503 while loading or shutting down, or if a worker is stuck."""
        return _response("stuck" if self.is_stuck else "stopping" if is_draining(request.scope) else self.phase)

    async def health(self, request: Request) -> Response:
        """Return the same as `/ready`, for load balancers that know one address only."""
        return await self.ready(request)


def _response(status: Literal["live", "ready", "loading", "stopping", "stuck"]) -> Response:
    """Return the response for a state, an error unless it is a good one."""
    content = {"status": status, "version": __version__}
    if status in _PROBLEMS:
        content = {**error_content(503, _PROBLEMS[status]), **content}
    code = 503 if status in _PROBLEMS else 200
    headers = {"Cache-Control": "no-store", **({"Retry-After": "1"} if code == 503 else {})}
    return Response(json.dumps(content).encode(), code, headers, media_type="application/json")
