"""Generated dialogues in which replies depend on earlier turns, with the turn and words that decide each reply.

A user and a bot talk about names, ages, places, work, animals, likes, orders, ways and times. What the bot says is a
function of the turns before it; where the user asks for something said earlier, the turn that says it is known. So the
question whether a model replies correctly, and whether it attends to the right turn, has an answer.

The exchanges are data: see the `.txt` files next to this module, and `docs/smalltalk.md`.
"""

import random
from collections.abc import Iterator
from functools import cache
from typing import Literal, get_args

from regard.data.generation import draw_distinct
from regard.data.smalltalk.dialogue import FORMS, Dialogue, Evidence, Form
from regard.data.smalltalk.grammar import load
from regard.data.smalltalk.sampling import DialogueSampler

__all__ = ["FORMS", "SPEAKERS", "SPLITS", "Dialogue", "Evidence", "Form", "dialogues"]

SPEAKERS = ("user", "bot")
"""Who speaks: the user begins, and the two alternate."""
Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
PATIENCE = 10_000  # consecutive draws without a new dialogue after which a split counts as exhausted


def dialogues(split: Split, count: int, seed: int = 0) -> Iterator[Dialogue]:
    """Yield distinct dialogues of one part; the same seed gives the same dialogues on every machine.

    Args:
        split: The part. No question about an earlier turn occurs in two parts with the turns it depends on.
        count: Number of dialogues.
        seed: Random seed.

    Example:
        >>> next(dialogues("train", count=1)).turns
    """
    if split not in SPLITS:
        raise ValueError(f"small talk has no split {split!r}: choose one of {', '.join(SPLITS)}")
    if count < 0:
        raise ValueError(f"cannot draw {count} dialogues: ask for 0 or more")
    sampler = _sampler(split)
    random_number = random.Random(f"smalltalk {split} {seed}").random

    def draw() -> tuple[str, Dialogue] | None:
        dialogue = sampler.draw(random_number)
        return None if dialogue is None else ("\n".join(dialogue.turns), dialogue)

    return draw_distinct(draw, split, count, "dialogues", PATIENCE)


@cache
def _sampler(split: Split) -> DialogueSampler:
    """Return the sampler of a split, whose tables are read once."""
    return DialogueSampler(load(), split)
