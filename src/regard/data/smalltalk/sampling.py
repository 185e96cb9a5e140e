"""Draws dialogues: topics, the order of their exchanges, wordings and words."""

from bisect import bisect
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from regard.data.generation import fraction
from regard.data.smalltalk.dialogue import Dialogue, Evidence, Form
from regard.data.smalltalk.grammar import WINDOW, ExchangeTemplate, Role, Topic, Value, Wording

LENGTHS = (2, 3, 3, 4, 4, 4, 4, 5, 5, 5, 6)
"""Exchanges of a dialogue; each of these is equally likely."""
OPENED, CLOSED = 0.5, 0.4  # share of dialogues with an opening and with a closing, if they are long enough
ASKED, TOLD = 0.65, 0.75  # bounds for a further part: a topic, a topic without its questions, otherwise a filler
VALID, TEST = 0.1, 0.2  # upper bounds of the hash: ten per cent each
TRIES = 1000  # draws of the words of a topic until its questions are in the split
VALUE_TRIES = 20
ORDER_TRIES = 10
SALT = "regard smalltalk"

Random = Callable[[], float]
"""`random.Random(seed).random`, the one method whose sequence of numbers Python guarantees not to change."""


class Said(NamedTuple):
    """An exchange with its words."""

    follows: bool
    user: str
    bot: str
    form: Form
    gold: tuple[int, int] | None
    """The exchange of its topic that decides the reply, and 0 or 1 for its turn; None for the last turn."""
    words: tuple[tuple[int, int], ...]
    reply_words: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Part:
    """The exchanges of one topic in a dialogue."""

    kind: str
    said: tuple[Said, ...]

    @property
    def blocks(self) -> list[list[int]]:
        """The numbers of the exchanges, those together that nothing may separate."""
        blocks: list[list[int]] = []
        for number, said in enumerate(self.said):
            if said.follows:
                blocks[-1].append(number)
            else:
                blocks.append([number])
        return blocks


class Pool:
    """Topics to choose from by their weights."""

    def __init__(self, topics: Sequence[Topic]) -> None:
        """Prepare the choice."""
        self.topics = topics
        self.bounds = list(accumulate(topic.weight for topic in topics))

    def choose(self, random: Random) -> Topic:
        """Return a random topic."""
        return self.topics[bisect(self.bounds, random() * self.bounds[-1])]


class DialogueSampler:
    """Draws dialogues of one split."""

    def __init__(self, topics: dict[Role, tuple[Topic, ...]], split: str) -> None:
        """Draw from the topics of each role."""
        self.split = split
        self.pools = {role: Pool(group) for role, group in topics.items()}
        self.told = Pool([topic.told() for topic in topics["topic"]])

    def draw(self, random: Random) -> Dialogue | None:
        """Return a random dialogue, or None if the words that were drawn first do not suit the split."""
        room = LENGTHS[int(random() * len(LENGTHS))]
        claimed: set[str] = set()
        main = self._part(self.pools["topic"], random, claimed, room)
        if main is None:
            return None
        room -= len(main.said)
        opening = closing = None
        if random() < OPENED:
            opening = self._part(self.pools["opening"], random, claimed, room)
            room -= len(opening.said) if opening else 0
        if random() < CLOSED:
            closing = self._part(self.pools["closing"], random, claimed, room)
            room -= len(closing.said) if closing else 0
        parts = [main]
        while room > 0:
            kind = random()
            pool = self.pools["topic"] if kind < ASKED else self.told if kind < TOLD else self.pools["filler"]
            part = self._part(pool, random, claimed, room) or self._part(self.pools["filler"], random, claimed, room)
            if part is None:
                break
            parts.append(part)
            room -= len(part.said)
        return _dialogue(opening, parts, closing, random)

    def _part(self, pool: Pool, random: Random, claimed: set[str], room: int) -> Part | None:
        """Draw a topic and its words, and claim what it is about; return None if it does not fit."""
        topic = pool.choose(random)
        if not 0 < len(topic.steps) <= room or not topic.about.isdisjoint(claimed):
            return None
        for _ in range(TRIES):
            exchanges = [step[int(random() * len(step))] for step in topic.steps]
            wordings = [exchange.user[int(random() * len(exchange.user))] for exchange in exchanges]
            drawn = _values(topic, random, claimed)
            if drawn is None:
                return None
            values, words = drawn
            said = self._say(exchanges, wordings, values)
            if said is not None:
                claimed |= topic.about | words
                return Part(topic.kind, said)
        return None

    def _say(
        self, exchanges: Sequence[ExchangeTemplate], wordings: Sequence[Wording], values: dict[str, Value]
    ) -> tuple[Said, ...] | None:
        """Return exchanges with their words, or None if one of the questions is not in the split."""
        texts: list[tuple[str, str]] = []
        result: list[Said] = []
        for number, (exchange, wording) in enumerate(zip(exchanges, wordings, strict=True)):
            texts.append((wording.fill(values), exchange.bot.fill(values)))
            if exchange.gold is None:
                source = wording
            else:
                place, side = exchange.gold
                source = exchanges[place].bot if side else wordings[place]
                # What an ellipsis asks depends on the question before it too.
                needed = texts[number - 1][0] if exchange.form == "ellipsis" else ""
                if split_of(texts[number][0], texts[place][side], needed) != self.split:
                    return None
            spans = source.spans(values, exchange.words), exchange.bot.spans(values, exchange.words)
            result.append(Said(exchange.follows, *texts[number], exchange.form, exchange.gold, *spans))
        return tuple(result)


