"""Attention weights to word links: which word of a source became which word of its target.

One matrix of weights is read both ways. Each target word points at the source word it looked at most, each source word
at the target word that looked at it most, and the two sets of links are put together by grow-diag-final-and, which was
made to join the alignments of two directions (Koehn, Och & Marcu 2003; Koehn et al. 2005).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.score import Alignment, alignment_error_rate
from regard.translator.forced import Forced

Link = tuple[int, int]
"""A word of the source and one of the target, counted from 0."""
Words = Sequence[int | None]
"""For each token the number of its word, or None for a token that belongs to none, such as a language tag."""
Weights = NDArray[np.floating[Any]]

_AROUND = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


@dataclass(frozen=True)
class Look:
    """Which attention is read: a tap, one head of it or the mean of all, and at which step.

    A target token's row is the step at which it was told, or with `read` the next one, which had it as input (Chen et
    al. 2020, "Accurate Word Alignment Induction from Neural Machine Translation").
    """

    tap: str
    head: int | None = None
    read: bool = False
    reason: str = "default"
    """Why this one: by the error rate on gold links, by agreement of both directions, or for want of both."""
    aer: float | None = field(default=None, compare=False)
    """Its error rate on the gold links it was chosen by."""

    @classmethod
    def default(cls, taps: Sequence[str]) -> "Look | None":
        """The last layer but one, which often aligns best (Garg et al. 2019); none where there is no tap."""
        return cls(taps[max(0, len(taps) - 2)]) if taps else None

    @classmethod
    def from_scores(cls, scores: dict[str, Any], taps: Sequence[str]) -> "Look | None":
        """The one a run has chosen and written down, if the model has it; else the default."""
        found = scores.get("alignment")
        if isinstance(found, dict) and found.get("tap") in taps:
            return cls(**{name: found[name] for name in ("tap", "head", "read", "reason", "aer") if name in found})
        return cls.default(taps)

    def to_scores(self) -> dict[str, Any]:
        """What `scores.json` holds of it."""
        return asdict(self)

    def weights(self, forced: Forced) -> Weights:
        """The weights (target tokens, source tokens) of a pair, without its end symbols."""
        looked = forced.looks[self.tap]
        mine = looked.mean(0) if self.head is None else looked[self.head]
        rows: Weights = mine.double().numpy()
        return rows[1:, :-1] if self.read else rows[:-1, :-1]


def links(weights: Weights, source: Words, target: Words) -> tuple[Link, ...]:
    """The word links of one pair, from the weights of its tokens, in order."""
    if not weights.size:
        return ()
    words = by_word(weights, source, target)
    if not words.size:
        return ()
    return tuple(sorted(_grow(words)))


def choose(forced: Sequence[Forced], words: Sequence[tuple[Words, Words]], gold: Sequence[Alignment] | None) -> Look:
    """The attention whose links are best: by gold links where there are some, else by how well both ways agree.

    Every layer's mean over its heads is tried; against gold, then the heads of the best layer too. Without gold they
    are not, because a head that agrees with itself need not align.
    """
    if not forced[0].looks:
        raise ValueError("this model's decoder does not look at its source by weights, so it cannot align words")

    def judged(looks: Sequence[Look]) -> Look:
        if gold is None:
            agreed = [(_agreement([look.weights(each) for each in forced], words), look) for look in looks]
            return replace(max(agreed, key=itemgetter(0))[1], reason="agreement")
        rates = [(_error_rate(look, forced, words, gold), look) for look in looks]
        rate, best = min(rates, key=itemgetter(0))
        return replace(best, reason="gold links", aer=rate)

    best = judged([Look(tap, None, read) for tap in forced[0].looks for read in (False, True)])
    if gold is None:
        return best
    heads = range(forced[0].looks[best.tap].shape[0])
    return judged([best, *(Look(best.tap, head, read) for head in heads for read in (False, True))])


def _error_rate(
    look: Look, forced: Sequence[Forced], words: Sequence[tuple[Words, Words]], gold: Sequence[Alignment]
) -> float:
    found = [links(look.weights(each), *pair) for each, pair in zip(forced, words, strict=True)]
    return alignment_error_rate(found, gold).aer


def _agreement(made: Sequence[Weights], words: Sequence[tuple[Words, Words]]) -> float:
    """Mean over pairs of what both directions share of their links, times how sure the weights are."""
    total = 0.0
    for weights, (source, target) in zip(made, words, strict=True):
        table = by_word(weights, source, target)
        if table.size:
            forward, backward = _directions(table)
            total += len(forward & backward) / max(1, len(forward | backward)) * float(table.max(1).mean())
    return total / len(made)


def by_word(weights: Weights, source: Words, target: Words) -> Weights:
    """The weights (target words, source words): summed over the tokens looked at, the mean of those looking."""
    to_source, to_target = _members(source), _members(target)
    counts = np.maximum(to_target.sum(0), 1)[:, None]
    return np.asarray((to_target.T @ weights @ to_source) / counts)


def _members(words: Words) -> Weights:
    """A table (tokens, words) with a one where a token belongs to a word."""
    count = max((word + 1 for word in words if word is not None), default=0)
    table = np.zeros((len(words), count))
    for token, word in enumerate(words):
        if word is not None:
            table[token, word] = 1
    return table


def _directions(table: Weights) -> tuple[set[Link], set[Link]]:
    """Where each target word looked most, and which target word looked most at each source word."""
    share = table / np.maximum(table.sum(1, keepdims=True), 1e-12)
    # A word nobody looked at, such as a language tag, has no link.
    forward = {(int(source), target) for target, source in enumerate(table.argmax(1)) if table[target].any()}
    backward = {(source, int(target)) for source, target in enumerate(share.argmax(0)) if table[:, source].any()}
    return forward, backward


def _grow(table: Weights) -> set[Link]:
    """Grow-diag-final-and: from the links both ways agree on to neighbours, then to pairs of words that have none.

    Neighbours are taken in the order of the share that a link holds of all looks at its source word: the usual order,
    that of the sentence, lets a weak link take the place of a strong one.
    """
    forward, backward = _directions(table)
    union = forward | backward
    share = table / np.maximum(table.sum(0, keepdims=True), 1e-12)
    order = {link: (-float(share[link[1], link[0]]), link) for link in union}
    grown: set[Link] = set()
    sources: set[int] = set()
    targets: set[int] = set()
    waiting: list[tuple[float, Link]] = []

    def take(link: Link) -> None:
        grown.add(link)
        sources.add(link[0])
        targets.add(link[1])
        for beside in ((link[0] + down, link[1] + across) for down, across in _AROUND):
            if beside in union and beside not in grown:
                heappush(waiting, order[beside])

    for link in forward & backward:
        take(link)
    while waiting:
        _, link = heappop(waiting)
        if link not in grown and not (link[0] in sources and link[1] in targets):
            take(link)
    for _, link in sorted(order[link] for link in union - grown):
        if link[0] not in sources and link[1] not in targets:
            take(link)
    return grown
