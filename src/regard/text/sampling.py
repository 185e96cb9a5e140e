"""Subword sampling that can be repeated: BPE-dropout (Provilkov et al. 2020) and unigram sampling (Kudo 2018).

SentencePiece samples too, but from generators that no seed repeats in another process, so a run could not be resumed to
the same batches. Here a line is cut at its spaces, which no piece crosses, and words are sampled one by one; what is
known about a word is remembered, so that common words cost a look-up.
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
"""A random number in [0, 1)."""

Choice = tuple[list[float], list[tuple[int, tuple[int, ...]]]]
"""Running sums of weights, and for each where its piece starts and the piece's ids."""

_REMEMBERED = 1 << 17  # words, or ways to cut one
_SHORT = 24  # characters of a word that is worth remembering; longer ones rarely come twice
_LONGEST = 512  # characters taken at once: a forced cut beyond, so that time grows linearly with a line


class Sampler(ABC):
    """Draws segmentations of normalised lines; a subclass says how one word is cut."""

    def __init__(
        self, scores: Mapping[str, tuple[int, float]], symbols: Sequence[str], bytewise: Sequence[int]
    ) -> None:
        """Take each ordinary piece's id and score, the symbols, and the ids of the 256 bytes if there are any."""
        self.scores, self.bytewise = scores, bytewise
        self.symbols = {symbol: scores[symbol][0] for symbol in symbols}
        whole = "|".join(re.escape(symbol) for symbol in sorted(symbols, key=len, reverse=True))
        plain = rf"(?!{whole})" if whole else ""
        # A model trained elsewhere may have pieces that cross a space: then a line is one word.
        crossing = any(SPACE in piece.lstrip(SPACE) or piece.startswith(2 * SPACE) for piece in scores)
        word = f"(?:{plain}.){{1,{_LONGEST}}}" if crossing else f"{plain}.(?:{plain}[^{SPACE}]){{,{_LONGEST}}}"
        self.word = re.compile(f"{whole}|{word}" if whole else word, re.DOTALL)

    def sample(self, text: str, amount: float, random: Random) -> list[int]:
        """The ids of one random segmentation of a normalised line."""
        found: list[int] = []
        for word in self.word.findall(text):
            symbol = self.symbols.get(word)
            found += self.cut(word, amount, random.random) if symbol is None else (symbol,)
        if not self.bytewise and UNK in found:
            # As in encoding, neighbouring unknown characters are one unknown piece.
            found = [number for at, number in enumerate(found) if number != UNK or found[at - 1 : at] != [UNK]]
        return found

    @abstractmethod
    def cut(self, word: str, amount: float, draw: Draw) -> Sequence[int]:
        """The ids of one random segmentation of a word."""

    def ids(self, pieces: Sequence[str]) -> tuple[int, ...]:
        """The ids of a word's pieces; a character without one is spelled in bytes, or unknown."""
        found: list[int] = []
        for piece in pieces:
            if piece in self.scores:
                found.append(self.scores[piece][0])
            else:
                found += [self.bytewise[byte] for byte in piece.encode()] if self.bytewise else [UNK]
        return tuple(found)


