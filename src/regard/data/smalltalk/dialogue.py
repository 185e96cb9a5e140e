"""A dialogue, and what its replies depend on."""

from dataclasses import dataclass
from typing import Literal, get_args

Form = Literal["plain", "direct", "pronoun", "ellipsis", "correction", "unknown"]
FORMS: tuple[Form, ...] = get_args(Form)
"""What an exchange asks of a reader; `docs/smalltalk.md` explains the forms."""


@dataclass(frozen=True)
class Evidence:
    """What a reply depends on."""

    kind: str
    """The kind of the exchange, such as `name` or `greeting`."""
    turn: int
    """The number of the turn that decides the reply, counted from 0."""
    words: tuple[tuple[int, int], ...]
    """Begin and end of each word or phrase in that turn that the reply repeats; empty if it repeats none."""
    reply_words: tuple[tuple[int, int], ...]
    """Begin and end of each of these words in the reply, in the order of `words`; only case may differ."""
    form: Form
    """What the last turn is: `plain` if a reply to it needs no other turn, or only the question that it answers;
    `unknown` if it asks for what no turn has said; else a question that an earlier turn answers, by its difficulty:
    `direct`, `pronoun`, `ellipsis` or `correction`."""


@dataclass(frozen=True)
class Dialogue:
    """A dialogue of two speakers."""

    turns: tuple[str, ...]
    evidence: tuple[Evidence | None, ...]
    """For each turn what it depends on; None for turns of the user, which no turn decides."""

    def is_recalled(self, turn: int) -> bool:
        """Return whether a turn depends on a turn before the last one."""
        evidence = self.evidence[turn]
        return evidence is not None and evidence.turn < turn - 1

    @property
    def recalled(self) -> tuple[int, ...]:
        """The numbers of the turns that depend on a turn before the last one; every dialogue has some."""
        return tuple(number for number in range(len(self.turns)) if self.is_recalled(number))
