"""Work that takes long does not hold up the event loop, and a time limit does not interrupt who sends a response."""

import asyncio
import json
from threading import Event
from typing import Any

from tests.serve.asgi import run_async
from tests.serve.client import SECONDS

from regard.predict import TranslationOptions, TranslationRequest, Translator
from regard.serve.app import make_app
from regard.serve.dispatch import stream_jobs
from regard.serve.metrics import Metrics
from regard.serve.queue import JobQueue, PendingResponse, QueuedJob, TranslationJob
from regard.serve.settings import ServerSettings
from regard.serve.translator_service import TranslatorService
from regard.text import Tokenizer, Tokenizers
from regard.text.spans import Token


class WaitingTokenizer(Tokenizer):
    """A tokenizer that takes as long as a test wants."""

    def __init__(self, model: bytes) -> None:
        super().__init__(model)
        self.has_begun, self.may_continue = Event(), Event()

    def tokens(self, text: str) -> list[Token]:
        self.has_begun.set()
        assert self.may_continue.wait(SECONDS)
        return super().tokens(text)


async def call(app: Any, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    """Call an ASGI application in this process, and return status and JSON of its response."""
    sent: list[Any] = []
    messages = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> Any:
        return messages.pop() if messages else await asyncio.Future()

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
    await app({**scope, "headers": headers, "http_version": "1.1", "root_path": "", "scheme": "http"}, receive, send)
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


def test_other_requests_are_answered_while_lines_are_tokenised(translator: Translator) -> None:
    tokenizer = WaitingTokenizer(translator.tokenizers["source"].model)
    tokenizers = Tokenizers({"source": tokenizer, "target": translator.tokenizers["target"]})
    slow = Translator(translator.model, tokenizers, longest=translator.longest)
    app = make_app({"slow": slow}, ServerSettings())
    app.state.health.phase = "ready"

    async def run() -> None:
        waiting = asyncio.create_task(call(app, "POST", "/tokens", {"source": "the shirt"}))
        while not tokenizer.has_begun.is_set():
            await asyncio.sleep(0)
        assert (await call(app, "GET", "/health"))[0] == 200
        assert not waiting.done()
        tokenizer.may_continue.set()
        status, answer = await waiting
        assert status == 200
        assert [token["id"] for token in answer["lines"][0]] == tokenizer.encode("the shirt")

    run_async(run())


def test_a_stream_past_its_time_limit_ends_with_an_error_line(translator: Translator) -> None:
    service = TranslatorService("model", translator, JobQueue(8, 1), Metrics())
    responses: list[PendingResponse] = []

    def make_jobs(response: PendingResponse) -> list[QueuedJob]:
        responses.append(response)
        request, options = TranslationRequest("the shirt"), TranslationOptions()
        return [TranslationJob(response, index, request, options) for index in range(3)]

    async def run() -> None:
        stream = stream_jobs(service, make_jobs, seconds=0.05)
        loop = asyncio.get_running_loop()
        responses[0].deliver(0, ValueError("a first result"))
        responses[0].deliver(1, ValueError("a second result"))
        assert b"a first result" in await anext(stream)
        end = loop.time() + 0.1
        while loop.time() < end:
            await asyncio.sleep(0)  # the client takes its time to read the first line
        (last,) = [json.loads(line) async for line in stream]
        assert last["error"].startswith("no response within 0.05 s")
        assert responses[0].closed

    run_async(run())
