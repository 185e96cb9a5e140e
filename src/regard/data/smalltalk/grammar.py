"""The parser of the tables that dialogues are made of, with errors that name the file and the line.

`words.txt` and `exchanges.txt` next to this module explain their notation in their first lines. For each reply the
parser finds the turn that decides it, and refuses topics in which it is not the only one.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Literal, NamedTuple, get_args

from regard.data.generation import read_lines
from regard.data.smalltalk.dialogue import Form

Role = Literal["opening", "topic", "filler", "closing"]
ROLES: tuple[Role, ...] = get_args(Role)
FORM_OF: dict[str, Form] = {
    "user": "plain",
    "then": "plain",
    "ask": "direct",
    "pronoun": "pronoun",
    "ellipsis": "ellipsis",
    "correction": "correction",
    "unknown": "unknown",
}
WINDOW = 6
"""No reply depends on a turn further back than this; `data.turns` is as many by default."""
SLOT = re.compile(r"\{(([a-z]+)\d?)(?:\.([a-z]+))?(?::([a-z]+\d?))?\}")
SENTENCE_END = re.compile(r"(?:^|[.!?] )$")

Value = tuple[str, ...]
"""A word with its further forms."""


@dataclass(frozen=True, eq=False)
class Category:
    """The words that may fill slots of one name, and the names of their further forms."""

    forms: tuple[str, ...]
    values: tuple[Value, ...]

    @cached_property
    def claims(self) -> dict[Value, tuple[str, ...]]:
        """The words of each value that no other slot of a dialogue may have: the last one of each form."""
        return {value: tuple(form.split()[-1] for form in value) for value in self.values}


class Slot(NamedTuple):
    """A slot of a wording: a form of the value with this name."""

    name: str
    form: int
    is_first: bool
    """Whether the slot begins a sentence, and so with a capital."""


class Choice(NamedTuple):
    """How the value of a slot is chosen."""

    category: Category
    agrees: str
    """The slot whose further forms the value has; empty for none."""


class Wording(NamedTuple):
    """A turn with slots."""

    literals: tuple[str, ...]
    """The text before, between and after the slots."""
    slots: tuple[Slot, ...]

    def fill(self, values: Mapping[str, Value]) -> str:
        """Return the text with these values."""
        pieces = [self.literals[0]]
        for slot, literal in zip(self.slots, self.literals[1:], strict=True):
            word = values[slot.name][slot.form]
            pieces += (word[0].upper() + word[1:] if slot.is_first else word), literal
        return "".join(pieces)

    def spans(self, values: Mapping[str, Value], wanted: tuple["Recall", ...]) -> tuple[tuple[int, int], ...]:
        """Return begin and end of the first word in each of the wanted slots, in their order."""
        spans: dict[Recall, tuple[int, int]] = {}
        begin = len(self.literals[0])
        for slot, literal in zip(self.slots, self.literals[1:], strict=True):
            end = begin + len(values[slot.name][slot.form])
            spans.setdefault((slot.name, slot.form), (begin, end))
            begin = end + len(literal)
        return tuple(spans[key] for key in wanted)

    @property
    def keys(self) -> tuple["Recall", ...]:
        """The slots and forms that it has, in order."""
        return tuple(dict.fromkeys((slot.name, slot.form) for slot in self.slots))


Recall = tuple[str, int]
"""A slot and the form of its value."""


@dataclass(frozen=True)
class ExchangeTemplate:
    """A turn of the user in several wordings, and the reply to it."""

    user: tuple[Wording, ...]
    bot: Wording
    form: Form
    follows: bool
    """Whether it follows the exchange before it immediately."""
    gold: tuple[int, int] | None = None
    """The exchange of the topic that decides the reply, and 0 for its turn by the user or 1 for that by the bot; None
    for the last turn."""
    words: tuple[Recall, ...] = ()
    """The slots of the reply that come from the turn which decides it."""


Step = tuple[ExchangeTemplate, ...]
"""Alternatives, of which one is chosen."""


@dataclass(frozen=True, eq=False)
class Topic:
    """Exchanges about one thing, in order."""

    role: Role
    kind: str
    weight: int
    about: frozenset[str]
    """No dialogue has two topics about one of these."""
    steps: tuple[Step, ...]
    choices: Mapping[str, Choice]
    """How the value of each slot is chosen."""

    def told(self) -> "Topic":
        """Return the topic without the questions that an earlier turn answers."""
        kept = tuple(step for step in self.steps if all(exchange.gold is None for exchange in step))
        return replace(self, steps=kept)


@dataclass
class _Draft:
    """A topic that is being read."""

    where: str
    role: Role
    kind: str
    weight: int
    about: frozenset[str]
    lines: list[tuple[str, str, str]]
    """The place, the first word and the rest of each line."""


def load(folder: Traversable | None = None) -> dict[Role, tuple[Topic, ...]]:
    """Read the topics of each role from a folder; by default, those of the package."""
    folder = folder or files("regard.data.smalltalk")
    categories = _read_words(folder)
    topics = [_topic(draft, categories) for draft in _read_drafts(folder)]
    found = {role: tuple(topic for topic in topics if topic.role == role) for role in ROLES}
    for role, group in found.items():
        if not group:
            raise ValueError(f"exchanges.txt has no {role}: add one that begins with {role} KIND WEIGHT")
    return found


def _read_words(folder: Traversable) -> dict[str, Category]:
    """Return the words of each slot."""
    categories: dict[str, Category] = {}
    for where, line in read_lines(folder, "words.txt"):
        head, colon, listed = line.partition(":")
        if not colon:
            name, equals, other = (part.strip() for part in line.partition("="))
            if not equals or other not in categories:
                raise ValueError(f"{where}: a line is `slot: word, word` or `slot = earlier slot`; found {line!r}")
            categories[name] = Category((name,), tuple((value[0],) for value in categories[other].values))
            continue
        forms = tuple(head.split())
        values = tuple(tuple(form.strip() for form in value.split("/")) for value in listed.split(","))
        for value in values:
            if len(value) != len(forms) or not all(value):
                raise ValueError(f"{where}: expected {'/'.join(forms)}, found {'/'.join(value)!r}")
        if not forms or len({value[0] for value in values}) < len(values):
            raise ValueError(f"{where}: a slot has a name and distinct words, separated by commas")
        categories[forms[0]] = Category(forms, values)
    return categories


def _read_drafts(folder: Traversable) -> Iterator[_Draft]:
    """Yield the topics of `exchanges.txt`, their lines unread."""
    draft: _Draft | None = None
    for where, line in read_lines(folder, "exchanges.txt"):
        head, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if head in ROLES:
            if draft:
                yield draft
            kind, _, weight = rest.partition(" ")
            if not weight.isdigit():
                raise ValueError(f"{where}: a topic begins with role, kind and weight: {head} name 6; found {line!r}")
            draft = _Draft(where, head, kind, int(weight), frozenset(), [])
        elif draft is None:
            raise ValueError(f"{where}: this line is before any topic: begin one with topic name 6")
        elif head == "about":
            draft.about = frozenset(rest.split())
        elif head in ("bot", "or", *FORM_OF):
            draft.lines.append((where, head, rest))
        else:
            known = ", ".join(["about", "bot", "or", *FORM_OF])
            raise ValueError(f"{where}: the lines of a topic begin with {known}; found {head!r}")
    if draft:
        yield draft


def _topic(draft: _Draft, categories: Mapping[str, Category]) -> Topic:
    """Parse the exchanges of a topic, and find the turn that decides each reply."""
    choices: dict[str, Choice] = {}
    steps: list[Step] = []
    for (where, head, text), (bot_where, bot_head, reply) in _pairs(draft):
        is_alternative = head == "or"
        if is_alternative:
            head, _, text = text.partition(" ")
        if head not in FORM_OF or bot_head != "bot" or (is_alternative and not steps):
            raise ValueError(f"{where}: an exchange is a line with user, then, ask, …, and one with bot")
        user = tuple(_wording(part.strip(), where, categories, choices) for part in text.split(" | "))
        bot = _wording(reply, bot_where, categories, choices)
        earlier = steps[:-1] if is_alternative else steps
        follows = head in ("then", "ellipsis")
        exchange = _with_gold(ExchangeTemplate(user, bot, FORM_OF[head], follows), earlier, where)
        steps[len(earlier) :] = [(*steps[len(earlier)], exchange) if is_alternative else (exchange,)]
    if not steps:
        raise ValueError(f"{draft.where}: this topic has no exchange: add lines that begin with user and bot")
    about = draft.about if choices else draft.about | {draft.where}
    return Topic(draft.role, draft.kind, draft.weight, about, tuple(steps), choices)


def _pairs(draft: _Draft) -> Iterator[tuple[tuple[str, str, str], tuple[str, str, str]]]:
    """Yield the lines of each exchange."""
    if len(draft.lines) % 2:
        raise ValueError(f"{draft.lines[-1][0]}: each turn of the user is followed by a line with bot")
    yield from zip(draft.lines[::2], draft.lines[1::2], strict=True)


def _wording(text: str, where: str, categories: Mapping[str, Category], choices: dict[str, Choice]) -> Wording:
    """Parse a wording, and add the choices of its slots."""
    literals, slots, begin = [], [], 0
    for match in SLOT.finditer(text):
        name, category, form, agrees = match.groups()
        if category not in categories:
            raise ValueError(f"{where}: no slot {category!r} in words.txt, which has: {', '.join(categories)}")
        found = categories[category]
        if (form or category) not in found.forms:
            raise ValueError(f"{where}: {category!r} has no form {form!r}, only: {', '.join(found.forms)}")
        if agrees and (agrees not in choices or len(choices[agrees].category.forms) != len(found.forms)):
            raise ValueError(f"{where}: {name!r} cannot agree with {agrees!r}: name a slot before it with equal forms")
        choices.setdefault(name, Choice(found, agrees or ""))
        is_first = SENTENCE_END.search(text[: match.start()]) is not None
        slots.append(Slot(name, found.forms.index(form) if form else 0, is_first))
        literals.append(text[begin : match.start()])
        begin = match.end()
    literals.append(text[begin:])
    if not text.endswith((".", "!", "?")) or any(mark in literal for literal in literals for mark in "{}|"):
        raise ValueError(f"{where}: a turn is sentences with slots such as {{name}} or {{name2}}; found {text!r}")
    return Wording(tuple(literals), tuple(slots))


def _with_gold(exchange: ExchangeTemplate, earlier: list[Step], where: str) -> ExchangeTemplate:
    """Return an exchange with the turn that decides its reply, which must be the only one that has the words."""
    lacking = {
        tuple(key for key in exchange.bot.keys if key[0] not in {name for name, _ in wording.keys})
        for wording in exchange.user
    }
    if len(lacking) > 1:
        raise ValueError(f"{where}: the wordings of a turn lack different slots of the reply: make two exchanges of it")
    (words,) = lacking
    if exchange.form in ("plain", "unknown"):
        if words:
            raise ValueError(f"{where}: the reply has {words[0][0]!r}, but the turn before it has not: use ask")
        repeated = tuple(key for key in exchange.bot.keys if all(key in wording.keys for wording in exchange.user))
        return replace(exchange, words=repeated)
    golds = []
    for number, step in enumerate(earlier):
        turns = [wording for option in step for wording in option.user], [option.bot for option in step]
        for side, wordings in enumerate(turns):
            counts = {len(set(words) & set(wording.keys)) for wording in wordings}
            if counts != {0}:
                golds.append((number, side))
            if words and counts not in ({0}, {len(words)}):
                raise ValueError(f"{where}: an earlier turn has only some words of the reply, or not in all wordings")
    if len(golds) != 1:
        raise ValueError(f"{where}: {len(golds)} earlier turns have the words of the reply, but one must decide it")
    ((number, side),) = golds
    distance = 2 * (len(earlier) - number) + 1 - side
    if distance > WINDOW:
        raise ValueError(f"{where}: the reply depends on a turn {distance} turns back, but the limit is {WINDOW}")
    return replace(exchange, gold=(number, side), words=words)
