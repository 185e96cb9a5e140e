"""The last few results, so that another view of the same sentence costs nothing; bounded in number and in bytes."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

Found = TypeVar("Found")

MOST = 24
"""Results that are kept."""
BYTES = 1 << 28
"""And the memory they may take together; the newest is kept however large it is."""


class Kept:
    """Results by what they are the answer to; the one not asked for longest goes first."""

    def __init__(self, most: int = MOST, size: int = BYTES) -> None:
        """Keep so many, of so many bytes in all."""
        self.most, self.size = most, size
        self._found: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._found)

    def get(self, key: Hashable, make: Callable[[], Found], size: Callable[[Found], int] = lambda found: 0) -> Found:
        """What was found for this before, or what is found now."""
        if key in self._found:
            self._found.move_to_end(key)
            found: Found = self._found[key][0]  # under a key lies what was made for it
            return found
        made = make()
        self.put(key, made, size(made))
        return made

    def put(self, key: Hashable, found: object, size: int = 0) -> None:
        """Keep something, and let go of what is too much."""
        self._found[key] = (found, size)
        while len(self._found) > self.most or self._taken() > self.size:
            if len(self._found) == 1:
                return
            self._found.popitem(last=False)

    def peek(self, key: Hashable) -> object | None:
        """What was found for this before, if it is still there."""
        found: object | None = None
        if key in self._found:
            self._found.move_to_end(key)
            found = self._found[key][0]
        return found

    def _taken(self) -> int:
        return sum(size for _, size in self._found.values())