def split_of(question: str, gold: str, before: str = "") -> str:
    """Return the split of a question with the turns that it depends on."""
    value = fraction(f"{question}|{gold}|{before}", SALT)
    return "valid" if value < VALID else "test" if value < TEST else "train"


def _values(topic: Topic, random: Random, claimed: Set[str]) -> tuple[dict[str, Value], set[str]] | None:
    """Draw a value for each slot of a topic, and return them with the words they claim, or None if none are left."""
    values: dict[str, Value] = {}
    words: set[str] = set()
    for name, choice in topic.choices.items():
        candidates = choice.category.values
        for _ in range(VALUE_TRIES):
            value = candidates[int(random() * len(candidates))]
            claims = choice.category.claims[value]
            if choice.agrees:
                if value[1:] != values[choice.agrees][1:]:
                    continue
                claims = claims[:1]
            if claimed.isdisjoint(claims) and words.isdisjoint(claims):
                break
        else:
            return None
        values[name] = value
        words.update(claims)
    return values, words


def _dialogue(opening: Part | None, parts: list[Part], closing: Part | None, random: Random) -> Dialogue:
    """Put the exchanges of the parts into an order, and return them as a dialogue."""
    first, last = [opening] if opening else [], [closing] if closing else []
    order = [
        *((part, number) for part in first for number in range(len(part.said))),
        *_order(parts, random),
        *((part, number) for part in last for number in range(len(part.said))),
    ]
    places = {(id(part), number): place for place, (part, number) in enumerate(order)}
    turns: list[str] = []
    evidence: list[Evidence | None] = []
    for part, number in order:
        said = part.said[number]
        turn = len(turns) if said.gold is None else 2 * places[id(part), said.gold[0]] + said.gold[1]
        turns += said.user, said.bot
        evidence += None, Evidence(part.kind, turn, said.words, said.reply_words, said.form)
    return Dialogue(tuple(turns), tuple(evidence))


def _order(parts: list[Part], random: Random) -> list[tuple[Part, int]]:
    """Return the exchanges of all parts in a random order, no reply too far from the turn that decides it."""
    for _ in range(ORDER_TRIES):
        waiting = [(part, part.blocks) for part in parts]
        order: list[tuple[Part, int]] = []
        while waiting:
            chosen = int(random() * len(waiting))
            if order and waiting[chosen][0] is order[-1][0]:
                chosen = int(random() * len(waiting))  # so that topics often alternate
            part, blocks = waiting[chosen]
            order += ((part, number) for number in blocks.pop(0))
            if not blocks:
                del waiting[chosen]
        if len(parts) == 1 or _is_near(order):
            return order
    return [(part, number) for part in parts for number in range(len(part.said))]


def _is_near(order: list[tuple[Part, int]]) -> bool:
    """Return whether no reply depends on a turn further back than the window."""
    places = {(id(part), number): place for place, (part, number) in enumerate(order)}
    for place, (part, number) in enumerate(order):
        gold = part.said[number].gold
        if gold is not None and 2 * (place - places[id(part), gold[0]]) + 1 - gold[1] > WINDOW:
            return False
    return True
