"""Between the event loop and the workers: an order goes into a queue, and its answers come back, or time runs out."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from regard.serve.queue import FullError, Order, Ticket
from regard.serve.served import FaultError, Served
from regard.serve.worker import Settled
from regard.translator import Translation
from regard.translator.translation import nothing

Tickets = Callable[[Order], Sequence[Ticket]]
"""What an order asks for, once there is an order."""


async def gather(request: Request, served: Served, tickets: Tickets, seconds: float) -> list[Any]:
    """What became of every ticket of an order, in their order."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    found: dict[int, Any] = {}

    def tell(place: int, what: Any) -> None:
        found[place] = what
        if len(found) == len(asked) and not done.done():
            done.set_result(None)

    order = Order(loop, tell)
    asked = tickets(order)
    _put(served, asked)
    left = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({done, left}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not done.done() and left.done():
            served.meter.left.inc()
            raise ClientDisconnect
        if not done.done():
            raise HTTPException(504, f"no answer within {seconds:g} s; send less at once, or raise the limit")
    finally:
        order.gone = True
        left.cancel()
    return [found[place] for place in range(len(asked))]


def tokens(served: Served, tickets: Tickets, seconds: float) -> AsyncIterator[bytes]:
    """What becomes of an order as it becomes known: an object a line, at last a translation for each line."""
    loop = asyncio.get_running_loop()
    heard: asyncio.Queue[tuple[int, Any]] = asyncio.Queue()
    order = Order(loop, lambda place, what: heard.put_nowait((place, what)), streamed=True)
    asked = tickets(order)
    _put(served, asked)

    async def told() -> AsyncIterator[bytes]:
        left = len(asked)
        try:
            async with asyncio.timeout(seconds):
                while left:
                    place, what = await heard.get()
                    left -= not isinstance(what, Settled)
                    yield _event(place, what)
        except TimeoutError:
            yield _line({"error": f"no answer within {seconds:g} s; send less at once, or raise the limit"})
        except (asyncio.CancelledError, GeneratorExit):
            served.meter.left.inc()
            raise
        finally:
            order.gone = True

    return told()


def translations(lines: Sequence[str], found: Sequence[Any]) -> list[Translation]:
    """Translations, each line's fault with it; an error where something failed here, or nothing could be translated."""
    for each in found:
        if isinstance(each, Exception) and not isinstance(each, ValueError):
            raise HTTPException(500, str(each) if isinstance(each, FaultError) else "an internal error")
    if all(isinstance(each, Exception) for each in found):
        raise HTTPException(422, str(found[0]))
    return [
        nothing(line, str(each)) if isinstance(each, Exception) else each
        for line, each in zip(lines, found, strict=True)
    ]


def _put(served: Served, asked: Sequence[Ticket]) -> None:
    try:
        served.queue.put(asked)
    except FullError as full:
        served.meter.refused.labels(served.name).inc()
        raise HTTPException(429, str(full), {"Retry-After": str(full.seconds)}) from None


async def _left(request: Request) -> None:
    """Returns when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _event(place: int, what: Any) -> bytes:
    """One thing that became known of a line."""
    match what:
        case Settled(pieces, text):
            return _line({"line": place, "tokens": pieces, "text": text})
        case Translation():
            return _line({"line": place, "translation": what.to_json()})
        case ValueError() | FaultError():
            return _line({"line": place, "error": str(what)})
        case _:
            return _line({"line": place, "error": "an internal error"})


def _line(table: dict[str, Any]) -> bytes:
    return json.dumps(table, ensure_ascii=False).encode() + b"\n"
