"""Waiting work in fair order: clients, and the requests of each client, get equal shares by cost.

This is start-time fair queueing (Goyal et al. 1996, §2) on two levels. An item starts when its request has been given
the cost of all earlier items, measured in virtual time, which is the start of the item served last. The item with the
earliest start is served first. So a request with one cheap item does not wait for the many or costly items of others,
and a client gains nothing by sending many requests.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Generic, Protocol, TypeVar

Key = TypeVar("Key")


class QueuedResponse(Protocol):
    """What items are queued for: a response to a client."""

    @property
    def client(self) -> str:
        """The client, by which shares are counted."""

    @property
    def closed(self) -> bool:
        """Whether no result is wanted any more."""


class Item(Protocol):
    """Something that waits."""

    @property
    def response(self) -> QueuedResponse:
        """What it belongs to."""

    @property
    def cost(self) -> float:
        """What it costs to serve it."""


Waiting = TypeVar("Waiting", bound=Item)


class VirtualTime(Generic[Key]):
    """When each of several flows may be served next."""

    def __init__(self) -> None:
        """Begin at time 0, without flows."""
        self.now = 0.0
        self._starts: dict[Key, float] = {}
        self._limit = 64

    def start(self, key: Key) -> float:
        """Return when a flow may be served next: now, or later if it has had more than its share."""
        return max(self.now, self._starts.get(key, 0.0))

    def serve(self, key: Key, cost: float) -> None:
        """Record that an item of a flow is served."""
        self.now = self.start(key)
        self._starts[key] = self.now + cost
        if len(self._starts) > self._limit:  # those that are not ahead of time are as good as new
            self._starts = {flow: start for flow, start in self._starts.items() if start > self.now}
            self._limit = max(64, 2 * len(self._starts))


class FairQueue(Generic[Waiting]):
    """Items that wait, in fair order. Items of closed responses are dropped."""

    def __init__(self) -> None:
        """Create an empty queue."""
        self._requests: dict[str, dict[QueuedResponse, deque[Waiting]]] = {}
        """Items by client and response, each in the order of arrival."""
        self._clients = VirtualTime[str]()
        self._shares: dict[str, VirtualTime[QueuedResponse]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Return the number of items."""
        return self._count

    def __contains__(self, response: object) -> bool:
        """Return whether items of a response wait."""
        return any(response in requests for requests in self._requests.values())

    def push(self, item: Waiting) -> None:
        """Append an item to those of its response."""
        client = item.response.client
        self._requests.setdefault(client, {}).setdefault(item.response, deque()).append(item)
        self._shares.setdefault(client, VirtualTime())
        self._count += 1

    def pop(self, accepts: Callable[[Waiting], bool] = lambda item: True) -> Waiting | None:
        """Return the first item in fair order that is accepted; None if there is none.

        Of each response only its first item is considered. Equal starts are served in the order of arrival.
        """
        for client in _in_order(self._requests, self._clients):
            requests, share = self._requests[client], self._shares[client]
            for response in _in_order(requests, share):
                item = requests[response][0]
                if response.closed:
                    self._drop(client, response)
                elif accepts(item):
                    self._clients.serve(client, item.cost)
                    share.serve(response, item.cost)
                    requests[response].popleft()
                    self._count -= 1
                    if not requests[response]:
                        self._drop(client, response)
                    return item
        return None

    def drop_closed(self) -> None:
        """Drop the items of closed responses."""
        closed = {item.response for item in self if item.response.closed}
        for response in closed:
            self._drop(response.client, response)

    def __iter__(self) -> Iterator[Waiting]:
        """Return all items, in no particular order."""
        return (item for requests in self._requests.values() for items in requests.values() for item in items)

    def _drop(self, client: str, response: QueuedResponse) -> None:
        """Forget a response and its items, and a client without responses."""
        requests = self._requests[client]
        self._count -= len(requests.pop(response))
        if not requests:
            del self._requests[client], self._shares[client]


def _in_order(keys: Collection[Key], time: VirtualTime[Key]) -> Iterator[Key]:
    """Yield keys by their start; usually only the first one is needed."""
    if keys:
        first = min(keys, key=time.start)
        yield first
        yield from sorted((key for key in keys if key is not first), key=time.start)
