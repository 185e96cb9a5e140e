"""What generated corpora share: tables that are read line by line, hashes that decide splits, and distinct draws."""

from collections.abc import Callable, Iterator
from hashlib import blake2b
from importlib.resources.abc import Traversable
from typing import TypeVar

__all__ = ["digest", "draw_distinct", "fraction", "read_lines"]

T = TypeVar("T")


def digest(text: str, salt: str = "regard") -> bytes:
    """Return an eight-byte hash that is the same on every machine and in every version of Python."""
    return blake2b(f"{salt}|{text}".encode(), digest_size=8).digest()


def fraction(text: str, salt: str = "regard") -> float:
    """Return the hash as a number in [0, 1)."""
    return int.from_bytes(digest(text, salt), "big") / 2**64


def draw_distinct(
    draw: Callable[[], tuple[str, T] | None], split: str, count: int, what: str, patience: int
) -> Iterator[T]:
    """Yield `count` values with distinct texts.

    Args:
        draw: Returns a random value with its text, or None if it is not in the split.
        split: The name of the split, for the error.
        count: The number of values.
        what: What the values are, in the plural, for the error.
        patience: Consecutive draws without a new value after which the split counts as exhausted.

    Raises:
        ValueError: If the split is exhausted.
    """
    seen: set[bytes] = set()  # digests, so that a million texts fit into memory
    misses = 0
    while len(seen) < count:
        if misses > patience:
            raise ValueError(
                f"the split {split!r} has no more than {len(seen)} of the {count} {what} asked for: ask for fewer"
            )
        misses += 1
        drawn = draw()
        if drawn is None or (mark := digest(drawn[0])) in seen:
            continue
        seen.add(mark)
        misses = 0
        yield drawn[1]


def read_lines(folder: Traversable, name: str) -> Iterator[tuple[str, str]]:
    """Yield the lines of a file that are neither empty nor comments, each with its place (`file:line`)."""
    for number, line in enumerate((folder / name).read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield f"{name}:{number}", line
