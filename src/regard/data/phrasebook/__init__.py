"""The phrasebook: English sentences with their German, French, Italian or Arabic, word by word.

In: a language, a split, a count and a seed. Out: `Phrase`s, each with gold word alignment and grammatical links.
The grammar is data: `rules.txt` and the lexicon beside it; `docs/phrasebook.md` tells how to add a word or a rule.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from regard.data.phrasebook.alignment import Aligner, Link, Relation
from regard.data.phrasebook.derivation import Chooser, Tree
from regard.data.phrasebook.grammar import Grammar, lines, load
from regard.data.phrasebook.realisation import Realiser
from regard.data.phrasebook.search import find
from regard.data.phrasebook.splits import SPLITS, Splitter, digest

__all__ = ["LANGUAGES", "SPLITS", "Link", "Phrase", "Relation", "lectures", "look_up", "phrases"]

LANGUAGES: tuple[str, ...] = ("de", "fr", "it", "ar")
PATIENCE = 200_000  # draws in a row without a new pair before we believe there is none


@dataclass(frozen=True, slots=True)
class Phrase:
    """An English sentence, its translation, and what belongs to what. Words are what spaces divide."""

    source: str
    target: str
    alignment: tuple[Link, ...]
    relations: tuple[Relation, ...]
    target_relations: tuple[Relation, ...]

    def pharaoh(self) -> str:
        """The alignment as `0-0 1-2 3p4`: a dash for sure links, a p for possible ones."""
        return " ".join(f"{link.source}{'-' if link.sure else 'p'}{link.target}" for link in self.alignment)


class Book:
    """One grammar with all that was prepared from it."""

    def __init__(self, grammar: Grammar) -> None:
        """Prepare to speak; nothing is drawn yet."""
        self.grammar = grammar
        self.chooser = Chooser(grammar)
        self.splitter = Splitter(grammar)
        self.speakers = {code: Realiser(language) for code, language in grammar.languages.items()}
        self.aligners = {code: Aligner(code) for code in LANGUAGES}

    def phrase(self, tree: Tree, to: str) -> Phrase:
        """Say one derivation in English and in another language."""
        source, target = self.speakers["en"].text(tree), self.speakers[to].text(tree)
        shared = self.aligners[to].pattern(tree.rule, source, target)
        return Phrase(
            " ".join(source.words),
            " ".join(target.words),
            shared.alignment,
            shared.relations,
            shared.target_relations,
        )

    def draw(self, to: str, split: str, count: int, seed: int) -> Iterator[Phrase]:
        """Distinct phrases of one split, as many as asked for."""
        withheld = lectures(to)
        sources, targets = {phrase.source for phrase in withheld}, {phrase.target for phrase in withheld}
        seen: set[bytes] = set()  # digests, so that a million sentences fit
        dice = random.Random(f"phrasebook {seed}").random
        misses = 0
        while len(seen) < count:
            if misses > PATIENCE:
                raise ValueError(
                    f"the split {split!r} ran dry after {len(seen)} of {count} phrases (to {to!r}); ask for fewer"
                )
            misses += 1
            tree = self.chooser.sentence(dice)
            if self.splitter.split(tree) != split:
                continue
            phrase = self.phrase(tree, to)
            mark = digest(phrase.source)
            if mark in seen or phrase.source in sources or phrase.target in targets:
                continue
            seen.add(mark)
            misses = 0
            yield phrase


@cache
def book() -> Book:
    """The phrasebook that comes with the package, read once."""
    return Book(load())


def phrases(to: str, split: str, count: int, seed: int = 0) -> Iterator[Phrase]:
    """`count` distinct phrases of a split, streaming; the same seed gives the same phrases on every machine."""
    known(to, LANGUAGES, "language")
    known(split, SPLITS, "split")
    if count < 0:
        raise ValueError(f"cannot draw {count} phrases; ask for 0 or more")
    return book().draw(to, split, count, seed)


def lectures(to: str) -> list[Phrase]:
    """The lectures' own example sentences; no split contains them or their translations."""
    known(to, LANGUAGES, "language")
    return list(lecture_phrases(to))


@cache
def lecture_phrases(to: str) -> tuple[Phrase, ...]:
    """The lectures' sentences, found in the grammar once."""
    found = []
    for where, sentence in lines(files("regard.data.phrasebook"), "lectures.txt"):
        phrase = look_up(sentence, to)
        if phrase is None:
            raise ValueError(
                f"{where}: the grammar does not make this sentence: {sentence!r}; add a word or a rule, or remove it"
            )
        found.append(phrase)
    return tuple(found)


def look_up(sentence: str, to: str) -> Phrase | None:
    """The phrase of an English sentence, or nothing where the grammar does not make it."""
    known(to, LANGUAGES, "language")
    tree = find(sentence, book().grammar)
    return book().phrase(tree, to) if tree else None


def known(name: str, names: tuple[str, ...], what: str) -> None:
    """Refuse a name that does not exist, naming those that do."""
    if name not in names:
        raise ValueError(f"the phrasebook has no {what} {name!r}; it has {', '.join(names)}")
