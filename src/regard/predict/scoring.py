"""Score given pairs of source and target by teacher forcing: log-probability, perplexity and word alignment."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, islice
from typing import Any

from regard.data.corpus import Reader
from regard.data.phrasebook import phrases
from regard.predict.alignment import (
    NO_ATTENTION,
    AlignmentHead,
    Link,
    WordIndices,
    align_words,
    best_alignment_head,
)
from regard.predict.segments import tokenize_with_words
from regard.predict.translator import WINDOW_LINES, Translator
from regard.recipe import Corpus, PhrasebookCorpus, Recipe
from regard.score import Alignment
from regard.text import END

MAX_CHOICE_PAIRS = 400
"""Pairs that the alignment head is chosen by; more pairs hardly change the choice."""

MAX_PAIR_TOKENS = 4096
"""Tokens that each side of a pair may have: the attention weights of a pair take time and memory for each pair of its
tokens."""

TextPair = tuple[str, str]
"""A source line and a target line."""


@dataclass(frozen=True)
class ScoredTarget:
    """A given target with its log-probabilities and, if asked for, its word alignment."""

    source: str
    target: str
    tokens: tuple[str, ...]
    """The subwords of the target, and the end symbol."""
    token_logprobs: tuple[float, ...]
    """Log-probability of each token given the source and the tokens before it, in nats."""
    alignment: tuple[Link, ...] | None = None
    """Indices of aligned words; None if no alignment was asked for."""

    @property
    def logprob(self) -> float:
        """Log-probability of the target given the source."""
        return math.fsum(self.token_logprobs)

    @property
    def perplexity(self) -> float:
        """Perplexity per token."""
        return math.exp(-self.logprob / len(self.token_logprobs))

    def to_json(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        table: dict[str, Any] = {"source": self.source, "target": self.target}
        table |= {"logprob": self.logprob, "perplexity": self.perplexity}
        table |= {"tokens": list(self.tokens), "token_logprobs": list(self.token_logprobs)}
        if self.alignment is not None:
            table["alignment"] = [list(link) for link in self.alignment]
        return table


@dataclass(frozen=True)
class CorpusPerplexity:
    """Log-probability of the targets of a parallel corpus, and the counts to divide it by."""

    pairs: int = 0
    tokens: int = 0
    """Target tokens, the end symbol of each pair included."""
    characters: int = 0
    """Characters of the targets, an end for each pair included."""
    logprob: float = 0.0

    def plus(self, pair: ScoredTarget) -> "CorpusPerplexity":
        """Return the figures with one more pair."""
        return CorpusPerplexity(
            self.pairs + 1,
            self.tokens + len(pair.token_logprobs),
            self.characters + len(pair.target) + 1,
            self.logprob + pair.logprob,
        )

    def to_json(self) -> dict[str, float]:
        """Return the perplexity per token, which depends on the vocabulary, and bits per character, which do not."""
        return {
            "perplexity": math.exp(-self.logprob / max(1, self.tokens)),
            "bits_per_character": -self.logprob / math.log(2) / max(1, self.characters),
            "logprob": self.logprob,
            "pairs": self.pairs,
            "tokens": self.tokens,
        }


@dataclass(frozen=True)
class TokenizedPair:
    """The token ids of a pair, and the index of each token's word."""

    ids: tuple[list[int], list[int]]
    """Of the source and of the target, without start and end symbols."""
    words: tuple[WordIndices, WordIndices]


def tokenize_pair(translator: Translator, pair: TextPair, number: int = 1) -> TokenizedPair:
    """Tokenise a pair.

    Raises:
        ValueError: If a side has more than `MAX_PAIR_TOKENS` tokens, or more than the model has positions for; the
            message contains the number of the pair.
    """
    source, source_words = tokenize_with_words(pair[0], translator.tokenizers["source"])
    target, target_words = tokenize_with_words(pair[1], translator.tokenizers["target"], symbols=False)
    for side, ids, limit in (("source", source, translator.max_source), ("target", target, translator.max_target)):
        if len(ids) > MAX_PAIR_TOKENS < limit:
            raise ValueError(
                f"the {side} of pair {number} has {len(ids)} tokens, and a pair may have {MAX_PAIR_TOKENS} on each "
                "side; split it into sentences"
            )
        if len(ids) > limit:
            raise ValueError(
                f"the {side} of pair {number} has {len(ids)} tokens, but this model has only {limit} positions; "
                "shorten it"
            )
    return TokenizedPair((source, target), (source_words, target_words))


