"""Between the event loop and the workers: put the jobs of a request into a queue, and wait for their results."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from regard.predict import Translation
from regard.predict.translation import empty_translation
from regard.serve.chat_service import ServedReply
from regard.serve.errors import error_content
from regard.serve.metrics import Metrics
from regard.serve.queue import JobQueue, PendingResponse, QueuedJob, QueueFullError
from regard.serve.request_context import RequestContext, current_request
from regard.serve.service import PartialOutput, ServerFaultError

MakeJobs = Callable[[PendingResponse], Sequence[QueuedJob]]
"""Creates the jobs of a request."""


class QueuedService(Protocol):
    """A model with a queue of jobs."""

    name: str
    queue: JobQueue
    metrics: Metrics


async def run_jobs(request: Request, service: QueuedService, make_jobs: MakeJobs, seconds: float) -> list[Any]:
    """Run the jobs of a request, and return their results in order.

    Raises:
        ClientDisconnect: The client has disconnected before the results were complete.
        HTTPException: 429 if the queue is full, 504 if the results take longer than `seconds`.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    results: dict[int, Any] = {}

    def on_result(index: int, result: Any) -> None:
        results[index] = result
        if len(results) == len(jobs) and not done.done():
            done.set_result(None)

    response = PendingResponse(loop, on_result, client=client_of(request))
    jobs = make_jobs(response)
    _put(service, jobs)
    disconnected = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait({done, disconnected}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not done.done() and disconnected.done():
            service.metrics.left.inc()
            raise ClientDisconnect
        if not done.done():
            raise HTTPException(504, timeout_message(seconds))
    finally:
        response.closed = True
        disconnected.cancel()
    return [results[index] for index in range(len(jobs))]


def encode_event(index: int | None, result: Any) -> bytes:
    """Encode a result of a job, or the error of a request, as a line of JSON."""
    event: dict[str, Any]
    match result:
        case PartialOutput(pieces, text):
            event = {"tokens": pieces, "text": text}
        case Translation():
            event = {"translation": result.to_json()}
        case ServedReply():
            event = {"reply": result.to_json()}
        case _:
            event = failure_content(result)
    line = {} if index is None else {"line": index}
    return json.dumps({**line, **event}, ensure_ascii=False).encode() + b"\n"


def failure_content(failure: Any, request: RequestContext | None = None) -> dict[str, Any]:
    """Return the JSON object of the error that a job or a streamed request has failed with."""
    match failure:
        case HTTPException():
            status, message = failure.status_code, failure.detail
        case ValueError():
            status, message = 422, str(failure)
        case ServerFaultError():
            status, message = 500, str(failure)
        case _:
            status, message = 500, "internal error"
    return error_content(status, message, None, request)


def stream_jobs(
    service: QueuedService,
    make_jobs: MakeJobs,
    seconds: float,
    client: str = "",
    encode: Callable[[int | None, Any], bytes] = encode_event,
) -> AsyncIterator[bytes]:
    """Run the jobs of a request, and yield their partial and final results as soon as they are known.

    Args:
        service: The model.
        make_jobs: Creates the jobs.
        seconds: Time limit of the request.
        client: The client that waits.
        encode: Encodes the result of a job, or the error of the whole request if the number of the job is None.

    Raises:
        HTTPException: 429 if the queue is full.
    """
    loop = asyncio.get_running_loop()
    results: asyncio.Queue[tuple[int, Any]] = asyncio.Queue()
    response = PendingResponse(
        loop, lambda index, result: results.put_nowait((index, result)), streamed=True, client=client
    )
    jobs = make_jobs(response)
    _put(service, jobs)
    request = current_request()

    async def stream() -> AsyncIterator[bytes]:
        remaining, end = len(jobs), loop.time() + seconds
        try:
            while remaining:
                # The time limit is not in force during `yield`, where the client takes a line: it would cancel the
                # task that sends the line, and no error could be reported.
                if loop.time() >= end:
                    raise TimeoutError
                async with asyncio.timeout_at(end):
                    index, result = await results.get()
                remaining -= not isinstance(result, PartialOutput)
                if isinstance(result, Translation | ServedReply):
                    request.tokens = (request.tokens or 0) + len(result.tokens)
                yield encode(index, result)
        except TimeoutError:
            yield encode(None, HTTPException(504, timeout_message(seconds)))
        except (asyncio.CancelledError, GeneratorExit):
            service.metrics.left.inc()
            raise
        finally:
            response.closed = True

    return stream()


def client_of(request: Request) -> str:
    """Return the client of a request, by which the model is shared: its IP address."""
    return "" if request.client is None else request.client.host


def check_translations(lines: Sequence[str], results: Sequence[Any]) -> list[Translation]:
    """Return the translation of each line, empty with a `fault` where a line could not be translated.

    Raises:
        HTTPException: 500 if the server failed, 422 if no line at all could be translated.
    """
    check_results(results)
    return [
        empty_translation(line, str(result)) if isinstance(result, Exception) else result
        for line, result in zip(lines, results, strict=True)
    ]


def check_results(results: Sequence[Any]) -> None:
    """Check that no job of a request failed, and that one at least had a result.

    Raises:
        HTTPException: 500 if the server failed, 422 if every line was refused.
    """
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, ValueError):
            raise HTTPException(500, str(result) if isinstance(result, ServerFaultError) else "internal error")
    if all(isinstance(result, Exception) for result in results):
        raise HTTPException(422, str(results[0]))


def _put(service: QueuedService, jobs: Sequence[QueuedJob]) -> None:
    try:
        service.queue.put(jobs)
    except QueueFullError as full:
        service.metrics.refused.labels(service.name).inc()
        raise HTTPException(429, str(full), {"Retry-After": str(full.seconds)}) from None


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def timeout_message(seconds: float) -> str:
    """Return the error of a request that has taken too long."""
    return f"no response within {seconds:g} s; send less per request, or raise the limit with --max-seconds"
