"""The explorer's WebSocket: questions arrive as JSON, answers leave as binary frames (docs/look-protocol.md).

Each question has a channel. A newer question makes an older one of the same channel stale: its answer stops. Questions
that need a model wait in its queue of the HTTP API, if it has one; a model answers one question at a time.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from regard.explore import write_frame
from regard.explore.questions import (
    AnyQuestion,
    ModelsQuestion,
    PositionsQuestion,
    TokensQuestion,
    parse_question,
    question_id,
)
from regard.serve.explorer_models import ExplorerModels
from regard.serve.queue import FunctionJob, PendingResponse, QueueFullError

MAX_CHANNELS = 16
"""Questions that one client may have in progress at a time."""
MAX_UNSENT_ANSWERS = 2
"""Answers of a model that are computed for one client before it has read them. They are kept in memory."""
_END = object()  # marks the end of an answer


class ExplorerSession:
    """The questions and answers of one client."""

    def __init__(self, socket: WebSocket, models: ExplorerModels) -> None:
        """Use a WebSocket that is accepted already."""
        self.socket, self.models = socket, models
        self._newest: dict[str, asyncio.Task[None]] = {}
        """The task that answers the newest question of each channel."""
        self._sending = asyncio.Lock()
        self._unsent_answers = asyncio.Semaphore(MAX_UNSENT_ANSWERS)

    async def run(self) -> None:
        """Answer questions until the client disconnects."""
        try:
            while True:
                message = await self.socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                await self._receive(message.get("text") or message.get("bytes") or "")
        except WebSocketDisconnect:
            return
        finally:
            tasks, self._newest = list(self._newest.values()), {}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _receive(self, message: str | bytes) -> None:
        """Start to answer a question; report an invalid one at once."""
        try:
            question = parse_question(message)
        except ValueError as error:
            await self._send_error(question_id(message), str(error))
            return
        channel = question.channel
        if channel not in self._newest and len(self._newest) >= MAX_CHANNELS:
            await self._send_error(question.id, f"{MAX_CHANNELS} channels are in use; wait for one, or use it again")
            return
        if older := self._newest.pop(channel, None):
            older.cancel()
        task = asyncio.create_task(self._answer(question, lambda: self._newest.get(channel) is not task))
        self._newest[channel] = task
        task.add_done_callback(lambda done: self._on_done(done, channel))

    def _on_done(self, task: "asyncio.Task[None]", channel: str) -> None:
        if self._newest.get(channel) is task:
            del self._newest[channel]
        if not task.cancelled():
            task.exception()  # mark it as retrieved: a client that disconnects early is no error

    async def _answer(self, question: AnyQuestion, is_stale: Callable[[], bool]) -> None:
        """Answer one question."""
        if isinstance(question, ModelsQuestion):
            header = {"id": question.id, "kind": "training", "last": False}
            try:
                await self.models.wait(lambda status: self._send(write_frame({**header, **status}), is_stale))
            except ValueError as error:
                await self._send_error(question.id, str(error))
                return
        explorer = self.models.explorer
        name = question.model if question.model is not None else next(iter(explorer.models), None)
        if isinstance(question, ModelsQuestion | TokensQuestion | PositionsQuestion) or name not in explorer.models:
            for frame in await asyncio.to_thread(lambda: list(explorer.answer(question, is_stale))):
                await self._send(frame, is_stale)
            return
        async with self._unsent_answers:
            await self._answer_in_thread(name, question, is_stale)

    async def _answer_in_thread(self, name: str, question: AnyQuestion, is_stale: Callable[[], bool]) -> None:
        """Answer a question in a worker of the HTTP API, or in any thread for a model that the API does not serve.

        Each frame is sent as soon as it is known. The model is held only until the answer is computed, so a client that
        does not read keeps no other client waiting.
        """
        frames: asyncio.Queue[Any] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        computed: asyncio.Future[None] = loop.create_future()

        def on_result(index: int, frame: Any) -> None:
            frames.put_nowait(frame)
            if (frame is _END or isinstance(frame, Exception)) and not computed.done():
                computed.set_result(None)

        response = PendingResponse(loop, on_result)
        sending: asyncio.Task[None] | None = None
        try:
            async with self.models.locks[name]:
                if is_stale():
                    return
                self._start_answer(name, question, response, is_stale)
                sending = asyncio.create_task(self._send_frames(question, frames, is_stale))
                await asyncio.wait({sending, computed}, return_when=asyncio.FIRST_COMPLETED)
            await sending
        except QueueFullError as full:
            await self._send_error(question.id, str(full))
        finally:
            response.closed = True
            if sending is not None:
                sending.cancel()

    def _start_answer(
        self, name: str, question: AnyQuestion, response: PendingResponse, is_stale: Callable[[], bool]
    ) -> None:
        """Let a thread compute the frames of an answer."""
        explorer, service, lock = self.models.explorer, self.models.services.get(name), self.models.thread_locks[name]

        def is_unwanted() -> bool:
            return response.closed or is_stale()

        def answer() -> object:
            # Changes act on the model itself, so no other thread may use its taps until the answer is complete.
            with lock:
                for frame in explorer.answer(question, is_unwanted):
                    response.deliver(0, frame)
            return _END

        if service is None:
            asyncio.get_running_loop().run_in_executor(None, lambda: response.deliver(0, answer()))
        else:
            service.queue.put([FunctionJob(response, 0, answer)])

    async def _send_frames(
        self, question: AnyQuestion, frames: "asyncio.Queue[Any]", is_stale: Callable[[], bool]
    ) -> None:
        """Send the frames of an answer until its end."""
        while (frame := await frames.get()) is not _END:
            if isinstance(frame, Exception):
                await self._send_error(question.id, "the question could not be answered; ask again")
                return
            await self._send(frame, is_stale)

    async def _send_error(self, number: int | str | None, message: str) -> None:
        await self._send(write_frame({"id": number, "kind": "error", "message": message, "last": True}))

    async def _send(self, frame: bytes, is_stale: Callable[[], bool] = lambda: False) -> None:
        """Send a frame unless its question is stale."""
        async with self._sending:
            if not is_stale() and self.socket.application_state is WebSocketState.CONNECTED:
                await self.socket.send_bytes(frame)
