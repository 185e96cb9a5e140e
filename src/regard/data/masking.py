"""Masking for masked language models (Devlin et al. 2019, §3.1): which tokens are predicted, and what is read instead.

Of each sequence a fixed number of tokens is chosen. Of these, 80 % are replaced by the mask symbol, 10 % by a random
token, and 10 % are kept. All choices are hashes of a key, the number of an example and the position of a token. So they
depend neither on the batch that an example is in nor on earlier batches, and equal keys give equal masks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.draws import UInt64s, random_bits
from regard.data.rows import Ids, Lengths, Numbers, Rows
from regard.nn.cross_entropy import IGNORED
from regard.text import JOINS, UNK, Tokenizer
from regard.text.settings import BYTE, RESERVED, SPACE

MASKED, RANDOM = 0.8, 0.1  # fractions of the chosen tokens; the rest is kept


class MaskedRows(NamedTuple):
    """Rows in which some tokens are replaced."""

    rows: Rows
    """What the model reads."""
    labels: Numbers
    """For each token that is predicted, the original one; `IGNORED` for all others."""


def masked_counts(lengths: Lengths, fraction: float) -> Numbers:
    """Return how many tokens of sequences of these lengths are predicted: the rounded fraction, at least one."""
    counts: Numbers = np.minimum(np.maximum(np.floor(fraction * lengths + 0.5), 1), lengths).astype(np.int64)
    return counts


@dataclass(frozen=True)
class Masking:
    """Masks tokens of one vocabulary."""

    tokenizer: Tokenizer
    """The vocabulary, which has the mask symbol."""
    mask: int
    """The id of the mask symbol."""
    whole_words: bool = False
    """Whether all tokens of a word are chosen together."""

    @cached_property
    def maskable(self) -> NDArray[np.bool_]:
        """Whether each token of the vocabulary may be chosen: all but the mask, start, end and padding."""
        allowed = np.ones(len(self.tokenizer), bool)
        allowed[: len(RESERVED)] = False
        allowed[[UNK, self.mask]] = True, False
        return allowed

    @cached_property
    def ordinary(self) -> Numbers:
        """The tokens that replace others at random: those that were learned, so neither symbols nor bytes."""
        symbols = {*RESERVED, *self.tokenizer.settings.unsplit}
        pieces = enumerate(map(self.tokenizer.piece, range(len(self.tokenizer))))
        return np.array([i for i, piece in pieces if piece not in symbols and not BYTE.fullmatch(piece)], np.int64)

    @cached_property
    def _edges(self) -> tuple[NDArray[np.int8], NDArray[np.int8], NDArray[np.bool_]]:
        """The class of the first and of the last character of each piece, and whether it is a space alone."""
        pieces = map(self.tokenizer.piece, range(len(self.tokenizer)))
        return *self.tokenizer.character_classes, np.array([not piece.strip(SPACE) for piece in pieces])

    def continues_word(self, before: Ids, after: Ids) -> NDArray[np.bool_]:
        """Return for tokens and the tokens after them whether the second continues the word of the first."""
        first, last, is_space = self._edges
        joins = np.array(JOINS)[last[before], first[after]]
        # A space that is a token of its own belongs to the word after it.
        joins |= is_space[before] & ~is_space[after]
        return np.asarray(joins)

    def apply(self, rows: Rows, counts: Numbers, key: Sequence[int], numbers: Numbers) -> MaskedRows:
        """Choose tokens of each row, and replace most of them.

        With whole words, words are chosen until the number of their tokens is closest to the count; at least one is.

        Args:
            rows: Sequences of tokens, start and end symbols included.
            counts: How many tokens of each row to choose.
            key: What all choices depend on.
            numbers: The number of each row, on which its own choices depend.
        """
        sequence = np.repeat(np.arange(len(rows)), rows.lengths)
        position = np.arange(rows.ids.size) - rows.offsets[sequence]
        ordering, kind, token = (
            random_bits(seed, numbers[sequence], position)
            for seed in np.random.SeedSequence(tuple(key)).generate_state(3, np.uint64)
        )
        chosen = self._choose(rows, counts, sequence, ordering)
        labels = np.full(rows.ids.size, IGNORED, np.int64)
        labels[chosen] = rows.ids[chosen]
        ids, share = rows.ids.copy(), kind[chosen] / 2.0**64
        ids[chosen[share < MASKED]] = self.mask
        changed = chosen[(share >= MASKED) & (share < MASKED + RANDOM)]
        if self.ordinary.size:
            ids[changed] = self.ordinary[token[changed] % np.uint64(self.ordinary.size)]
        return MaskedRows(Rows(ids, rows.offsets), labels)

    def _choose(self, rows: Rows, counts: Numbers, sequence: Numbers, ordering: UInt64s) -> Numbers:
        """Return the tokens that are chosen: the first words, or tokens, of each row in a random order."""
        maskable = self.maskable[rows.ids]
        candidates = np.flatnonzero(maskable)
        if not candidates.size:
            return candidates
        begins = np.ones(candidates.size, bool)
        if self.whole_words:
            after = candidates[candidates > 0]
            joined = self.continues_word(rows.ids[after - 1], rows.ids[after])
            joined &= maskable[after - 1] & (sequence[after - 1] == sequence[after])
            begins[candidates > 0] = ~joined
        first = candidates[begins]
        word = np.cumsum(begins) - 1
        sizes = np.bincount(word)
        order = np.lexsort((ordering[first], sequence[first]))
        before = np.cumsum(sizes[order]) - sizes[order]
        of_row = sequence[first][order]
        is_first = np.diff(of_row, prepend=-1) > 0
        before -= np.maximum.accumulate(np.where(is_first, before, 0))
        is_chosen = np.zeros(sizes.size, bool)
        is_chosen[order] = (before + sizes[order] / 2 <= counts[of_row]) | (is_first & (counts[of_row] > 0))
        chosen: Numbers = candidates[is_chosen[word]]
        return chosen
