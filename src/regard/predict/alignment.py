"""Word alignments from cross-attention weights.

The weights are read in two directions: each target word is linked to the source word it attends to most, and each
source word to the target word that attends to it most. The two sets of links are combined by grow-diag-final-and, the
usual heuristic for the alignments of two directions (Koehn, Och & Marcu 2003; Koehn et al. 2005).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from operator import itemgetter
from types import NoneType
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from regard.score import Alignment, alignment_error_rate

Link = tuple[int, int]
"""Index of a source word and of a target word, counted from 0."""
WordIndices = Sequence[int | None]
"""Index of each token's word; None for a token that belongs to no word, such as a language tag."""
AttentionMatrix = NDArray[np.floating[Any]]
"""Weights of shape (target, source), of tokens or of words."""
CrossAttention = Mapping[str, Float[Tensor, "H T S"]]
"""Weights of one pair by tap, as in `TeacherForcedPair.attention`."""

NO_ATTENTION = "this model has no cross-attention, so it cannot align words; use a model with attention"

_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


@dataclass(frozen=True)
class AlignmentHead:
    """The attention head, or the mean of a layer's heads, that word alignments are read from."""

    tap: str
    """Tap of the layer's cross-attention weights, such as `decoder.layers.1.cross.weights`."""
    head: int | None = None
    """Index of the head; None is the mean over all heads."""
    shifted: bool = False
    """Read a target token's weights at the step that has it as input, instead of the step that predicts it (Chen et al.
    2020, "Accurate Word Alignment Induction from Neural Machine Translation")."""
    reason: str = "default"
    """How it was chosen: `gold links` by its error rate, `agreement` of both directions, or `default`."""
    aer: float | None = field(default=None, compare=False)
    """Its alignment error rate on the gold links it was chosen by."""

    @classmethod
    def default(cls, taps: Sequence[str]) -> "AlignmentHead | None":
        """Return the mean of the last layer but one, which often aligns best (Garg et al. 2019); None without taps."""
        return cls(taps[max(0, len(taps) - 2)]) if taps else None

    @classmethod
    def from_scores(cls, scores: dict[str, Any], taps: Sequence[str]) -> "AlignmentHead | None":
        """Return the head stored in `scores.json` if the model has its tap, else the default.

        Raises:
            ValueError: If the entry is not what `to_scores` writes.
        """
        stored = scores.get("alignment")
        if not isinstance(stored, dict) or stored.get("tap") not in taps:
            return cls.default(taps)
        kinds = {"head": (int, NoneType), "read": (bool,), "reason": (str,), "aer": (int, float, NoneType)}
        wrong = [key for key, kind in kinds.items() if key in stored and type(stored[key]) not in kind]
        if wrong or (stored.get("head") or 0) < 0:
            key = wrong[0] if wrong else "head"
            raise ValueError(
                f"scores.json has alignment.{key} = {stored[key]!r:.60}, which no attention head has; remove this "
                "entry, or choose the head again: regard align RUN --choose"
            )
        names = {"tap": "tap", "head": "head", "read": "shifted", "reason": "reason", "aer": "aer"}
        return cls(**{name: stored[key] for key, name in names.items() if key in stored})

    def to_scores(self) -> dict[str, Any]:
        """Return the entry of `scores.json`."""
        return {"tap": self.tap, "head": self.head, "read": self.shifted, "reason": self.reason, "aer": self.aer}

    def weights(self, attention: CrossAttention) -> AttentionMatrix:
        """Return the weights (target tokens, source tokens) of a pair, without its end symbols."""
        weights_HTS = attention[self.tap]
        if self.head is not None and self.head >= len(weights_HTS):
            raise ValueError(
                f"word alignments are to be read from head {self.head} of {self.tap}, which has {len(weights_HTS)} "
                "heads; correct alignment.head in scores.json, or choose again: regard align RUN --choose"
            )
        weights_TS = weights_HTS.mean(0) if self.head is None else weights_HTS[self.head]
        matrix: AttentionMatrix = weights_TS.double().numpy()
        return matrix[1:, :-1] if self.shifted else matrix[:-1, :-1]


def align_words(weights: AttentionMatrix, source: WordIndices, target: WordIndices) -> tuple[Link, ...]:
    """Return the word links of a pair, sorted, from the attention weights of its tokens.

    The pair may be a part of a long line, whose words have the indices of the line: the time depends on the part only.
    """
    if not weights.size:
        return ()
    source_words, target_words = _distinct(source), _distinct(target)
    words = word_weights(weights, _local(source, source_words), _local(target, target_words))
    links = _grow_diag_final_and(words) if words.size else ()
    return tuple(sorted((source_words[first], target_words[second]) for first, second in links))


def word_weights(weights: AttentionMatrix, source: WordIndices, target: WordIndices) -> AttentionMatrix:
    """Return weights of words from those of tokens: summed over source tokens, averaged over target tokens."""
    to_source, to_target = _membership(source), _membership(target)
    counts = np.maximum(to_target.sum(0), 1)[:, None]
    return np.asarray((to_target.T @ weights @ to_source) / counts)


