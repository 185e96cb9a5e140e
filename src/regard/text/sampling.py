"""Reproducible subword sampling: BPE-dropout (Provilkov et al. 2020) and subword regularisation (Kudo 2018).

SentencePiece samples too, but its random generator cannot be seeded across processes, so a resumed run would not see
the same batches. Here a line is split at its spaces, which no piece crosses, and words are sampled one by one. Results
for short words are cached, so that common words cost one look-up.
"""

import heapq
import math
import re
from abc import ABC, abstractmethod
from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from random import Random

from regard.text.settings import SPACE, UNK

Draw = Callable[[], float]
"""Returns a random number in [0, 1)."""

Edges = tuple[list[float], list[tuple[int, tuple[int, ...]]]]
"""The cumulative weights of the pieces that end at one position, and for each piece its start and its ids."""

_CACHE = 1 << 17  # entries: words, or segmentations of one
_SHORT = 24  # characters of a word that is cached; longer ones rarely occur twice
_LONGEST = 512  # characters of a word; a longer one is split, so that time grows linearly with the line


class SubwordSampler(ABC):
    """Draws segmentations of normalised lines; a subclass segments one word."""

    def __init__(
        self, scores: Mapping[str, tuple[int, float]], symbols: Sequence[str], byte_ids: Sequence[int]
    ) -> None:
        """Store the vocabulary.

        Args:
            scores: The id and score of each ordinary piece and symbol.
            symbols: The pieces that are never split.
            byte_ids: The ids of the 256 bytes, or nothing if the vocabulary has no bytes.
        """
        self.scores, self.byte_ids = scores, byte_ids
        self.symbols = {symbol: scores[symbol][0] for symbol in symbols}
        whole = "|".join(re.escape(symbol) for symbol in sorted(symbols, key=len, reverse=True))
        plain = rf"(?!{whole})" if whole else ""
        # A model trained elsewhere may have pieces that cross a space. Then the whole line is one word.
        crossing = any(SPACE in piece.lstrip(SPACE) or piece.startswith(2 * SPACE) for piece in scores)
        word = f"(?:{plain}.){{1,{_LONGEST}}}" if crossing else f"{plain}.(?:{plain}[^{SPACE}]){{,{_LONGEST}}}"
        self.word = re.compile(f"{whole}|{word}" if whole else word, re.DOTALL)

    def sample(self, text: str, amount: float, random: Random) -> list[int]:
        """Return the ids of one random segmentation of a normalised line."""
        ids: list[int] = []
        for word in self.word.findall(text):
            symbol = self.symbols.get(word)
            ids += self.segment(word, amount, random.random) if symbol is None else (symbol,)
        if not self.byte_ids and UNK in ids:
            # As in encoding, neighbouring unknown characters are one unknown piece.
            ids = [number for at, number in enumerate(ids) if number != UNK or ids[at - 1 : at] != [UNK]]
        return ids

    @abstractmethod
    def segment(self, word: str, amount: float, draw: Draw) -> Sequence[int]:
        """Return the ids of one random segmentation of a word."""

    def ids(self, pieces: Sequence[str]) -> tuple[int, ...]:
        """Return the ids of the pieces of a word; a character without an id is spelled in bytes, or `<unk>`."""
        ids: list[int] = []
        for piece in pieces:
            if piece in self.scores:
                ids.append(self.scores[piece][0])
            else:
                ids += [self.byte_ids[byte] for byte in piece.encode()] if self.byte_ids else [UNK]
        return tuple(ids)


