"""Given pairs instead of a search: how probable a model finds them, and which words it holds together."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from regard.data.corpus import read_pairs
from regard.data.phrasebook import Phrase, phrases
from regard.recipe import Corpus, PhrasebookCorpus, Recipe
from regard.score import Alignment
from regard.text import END
from regard.translator.alignment import Link, Look, Words, choose, links
from regard.translator.assembling import read
from regard.translator.forced import Forced
from regard.translator.translator import WINDOW, Translator

ENOUGH = 400
"""Pairs on which it is decided where alignments are read from; more change the choice little."""

Pair = tuple[str, str]


@dataclass(frozen=True)
class Given:
    """A pair as the model sees it."""

    source: str
    target: str
    tokens: tuple[str, ...]
    """The pieces of the target, and at last that of its end."""
    token_logprobs: tuple[float, ...]
    """The log-probability of each, given the source and those before it, in nats."""
    alignment: tuple[Link, ...] | None = None
    """Words that belong together, where that was asked for."""

    @property
    def logprob(self) -> float:
        """The log-probability of the target given the source."""
        return math.fsum(self.token_logprobs)

    @property
    def perplexity(self) -> float:
        """Between how many equally probable tokens the model hesitated, on average."""
        return math.exp(-self.logprob / len(self.token_logprobs))

    def to_json(self) -> dict[str, Any]:
        """All of it, as JSON holds it."""
        table: dict[str, Any] = {"source": self.source, "target": self.target}
        table |= {"logprob": self.logprob, "perplexity": self.perplexity}
        table |= {"tokens": list(self.tokens), "token_logprobs": list(self.token_logprobs)}
        if self.alignment is not None:
            table["alignment"] = [list(link) for link in self.alignment]
        return table


@dataclass(frozen=True)
class Total:
    """How probable a model finds a whole corpus."""

    pairs: int = 0
    tokens: int = 0
    """Target tokens, an end for each pair among them."""
    characters: int = 0
    """Characters of the targets, an end for each pair among them."""
    logprob: float = 0.0

    def plus(self, given: Given) -> "Total":
        """With one pair more."""
        return Total(
            self.pairs + 1,
            self.tokens + len(given.token_logprobs),
            self.characters + len(given.target) + 1,
            self.logprob + given.logprob,
        )

    @property
    def perplexity(self) -> float:
        """By token: comparable between models of one vocabulary."""
        return math.exp(-self.logprob / max(1, self.tokens))

    @property
    def bits_per_character(self) -> float:
        """Comparable between models of any vocabulary."""
        return -self.logprob / math.log(2) / max(1, self.characters)


def weigh(translator: Translator, pairs: Iterable[Pair], alignments: bool = False) -> Iterator[Given]:
    """What the model makes of pairs of lines, in their order, in bounded memory."""
    look = translator.aligned_by
    if alignments and look is None:
        raise ValueError("this model's decoder does not look at its source by weights, so it cannot align words")
    coming, before = iter(pairs), 0
    while window := list(islice(coming, WINDOW)):
        sides = [_read(translator, pair, before + number) for number, pair in enumerate(window, start=1)]
        before += len(window)
        forced = translator.force([(source[0], target[0]) for source, target in sides], alignments)
        for pair, (source, target), found in zip(window, sides, forced, strict=True):
            pieces = map(translator.tokenizers.target.piece, (*target[0], END))
            made = links(look.weights(found), source[1], target[1]) if alignments and look is not None else None
            yield Given(*pair, tuple(pieces), found.logprobs, made)


def choose_look(translator: Translator, pairs: Sequence[Pair], gold: Sequence[Alignment] | None = None) -> Look:
    """The attention whose word alignments of these pairs are best; see `alignment.choose`."""
    if not pairs:
        raise ValueError("no pairs to choose by; give at least one")
    sides = [_read(translator, pair, number) for number, pair in enumerate(pairs, start=1)]
    forced: list[Forced] = translator.force([(source[0], target[0]) for source, target in sides], looks=True)
    return choose(forced, [(source[1], target[1]) for source, target in sides], gold)


def pairs_of(corpus: Corpus, recipe: Recipe, most: int | None = None) -> tuple[list[Pair], list[Alignment] | None]:
    """The first pairs of a recipe's corpus, each source with its tag before it, and gold links where it has them."""
    tag = f"{corpus.tag} " if corpus.tag else ""
    if isinstance(corpus, PhrasebookCorpus):
        drawn = list(islice(phrases(corpus.to, corpus.split, corpus.pairs, recipe.seed), most))
        return [(tag + each.source, each.target) for each in drawn], [_gold(each, bool(tag)) for each in drawn]
    found = islice(read_pairs(corpus, Path(recipe.data.root), recipe.seed), most)
    return [(tag + pair.source, pair.target) for pair in found], None


def _gold(phrase: Phrase, shift: int) -> Alignment:
    """The links of a phrase, its source moved by so many words."""
    every = [((link.source + shift, link.target), link.sure) for link in phrase.alignment]
    return Alignment(frozenset(link for link, sure in every if sure), frozenset(link for link, _ in every))


def choose_look_for(translator: Translator, recipe: Recipe) -> Look | None:
    """Where alignments are best read from, judged on the recipe's validation text; none where that cannot be told."""
    if recipe.data.valid is None or translator.aligned_by is None:
        return translator.aligned_by
    return choose_look(translator, *pairs_of(recipe.data.valid, recipe, ENOUGH))


def _read(translator: Translator, pair: Pair, number: int) -> tuple[tuple[list[int], Words], tuple[list[int], Words]]:
    """Ids and words of both sides of a pair; one the model's positions cannot hold is refused by its number."""
    source = read(pair[0], translator.tokenizers.source)
    target = read(pair[1], translator.tokenizers.target, target=True)
    for side, (ids, _), most in (("source", source, translator.reads), ("target", target, translator.most)):
        if len(ids) > most:
            raise ValueError(f"the {side} of pair {number} has {len(ids)} tokens, and this model has {most} positions")
    return source, target
