"""Divide the examples of one pool into batches, and the batches among processes.

Input: for each sequence of an example (source and target, say) its number of tokens, start and end symbols included.
Output: an order of the examples and the positions where it is cut, so that no batch has more tokens in any of its
sequences than the budget, and every step has the same number of batches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from regard.data.rows import Numbers, offsets_of

Order = Literal["random", "length"]
BISECTIONS = 6  # of the range of batch sizes: batches end up within a few per cent of each other


@dataclass(frozen=True)
class Shard:
    """Which batches of each step belong to this process: each process takes `accumulate` batches of every step."""

    rank: int = 0
    """Number of this process."""
    world: int = 1
    """World size: number of processes that train together."""
    accumulate: int = 1
    """Micro-batches per process and step."""

    def __post_init__(self) -> None:
        """Check that rank, world size and accumulation are possible."""
        if self.world < 1 or self.accumulate < 1:
            raise ValueError(f"world = {self.world} and accumulate = {self.accumulate} must be at least 1")
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank = {self.rank} is not one of {self.world} processes, numbered from 0")

    @property
    def parts(self) -> int:
        """Batches of one step over all processes."""
        return self.world * self.accumulate

    def batches(self, count: int) -> Numbers:
        """Return the numbers of this process's batches among the first `count`."""
        return np.arange(self.rank, count, self.world)


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """Batch i consists of the examples `order[cuts[i]:cuts[i + 1]]` of a pool."""

    order: Numbers
    cuts: Numbers

    def __len__(self) -> int:
        """Return the number of batches."""
        return self.cuts.size - 1

    def examples(self, batch: int) -> Numbers:
        """Return the indices, in the pool, of the examples of one batch."""
        return self.order[self.cuts[batch] : self.cuts[batch + 1]]

    def only(self, batches: Numbers) -> "BatchPlan":
        """Return a plan of these batches alone, in this order."""
        sizes = self.cuts[batches + 1] - self.cuts[batches]
        cuts = np.concatenate([[0], np.cumsum(sizes)])
        indices = np.arange(cuts[-1]) + np.repeat(self.cuts[batches] - cuts[:-1], sizes)
        return BatchPlan(self.order[indices], cuts)


def plan_pool(lengths: Sequence[Numbers], tokens: int, parts: int, order: Order, seed: tuple[int, ...]) -> BatchPlan:
    """Divide a pool into batches of at most `tokens` tokens, as many as make whole steps, and shuffle the steps.

    Args:
        lengths: For each sequence of an example, the number of tokens of each example.
        tokens: Maximum number of tokens in each sequence of a batch.
        parts: Batches per step.
        order: `random` keeps the order of the pool; `length` puts examples of similar length into one batch. Then the
            batches of one step have similar lengths too, so that no process waits long for another, and whole steps
            are shuffled.
        seed: Seed of the shuffle.
    """
    if order == "random":
        return BatchPlan(np.arange(lengths[0].size), even_cuts(lengths, tokens, parts))
    # Sorting by the longest sequence pads least on Multi30k from 4,096 tokens on (7 %; by source, then target, 9 %).
    # Examples come shuffled and the sort is stable, so batches of equally long examples differ in each epoch.
    # numpy sorts 16-bit numbers by radix, without comparing them.
    longest = np.maximum.reduce(list(lengths))
    indices = np.argsort(np.minimum(longest, 0xFFFF).astype(np.uint16), kind="stable")
    plan = BatchPlan(indices, even_cuts([counts[indices] for counts in lengths], tokens, parts))
    steps = np.random.default_rng(seed).permutation(len(plan) // parts)
    return plan.only((steps[:, None] * parts + np.arange(parts)).ravel())


def even_cuts(lengths: Sequence[Numbers], tokens: int, parts: int) -> Numbers:
    """Return cuts into as few batches as the budget allows and whole steps need, all of about the same size.

    Filling each batch completely would leave a small one at the end: a noisy step, and idle processes.
    """
    ends = [offsets_of(counts) for counts in lengths]
    cuts = cut(ends, tokens)
    examples = lengths[0].size
    batches = -(-(cuts.size - 1) // parts) * parts
    if batches > examples:
        raise ValueError(
            f"{examples} examples do not make {batches} batches of at most {tokens} tokens, which whole steps of "
            f"{parts} batches need: raise train.tokens, or use fewer processes or a smaller train.accumulate"
        )
    low = max(max(int(counts.max()) for counts in lengths), -(-max(int(end[-1]) for end in ends) // batches))
    high = tokens
    for _ in range(BISECTIONS):
        middle = (low + high) // 2
        tried = cut(ends, middle)
        if tried.size - 1 <= batches:
            cuts, high = tried, middle
        else:
            low = middle + 1
    return _split_largest(cuts, np.add.reduce(ends), batches)


def cut(ends: Sequence[Numbers], tokens: int) -> Numbers:
    """Fill each batch in turn until one more example would exceed the budget of one of its sequences.

    Args:
        ends: For each sequence, the cumulative number of tokens before each example, and the total.
        tokens: The budget; no single example exceeds it.
    """
    cuts = [0]
    last = ends[0].size - 1
    while (begin := cuts[-1]) < last:
        full = min(int(end.searchsorted(end[begin] + tokens, side="right")) for end in ends)
        cuts.append(full - 1)
    return np.array(cuts)


def _split_largest(cuts: Numbers, ends: Numbers, batches: int) -> Numbers:
    """Halve the batches with the most tokens until there are `batches` batches."""
    while (missing := batches - (cuts.size - 1)) > 0:
        sizes = np.where(np.diff(cuts) > 1, np.diff(ends[cuts]), 0)
        largest = np.argsort(-sizes, kind="stable")[:missing]
        largest = largest[sizes[largest] > 0]
        halves = (cuts[largest] + cuts[largest + 1]) // 2
        cuts = np.sort(np.concatenate([cuts, halves]))
    return cuts
