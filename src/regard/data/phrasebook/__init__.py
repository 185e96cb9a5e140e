"""The phrasebook: generated English sentences with their German, French, Italian or Arabic translations.

Each sentence pair comes with its gold word alignment and its grammatical relations. The grammar is data: `rules.txt`
and the lexicon next to it; `docs/phrasebook.md` explains how to add a word or a rule.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TypeVar

from regard.data.generation import draw_distinct, read_lines
from regard.data.phrasebook.alignment import Aligner, Link, Relation
from regard.data.phrasebook.derivation import Derivation, DerivationSampler
from regard.data.phrasebook.grammar import Grammar, load
from regard.data.phrasebook.realisation import Realiser
from regard.data.phrasebook.search import find
from regard.data.phrasebook.splits import SPLITS, Splitter
from regard.data.phrasebook.tags import PartsOfSpeech, TaggedPhrase

__all__ = [
    "LANGUAGES",
    "SPLITS",
    "Link",
    "Phrase",
    "Relation",
    "TaggedPhrase",
    "lectures",
    "look_up",
    "look_up_tags",
    "phrases",
    "tagged_sentences",
]

LANGUAGES: tuple[str, ...] = ("de", "fr", "it", "ar")
T = TypeVar("T")
PATIENCE = 200_000  # consecutive draws without a new pair after which a split counts as exhausted


@dataclass(frozen=True, slots=True)
class Phrase:
    """An English sentence, its translation, and the links between and inside them.

    Words are separated by spaces; all links are between word indices.

    Attributes:
        source: The English sentence.
        target: The translation.
        alignment: The links between source words and target words.
        relations: The grammatical relations between source words.
        target_relations: The grammatical relations between target words.
    """

    source: str
    target: str
    alignment: tuple[Link, ...]
    relations: tuple[Relation, ...]
    target_relations: tuple[Relation, ...]

    def pharaoh(self) -> str:
        """Return the alignment as `0-0 1-2 3p4`, with a dash for sure links and a p for possible ones."""
        return " ".join(f"{link.source}{'-' if link.sure else 'p'}{link.target}" for link in self.alignment)


class Phrasebook:
    """A grammar with everything that generates sentence pairs from it."""

    def __init__(self, grammar: Grammar) -> None:
        """Prepare a sampler, the splits, and a realiser and an aligner for each language."""
        self.grammar = grammar
        self.sampler = DerivationSampler(grammar)
        self.splitter = Splitter(grammar)
        self.realisers = {code: Realiser(language) for code, language in grammar.languages.items()}
        self.aligners = {code: Aligner(code) for code in LANGUAGES}
        self.parts_of_speech: dict[str, PartsOfSpeech] = {}

    def phrase(self, derivation: Derivation, to: str) -> Phrase:
        """Realise a derivation in English and in another language."""
        source, target = self.realisers["en"].sentence(derivation), self.realisers[to].sentence(derivation)
        pattern = self.aligners[to].pattern(derivation.rule, source, target)
        return Phrase(
            " ".join(source.words),
            " ".join(target.words),
            pattern.alignment,
            pattern.relations,
            pattern.target_relations,
        )

    def draw(self, to: str, split: str, count: int, seed: int) -> Iterator[Phrase]:
        """Yield `count` distinct phrases of a split."""
        withheld = lectures(to)
        sources, targets = {phrase.source for phrase in withheld}, {phrase.target for phrase in withheld}

        def realise(derivation: Derivation) -> tuple[str, Phrase] | None:
            phrase = self.phrase(derivation, to)
            return None if phrase.source in sources or phrase.target in targets else (phrase.source, phrase)

        return self._draw_distinct(realise, to, split, count, seed)

    def draw_tagged(self, language: str, split: str, count: int, seed: int) -> Iterator[TaggedPhrase]:
        """Yield `count` distinct tagged sentences of a split."""
        withheld = {phrase.source for phrase in lectures(LANGUAGES[0])}

        def realise(derivation: Derivation) -> tuple[str, TaggedPhrase] | None:
            if " ".join(self.realisers["en"].sentence(derivation).words) in withheld:
                return None
            sentence = self.tagged(derivation, language)
            return " ".join(sentence.words), sentence

        return self._draw_distinct(realise, language, split, count, seed)

    def tagged(self, derivation: Derivation, language: str) -> TaggedPhrase:
        """Realise a derivation in one language, with the part of speech of each word."""
        if language not in self.parts_of_speech:
            self.parts_of_speech[language] = PartsOfSpeech(self.realisers[language])
        return self.parts_of_speech[language].sentence(derivation)

    def _draw_distinct(
        self, realise: Callable[[Derivation], tuple[str, T] | None], language: str, split: str, count: int, seed: int
    ) -> Iterator[T]:
        """Return what `realise` returns with distinct texts, for derivations of a split."""
        random_number = random.Random(f"phrasebook {seed}").random

        def draw() -> tuple[str, T] | None:
            derivation = self.sampler.sentence(random_number)
            return realise(derivation) if self.splitter.split(derivation) == split else None

        return draw_distinct(draw, split, count, f"phrases to {language!r}", PATIENCE)


@cache
def default_phrasebook() -> Phrasebook:
    """Return the phrasebook of the package, which is read once."""
    return Phrasebook(load())


def phrases(to: str, split: str, count: int, seed: int = 0) -> Iterator[Phrase]:
    """Yield distinct phrases of a split; the same seed gives the same phrases on every machine.

    Args:
        to: The language of the translations, one of `LANGUAGES`.
        split: One of `SPLITS`.
        count: The number of phrases.
        seed: The seed of the random draws.

    Example:
        >>> next(phrases("de", "train", count=1)).target
    """
    _check_name(to, LANGUAGES, "language")
    _check_name(split, SPLITS, "split")
    if count < 0:
        raise ValueError(f"cannot draw {count} phrases: ask for 0 or more")
    return default_phrasebook().draw(to, split, count, seed)


def tagged_sentences(language: str, split: str, count: int, seed: int = 0) -> Iterator[TaggedPhrase]:
    """Yield distinct sentences of a split in one language, with the part of speech of each word.

    Punctuation marks are words of their own. The tags are those of Universal Dependencies; `tags.txt` lists them.

    Args:
        language: `en` or one of `LANGUAGES`.
        split: One of `SPLITS`, which contain the same sentences as those of `phrases`.
        count: The number of sentences.
        seed: The seed of the random draws.

    Example:
        >>> next(tagged_sentences("en", "train", count=1)).tags
    """
    _check_name(language, ("en", *LANGUAGES), "language")
    _check_name(split, SPLITS, "split")
    if count < 0:
        raise ValueError(f"cannot draw {count} sentences: ask for 0 or more")
    return default_phrasebook().draw_tagged(language, split, count, seed)


def lectures(to: str) -> list[Phrase]:
    """Return the example sentences of the lectures; no split contains them or their translations."""
    _check_name(to, LANGUAGES, "language")
    return list(_lecture_phrases(to))


def look_up(sentence: str, to: str) -> Phrase | None:
    """Return the phrase of an English sentence, or None if the grammar cannot derive the sentence."""
    _check_name(to, LANGUAGES, "language")
    derivation = find(sentence, default_phrasebook().grammar)
    return default_phrasebook().phrase(derivation, to) if derivation else None


def look_up_tags(sentence: str, language: str = "en") -> TaggedPhrase | None:
    """Return the tagged translation of an English sentence, or None if the grammar cannot derive the sentence."""
    _check_name(language, ("en", *LANGUAGES), "language")
    derivation = find(sentence, default_phrasebook().grammar)
    return default_phrasebook().tagged(derivation, language) if derivation else None


@cache
def _lecture_phrases(to: str) -> tuple[Phrase, ...]:
    lecture_phrases = []
    for where, sentence in read_lines(files("regard.data.phrasebook"), "lectures.txt"):
        phrase = look_up(sentence, to)
        if phrase is None:
            raise ValueError(
                f"{where}: the grammar cannot derive the sentence {sentence!r}: add a word or a rule, or remove it"
            )
        lecture_phrases.append(phrase)
    return tuple(lecture_phrases)


def _check_name(name: str, names: tuple[str, ...], what: str) -> None:
    if name not in names:
        raise ValueError(f"the phrasebook has no {what} {name!r}: choose one of {', '.join(names)}")
