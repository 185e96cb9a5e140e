"""Generated dialogues in which replies depend on earlier turns, with the turn and words that decide each reply."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["SPEAKERS", "Dialogue", "Evidence", "dialogues"]

SPEAKERS = ("user", "bot")
"""Who speaks: the user begins, and the two alternate."""
Split = Literal["train", "valid", "test"]


@dataclass(frozen=True)
class Evidence:
    """What a reply depends on."""

    kind: str
    """The kind of the exchange, such as `name` or `greeting`."""
    turn: int
    """The number of the turn that decides the reply, counted from 0."""
    words: tuple[tuple[int, int], ...]
    """Begin and end of each word or phrase in that turn that decides the reply."""


@dataclass(frozen=True)
class Dialogue:
    """A dialogue of two speakers."""

    turns: tuple[str, ...]
    evidence: tuple[Evidence | None, ...]
    """For each turn what it depends on; None where any earlier text allows it."""

    def is_recalled(self, turn: int) -> bool:
        """Return whether a turn depends on a turn before the last one."""
        evidence = self.evidence[turn]
        return evidence is not None and evidence.turn < turn - 1


def dialogues(split: Split, count: int, seed: int = 0) -> Iterator[Dialogue]:
    """Yield distinct dialogues of one part.

    Args:
        split: The part. No question about an earlier turn occurs in two parts with the turns it depends on.
        count: Number of dialogues.
        seed: Random seed.
    """
    raise ValueError(f"no dialogues for {split}, {count}, {seed}")