class DropoutSampler(SubwordSampler):
    """BPE-dropout: each merge is skipped with probability `amount` (Provilkov et al. 2020, algorithm 1).

    A skipped merge may still happen later: after each merge, all possible merges are drawn again. A word is finished
    when all of them are skipped. SentencePiece instead drops a merge for good, which gives shorter pieces.
    """

    def __init__(
        self, scores: Mapping[str, tuple[int, float]], symbols: Sequence[str], byte_ids: Sequence[int]
    ) -> None:
        """Store the vocabulary, and create a cache of common words."""
        super().__init__(scores, symbols, byte_ids)
        self.cached = lru_cache(_CACHE)(self._skipping)

    def segment(self, word: str, amount: float, draw: Draw) -> Sequence[int]:
        """Merge the characters, skipping merges at random."""
        if amount >= 1:
            return self.ids(word)
        if len(word) > _SHORT:
            return self.ids(self._merge(word, lambda _: draw() < amount)[0])
        # The number of merges made before the next skipped one has a geometric distribution. So the few merges that
        # are skipped can be drawn first, and they determine the segmentation, which can be cached under them. The word
        # is finished once the next skipped merge is after its last one.
        scale = 1 / math.log1p(-max(amount, 1e-15))  # a smaller amount would overflow, and no line is long enough
        skipped: tuple[int, ...] = ()
        at = -1
        while True:
            at += 1 + int(math.log(1 - draw()) * scale)
            ids, merges = self.cached(word, skipped)
            if at >= merges:
                return ids
            skipped += (at,)

    def _skipping(self, word: str, skipped: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
        """Return the ids of a word when the numbered merges are skipped, and how many merges were considered."""
        pieces, merges = self._merge(word, skipped.__contains__)
        return self.ids(pieces), merges

    def _merge(self, word: str, skip: Callable[[int], bool]) -> tuple[list[str], int]:
        """Merge neighbours, highest score first and leftmost among equals.

        Args:
            word: The word.
            skip: Called with a running number for each merge; whether to skip it.

        Returns:
            The pieces, and how many merges were considered.
        """
        pieces = list(word)
        after = list(range(1, len(pieces) + 1))
        before = list(range(-1, len(pieces) - 1))
        agenda: list[tuple[float, int, str]] = []

        def consider(left: int) -> None:
            """Put the merge of a piece with the next one on the agenda, if the vocabulary has it."""
            if left >= 0 and after[left] < len(pieces):
                merged = pieces[left] + pieces[after[left]]
                if merged in self.scores:
                    heapq.heappush(agenda, (-self.scores[merged][1], left, merged))

        for left in range(len(pieces)):
            consider(left)
        count = 0
        skipped: list[tuple[float, int, str]] = []
        while agenda:
            best = heapq.heappop(agenda)
            _, left, merged = best
            right = after[left]
            # Either piece may have been merged with another one meanwhile. Then this merge no longer exists.
            if not pieces[left] or right >= len(pieces) or pieces[left] + pieces[right] != merged:
                continue
            count += 1
            if skip(count - 1):
                skipped.append(best)
                continue
            pieces[left], pieces[right] = merged, ""
            after[left] = after[right]
            if after[right] < len(pieces):
                before[after[right]] = left
            consider(before[left])
            consider(left)
            for merge in skipped:
                heapq.heappush(agenda, merge)
            skipped.clear()
        return [piece for piece in pieces if piece], count


class UnigramSampler(SubwordSampler):
    """Subword regularisation: a segmentation is drawn in proportion to P(segmentation)^amount (Kudo 2018, §3.3, l = ∞).

    This is forward filtering and backward sampling on the lattice of all segmentations of a word.
    """

    _UNKNOWN = 10.0  # SentencePiece's penalty below the least likely piece, for a character without a piece

    def __init__(
        self, scores: Mapping[str, tuple[int, float]], symbols: Sequence[str], byte_ids: Sequence[int]
    ) -> None:
        """Store the vocabulary, and create a cache of the lattices of common words."""
        super().__init__(scores, symbols, byte_ids)
        self.longest = max(map(len, scores))
        self.floor = min(score for _, score in scores.values()) - self._UNKNOWN
        self.cached = lru_cache(_CACHE)(self._lattice)

    def segment(self, word: str, amount: float, draw: Draw) -> Sequence[int]:
        """Draw the pieces of a word from the last to the first."""
        lattice = (self.cached if len(word) <= _SHORT else self._lattice)(word, amount)
        drawn: list[tuple[int, ...]] = []
        end = len(word)
        while end:
            totals, edges = lattice[end]
            end, ids = edges[bisect(totals, draw() * totals[-1]) if len(edges) > 1 else 0]
            drawn.append(ids)
        return [number for ids in reversed(drawn) for number in ids]

    def _lattice(self, word: str, amount: float) -> list[Edges]:
        """Return for each position the pieces that end there, with the cumulative weight of what precedes them."""
        forward = [0.0]  # the logarithm of the summed weight of all segmentations up to each position
        lattice: list[Edges] = [([], [])]
        for end in range(1, len(word) + 1):
            edges: list[tuple[int, tuple[int, ...]]] = []
            weights: list[float] = []
            for start in range(max(0, end - self.longest), end):
                piece = word[start:end]
                known = self.scores.get(piece)
                if known is not None or start == end - 1:
                    edges.append((start, self.ids([piece])))
                    weights.append(forward[start] + amount * (self.floor if known is None else known[1]))
            largest = max(weights)
            totals = list(accumulate(math.exp(weight - largest) for weight in weights))
            forward.append(largest + math.log(totals[-1]))
            lattice.append((totals, edges))
        return lattice