def best_alignment_head(
    attention: Sequence[CrossAttention],
    words: Sequence[tuple[WordIndices, WordIndices]],
    gold: Sequence[Alignment] | None,
) -> AlignmentHead:
    """Return the head that aligns pairs best: by error rate on gold links, else by agreement of both directions.

    The mean over heads of every layer is tried; with gold links, the heads of the best layer too. Without gold links
    they are not, because a head whose two directions agree need not align words.

    Args:
        attention: Cross-attention weights of each pair.
        words: Word indices of the source and target tokens of each pair.
        gold: Gold links of each pair, if they are known.
    """
    if not attention[0]:
        raise ValueError(NO_ATTENTION)

    def best(heads: Sequence[AlignmentHead]) -> AlignmentHead:
        if gold is None:
            agreements = [(_agreement(_with_words(head, attention, words)), head) for head in heads]
            return replace(max(agreements, key=itemgetter(0))[1], reason="agreement")
        links = ((head, [align_words(*pair) for pair in _with_words(head, attention, words)]) for head in heads)
        rate, head = min(
            ((alignment_error_rate(aligned, gold).aer, head) for head, aligned in links), key=itemgetter(0)
        )
        return replace(head, reason="gold links", aer=rate)

    mean = best([AlignmentHead(tap, None, shifted) for tap in attention[0] for shifted in (False, True)])
    if gold is None:
        return mean
    heads = range(attention[0][mean.tap].shape[0])
    return best([mean, *(AlignmentHead(mean.tap, head, shifted) for head in heads for shifted in (False, True))])


def _with_words(
    head: AlignmentHead, attention: Sequence[CrossAttention], words: Sequence[tuple[WordIndices, WordIndices]]
) -> list[tuple[AttentionMatrix, WordIndices, WordIndices]]:
    """Return the weights of a head for each pair, with the word indices of the pair."""
    return [(head.weights(weights), *pair) for weights, pair in zip(attention, words, strict=True)]


def _agreement(pairs: Sequence[tuple[AttentionMatrix, WordIndices, WordIndices]]) -> float:
    """Return the mean over pairs of the share of links that both directions have, times the mean largest weight."""
    total = 0.0
    for pair in pairs:
        table = word_weights(*pair)
        if table.size:
            forward, backward = _directions(table)
            total += len(forward & backward) / max(1, len(forward | backward)) * float(table.max(1).mean())
    return total / len(pairs)


def _distinct(words: WordIndices) -> list[int]:
    """Return the words of some tokens, sorted."""
    return sorted({word for word in words if word is not None})


def _local(words: WordIndices, distinct: Sequence[int]) -> WordIndices:
    """Return the position of each token's word among the distinct ones."""
    position = {word: at for at, word in enumerate(distinct)}
    return [None if word is None else position[word] for word in words]


def _membership(words: WordIndices) -> AttentionMatrix:
    """Return a matrix (tokens, words) with a one where a token belongs to a word."""
    count = max((word + 1 for word in words if word is not None), default=0)
    table = np.zeros((len(words), count))
    for token, word in enumerate(words):
        if word is not None:
            table[token, word] = 1
    return table


def _directions(table: AttentionMatrix) -> tuple[set[Link], set[Link]]:
    """Return the links from each target word to a source word, and from each source word to a target word."""
    share = table / np.maximum(table.sum(1, keepdims=True), 1e-12)
    # A word without any weight, such as a language tag, has no link.
    forward = {(int(source), target) for target, source in enumerate(table.argmax(1)) if table[target].any()}
    backward = {(source, int(target)) for source, target in enumerate(share.argmax(0)) if table[:, source].any()}
    return forward, backward


def _grow_diag_final_and(table: AttentionMatrix) -> set[Link]:
    """Combine the links of both directions by grow-diag-final-and.

    Start from the links of both directions; add neighbouring links of either direction that have an unaligned word;
    then add links between two unaligned words. Neighbours are added in the order of their share of the weights on their
    source word. The usual order, that of the sentence, would let weak links displace strong ones.
    """
    forward, backward = _directions(table)
    union = forward | backward
    share = table / np.maximum(table.sum(0, keepdims=True), 1e-12)
    order = {link: (-float(share[link[1], link[0]]), link) for link in union}
    links: set[Link] = set()
    sources: set[int] = set()
    targets: set[int] = set()
    candidates: list[tuple[float, Link]] = []

    def add(link: Link) -> None:
        links.add(link)
        sources.add(link[0])
        targets.add(link[1])
        for neighbour in ((link[0] + down, link[1] + across) for down, across in _NEIGHBOURS):
            if neighbour in union and neighbour not in links:
                heappush(candidates, order[neighbour])

    for link in forward & backward:
        add(link)
    while candidates:
        _, link = heappop(candidates)
        if link not in links and not (link[0] in sources and link[1] in targets):
            add(link)
    for _, link in sorted(order[link] for link in union - links):
        if link[0] not in sources and link[1] not in targets:
            add(link)
    return links
