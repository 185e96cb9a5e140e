"""Text translated while training and after it, and how good it is."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from unicodedata import category

import numpy as np
import torch

from regard.data.store import Store
from regard.models.seq2seq import Seq2Seq
from regard.recipe import Corpus, Recipe
from regard.score import Score, bleu, bleu_lowercase_tokenised, chrf, exact_match
from regard.text import Tokenizers
from regard.train.events import Sample
from regard.train.workers import Workers
from regard.translator import Translator

SHOWN = 3  # samples of a validation
SMALLEST = 16  # sentences with which a limited number begins
ROOM = 0.04  # of the time between two validations that translating may take


@dataclass(frozen=True)
class Judge:
    """What it takes to translate text and score it."""

    recipe: Recipe
    tokenizers: Tokenizers
    workers: Workers

    def translate(self, model: Seq2Seq, lines: Sequence[str], beam: int) -> list[str]:
        """Translate lines, each process its share; all of them, everywhere."""
        translator = Translator(model, self.tokenizers, self.recipe.decode, longest=self.recipe.data.longest)
        mine = lines[self.workers.rank :: self.workers.count]
        with torch.no_grad():
            texts = [each.text for each in translator.translate(mine, beam=beam)]
        return self.workers.dealt(texts)

    def scores(self, translations: Sequence[str], references: Sequence[str]) -> tuple[Score, ...]:
        """BLEU and chrF; of a model that writes lower case, both regardless of case."""
        lower = self.recipe.text.lowercase
        return bleu(translations, references, lowercase=lower), chrf(translations, references, lowercase=lower)

    def all_scores(self, translations: Sequence[str], references: Sequence[str]) -> tuple[Score, ...]:
        """Every score that is reported once, when training is over."""
        return (
            *self.scores(translations, references),
            bleu_lowercase_tokenised(translations, references),
            exact_match(translations, references, lowercase=self.recipe.text.lowercase),
        )


def some_text(store: Store, corpus: Corpus, count: int) -> tuple[list[str], list[str]]:
    """Sources, with their tag, and targets of so many pairs; always the same ones first."""
    order = np.random.default_rng(0).permutation(len(store)) if count < len(store) else np.arange(len(store))
    source, target = store.text(order[:count])
    return [f"{corpus.tag} {line}" if corpus.tag else line for line in source], target


def samples(source: Sequence[str], target: Sequence[str], translated: Sequence[str]) -> tuple[Sample, ...]:
    """A few of them, to look at."""
    some = list(zip(source, target, translated, strict=True))[:SHOWN]
    return tuple(Sample(*map(_visible, each)) for each in some)


def _visible(line: str) -> str:
    """A line without control characters, which a model that spells in bytes may say and a terminal would obey."""
    return "".join("\ufffd" if category(each) == "Cc" else each for each in line.replace("\t", " "))


def affordable(before: int, taken: float, between: float, all_of_them: int) -> int:
    """How many sentences to translate next: a power of two that costs little of the time between validations.

    `before` sentences took `taken` seconds the last time; nothing is known while that is 0.
    """
    if not before:
        return min(SMALLEST, all_of_them)
    pace = max(taken, 1e-6) / before
    number = before
    while number > 1 and number * pace > ROOM * between:
        number //= 2
    while number < all_of_them and 2 * number * pace <= ROOM * between:
        number *= 2
    return min(number, all_of_them)


def as_json(scores: Sequence[Score]) -> list[dict[str, Any]]:
    """Scores as plain JSON."""
    return [asdict(score) for score in scores]
