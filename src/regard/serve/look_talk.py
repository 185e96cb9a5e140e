"""A conversation over a WebSocket: questions come as text, answers go as frames, and the newest question counts.

Each question has a channel. A newer one of the same channel makes the older stale: its answer stops where it is. What
needs the model waits in the queue that requests over HTTP wait in, one question of a model at a time.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from regard.analysis.look import Looker, write_frame
from regard.analysis.look.questions import AnyQuestion, Models, Positions, Tokens, number_of, read_question
from regard.serve.queue import Chore, FullError, Order
from regard.serve.served import Served

CHANNELS = 16
"""Questions one client may have open at a time."""
OVER = object()
"""Said when an answer has ended."""


class Room(Protocol):
    """What there is to talk about."""

    looker: Looker
    models: dict[str, Served]
    turns: dict[str, asyncio.Lock]

    async def ready(self, tell: Callable[[dict[str, Any]], Any]) -> None:
        """Returns when there are models; tells meanwhile how far they are."""


class Talk:
    """One client's conversation."""

    def __init__(self, socket: WebSocket, room: Room) -> None:
        """Talk over a socket that was accepted."""
        self.socket, self.room = socket, room
        self._newest: dict[str, asyncio.Task[None]] = {}
        """The question under way in each channel."""
        self._sending = asyncio.Lock()

    async def go_on(self) -> None:
        """Answer what comes until the client leaves."""
        try:
            while True:
                message = await self.socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                await self._hear(message.get("text") or message.get("bytes") or "")
        except WebSocketDisconnect:
            return
        finally:
            left, self._newest = list(self._newest.values()), {}
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _hear(self, asked: str | bytes) -> None:
        """Begin to answer a question; what is none is said so at once."""
        try:
            question = read_question(asked)
        except ValueError as error:
            await self._fault(number_of(asked), str(error))
            return
        channel = question.channel
        if channel not in self._newest and len(self._newest) >= CHANNELS:
            await self._fault(question.id, f"{CHANNELS} channels are open already; use one of them")
            return
        if older := self._newest.pop(channel, None):
            older.cancel()
        task = asyncio.create_task(self._answer(question, lambda: self._newest.get(channel) is not task))
        self._newest[channel] = task
        task.add_done_callback(lambda done: self._over(done, channel))

    def _over(self, task: "asyncio.Task[None]", channel: str) -> None:
        if self._newest.get(channel) is task:
            del self._newest[channel]
        if not task.cancelled():
            task.exception()  # a client that left in the middle of an answer is nobody's fault

    async def _answer(self, question: AnyQuestion, stale: Callable[[], bool]) -> None:
        """Answer one question."""
        if isinstance(question, Models):
            told = {"id": question.id, "kind": "making", "last": False}
            try:
                await self.room.ready(lambda news: self._send(write_frame({**told, **news}), stale))
            except ValueError as error:
                await self._fault(question.id, str(error))
                return
        name = question.model if question.model is not None else next(iter(self.room.models), None)
        looker = self.room.looker
        if isinstance(question, Models | Tokens | Positions) or name not in self.room.models:
            for frame in await asyncio.to_thread(lambda: list(looker.answer(question, stale))):
                await self._send(frame, stale)
            return
        async with self.room.turns[name]:
            if not stale():
                await self._work(self.room.models[name], question, stale)

    async def _work(self, served: Served, question: AnyQuestion, stale: Callable[[], bool]) -> None:
        """Let a worker of the model answer, and pass on what it says as it says it."""
        heard: asyncio.Queue[Any] = asyncio.Queue()
        order = Order(asyncio.get_running_loop(), lambda place, what: heard.put_nowait(what))
        looker = self.room.looker

        def unwanted() -> bool:
            return order.gone or stale()

        def work() -> object:
            # Changes act on the model itself: nobody else may watch it until the answer is over.
            with served.watched:
                for frame in looker.answer(question, unwanted):
                    order.answer(0, frame)
            return OVER

        try:
            served.queue.put([Chore(order, 0, work)])
            while (what := await heard.get()) is not OVER:
                if isinstance(what, Exception):
                    await self._fault(question.id, "this could not be answered; ask again")
                    return
                await self._send(what, stale)
        except FullError as full:
            await self._fault(question.id, str(full))
        finally:
            order.gone = True

    async def _fault(self, number: int | str | None, sentence: str) -> None:
        await self._send(write_frame({"id": number, "kind": "error", "message": sentence, "last": True}))

    async def _send(self, frame: bytes, stale: Callable[[], bool] = lambda: False) -> None:
        """Send a frame that is still wanted."""
        async with self._sending:
            if not stale() and self.socket.application_state is WebSocketState.CONNECTED:
                await self.socket.send_bytes(frame)