class DropoutSampler(Sampler):
    """BPE where each merge is passed over with probability `amount` (Provilkov et al. 2020, algorithm 1).

    A merge passed over may come back: after each merge made, the dice are thrown anew for all that are possible. Where
    every one of them is passed over, the word is done. (SentencePiece drops a merge for good, which cuts finer.)
    """

    def __init__(
        self, scores: Mapping[str, tuple[int, float]], symbols: Sequence[str], bytewise: Sequence[int]
    ) -> None:
        """As every sampler, and remember runs of common words."""
        super().__init__(scores, symbols, bytewise)
        self.remembered = lru_cache(_REMEMBERED)(self._run)

    def cut(self, word: str, amount: float, draw: Draw) -> Sequence[int]:
        """Merge the characters, dropping merges at random."""
        if amount >= 1:
            return self.ids(word)
        if len(word) > _SHORT:
            return self.ids(self._merge(word, lambda _: draw() < amount)[0])
        # The number of merges kept before the next one dropped is geometric; a word is settled once that lies past its
        # last merge. So a run is told by the few merges it dropped, and can be looked up.
        scale = 1 / math.log1p(-max(amount, 1e-15))  # less would overflow, and no line is long enough to tell
        dropped: tuple[int, ...] = ()
        at = -1
        while True:
            at += 1 + int(math.log(1 - draw()) * scale)
            ids, merges = self.remembered(word, dropped)
            if at >= merges:
                return ids
            dropped += (at,)

    def _run(self, word: str, dropped: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
        """The ids of a word when the numbered merges are dropped, and how many merges came up."""
        pieces, merges = self._merge(word, dropped.__contains__)
        return self.ids(pieces), merges

    def _merge(self, word: str, drop: Callable[[int], bool]) -> tuple[list[str], int]:
        """Merge neighbours, best score first, leftmost among equals; `drop` is asked each time, by a running number."""
        pieces = list(word)
        after = list(range(1, len(pieces) + 1))
        before = list(range(-1, len(pieces) - 1))
        agenda: list[tuple[float, int, str]] = []

        def offer(left: int) -> None:
            """Note the merge of a piece with the next one, if it is one."""
            if left >= 0 and after[left] < len(pieces):
                merged = pieces[left] + pieces[after[left]]
                if merged in self.scores:
                    heapq.heappush(agenda, (-self.scores[merged][1], left, merged))

        for left in range(len(pieces)):
            offer(left)
        count = 0
        passed: list[tuple[float, int, str]] = []
        while agenda:
            best = heapq.heappop(agenda)
            _, left, merged = best
            right = after[left]
            # One of the two has been merged with another meanwhile, so that this merge is no longer there.
            if not pieces[left] or right >= len(pieces) or pieces[left] + pieces[right] != merged:
                continue
            count += 1
            if drop(count - 1):
                passed.append(best)
                continue
            pieces[left], pieces[right] = merged, ""
            after[left] = after[right]
            if after[right] < len(pieces):
                before[after[right]] = left
            offer(before[left])
            offer(left)
            for each in passed:
                heapq.heappush(agenda, each)
            passed.clear()
        return [piece for piece in pieces if piece], count


class UnigramSampler(Sampler):
    """A segmentation with probability in proportion to P(segmentation)^amount (Kudo 2018, §3.3, with l = ∞)."""

    _UNKNOWN = 10.0  # SentencePiece's penalty below the least likely piece, for a character that is none

    def __init__(
        self, scores: Mapping[str, tuple[int, float]], symbols: Sequence[str], bytewise: Sequence[int]
    ) -> None:
        """As every sampler, and remember the lattices of common words."""
        super().__init__(scores, symbols, bytewise)
        self.longest = max(map(len, scores))
        self.floor = min(score for _, score in scores.values()) - self._UNKNOWN
        self.remembered = lru_cache(_REMEMBERED)(self._lattice)

    def cut(self, word: str, amount: float, draw: Draw) -> Sequence[int]:
        """Sum over all segmentations forwards, then draw one backwards."""
        lattice = (self.remembered if len(word) <= _SHORT else self._lattice)(word, amount)
        chosen: list[tuple[int, ...]] = []
        end = len(word)
        while end:
            totals, choices = lattice[end]
            end, ids = choices[bisect(totals, draw() * totals[-1]) if len(choices) > 1 else 0]
            chosen.append(ids)
        return [number for ids in reversed(chosen) for number in ids]

    def _lattice(self, word: str, amount: float) -> list[Choice]:
        """For each end, the last pieces possible there, and the running sum of their weights."""
        forward = [0.0]  # log of the summed weight of all segmentations up to here
        lattice: list[Choice] = [([], [])]
        for end in range(1, len(word) + 1):
            choices: list[tuple[int, tuple[int, ...]]] = []
            weights: list[float] = []
            for start in range(max(0, end - self.longest), end):
                piece = word[start:end]
                known = self.scores.get(piece)
                if known is not None or start == end - 1:
                    choices.append((start, self.ids([piece])))
                    weights.append(forward[start] + amount * (self.floor if known is None else known[1]))
            most = max(weights)
            totals = list(accumulate(math.exp(weight - most) for weight in weights))
            forward.append(most + math.log(totals[-1]))
            lattice.append((totals, choices))
        return lattice