def score_pairs(translator: Translator, pairs: Iterable[TextPair], alignments: bool = False) -> Iterator[ScoredTarget]:
    """Score pairs of lines in order, in bounded memory.

    Args:
        translator: The model that scores.
        pairs: Sources and targets.
        alignments: Add word alignments, which is slower.

    Raises:
        ValueError: If alignments are asked for, but the model has no attention.
    """
    head = translator.alignment_head if alignments else None
    if alignments and head is None:
        raise ValueError(NO_ATTENTION)
    numbered = enumerate(pairs, start=1)
    while window := list(islice(numbered, WINDOW_LINES)):
        tokenized = [tokenize_pair(translator, pair, number) for number, pair in window]
        forced = translator.teacher_force([tokens.ids for tokens in tokenized], alignments)
        for (_, pair), tokens, result in zip(window, tokenized, forced, strict=True):
            pieces = tuple(map(translator.tokenizers["target"].piece, (*tokens.ids[1], END)))
            links = None if head is None else align_words(head.weights(result.attention), *tokens.words)
            yield ScoredTarget(*pair, pieces, result.logprobs, links)


def choose_alignment_head(
    translator: Translator, pairs: Sequence[TextPair], gold: Sequence[Alignment] | None = None
) -> AlignmentHead:
    """Return the attention head that aligns the words of these pairs best; see `best_alignment_head`."""
    if not pairs:
        raise ValueError("there are no pairs to choose an alignment head by; give at least one pair")
    tokenized = [tokenize_pair(translator, pair, number) for number, pair in enumerate(pairs, start=1)]
    forced = translator.teacher_force([tokens.ids for tokens in tokenized], attention=True)
    return best_alignment_head([pair.attention for pair in forced], [tokens.words for tokens in tokenized], gold)


def validated_alignment_head(translator: Translator, recipe: Recipe) -> AlignmentHead | None:
    """Choose the alignment head by the recipe's validation corpus; None for a model without attention."""
    if recipe.data.valid is None or translator.alignment_head is None:
        return translator.alignment_head
    pairs, gold = read_pairs(recipe.data.valid, recipe, MAX_CHOICE_PAIRS)
    tokenizers = translator.tokenizers["source"], translator.tokenizers["target"]
    # Attention weights of a pair far longer than all training data may need more memory than there is.
    fits = [
        all(len(tokenizer.encode(text)) <= recipe.data.longest for tokenizer, text in sides)
        for sides in (zip(tokenizers, pair, strict=True) for pair in pairs)
    ]
    if not any(fits):
        return translator.alignment_head
    return choose_alignment_head(
        translator, list(compress(pairs, fits)), None if gold is None else list(compress(gold, fits))
    )


def read_pairs(
    corpus: Corpus, recipe: Recipe, limit: int | None = None
) -> tuple[list[TextPair], list[Alignment] | None]:
    """Return the first pairs of a recipe's corpus, and their gold links if the corpus has them.

    The tag of the corpus is put before each source, as a word of its own.
    """
    tag = f"{corpus.tag} " if corpus.tag else ""
    if not isinstance(corpus, PhrasebookCorpus):
        records = Reader.of(recipe.data, ("source", "target"), recipe.seed).records(corpus)
        return [(tag + source, target) for source, target in islice(records, limit)], None
    pairs, gold = [], []
    for phrase in islice(phrases(corpus.to, corpus.split, corpus.pairs, recipe.seed), limit):
        pairs.append((tag + phrase.source, phrase.target))
        links = [((link.source + bool(tag), link.target), link.sure) for link in phrase.alignment]
        gold.append(Alignment(frozenset(link for link, sure in links if sure), frozenset(link for link, _ in links)))
    return pairs, gold
