"""How the examples of one pool are cut into batches, and which process takes which of them.

Comes in: the lengths of both sides, reserved symbols included. Goes out: an order of the examples and the places where
it is cut, so that no batch holds more tokens of either side than the budget and every step has all its parts.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from regard.data.order import Numbers

Order = Literal["random", "length"]
EVEN = 6  # halvings of the range a batch's size is sought in: batches end up within a few per cent of equal


@dataclass(frozen=True)
class Shard:
    """Which batches of each step are ours: a step has one part for each process and each accumulated batch."""

    rank: int = 0
    """Number of this process."""
    world: int = 1
    """Processes that learn together."""
    accumulate: int = 1
    """Batches each process takes before the weights move."""

    def __post_init__(self) -> None:
        """Refuse what no process can be."""
        if self.world < 1 or self.accumulate < 1:
            raise ValueError(f"world = {self.world} and accumulate = {self.accumulate} must be at least 1")
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank = {self.rank} is not one of {self.world} processes, numbered from 0")

    @property
    def parts(self) -> int:
        """Batches of a step, over all processes."""
        return self.world * self.accumulate

    def batches(self, count: int) -> Numbers:
        """Our numbers among so many batches, step by step."""
        return np.arange(self.rank, count, self.world)


@dataclass(frozen=True, eq=False)
class Plan:
    """Batch i holds the examples `order[cuts[i]:cuts[i + 1]]` of a pool."""

    order: Numbers
    cuts: Numbers

    def __len__(self) -> int:
        """How many batches there are."""
        return self.cuts.size - 1

    def examples(self, batch: int) -> Numbers:
        """Places, in the pool, of the examples of one batch."""
        return self.order[self.cuts[batch] : self.cuts[batch + 1]]

    def only(self, batches: Numbers) -> "Plan":
        """The same with these batches alone, in this order."""
        sizes = self.cuts[batches + 1] - self.cuts[batches]
        cuts = np.concatenate([[0], np.cumsum(sizes)])
        places = np.arange(cuts[-1]) + np.repeat(self.cuts[batches] - cuts[:-1], sizes)
        return Plan(self.order[places], cuts)


def plan_pool(source: Numbers, target: Numbers, tokens: int, parts: int, order: Order, seed: tuple[int, ...]) -> Plan:
    """Cut a pool into batches under a budget of tokens, as many as fill whole steps, and mix the steps.

    `length` sets examples of like length side by side; then the parts of one step are of like length too, so that no
    process waits long for another, and only whole steps are shuffled.
    """
    if order == "random":
        places = np.arange(source.size)
        return Plan(places, even_cuts(source, target, tokens, parts))
    # By the longer side: of the keys tried on Multi30k it pads least from 4,096 tokens on (7 % there; by source, then
    # target, 9 %). Examples come shuffled and the sort is stable, so who meets whom among equals differs each epoch.
    # Numbers of 16 bits are sorted without comparing them.
    places = np.argsort(np.minimum(np.maximum(source, target), 0xFFFF).astype(np.uint16), kind="stable")
    plan = Plan(places, even_cuts(source[places], target[places], tokens, parts))
    steps = np.random.default_rng(seed).permutation(len(plan) // parts)
    return plan.only((steps[:, None] * parts + np.arange(parts)).ravel())


def even_cuts(source: Numbers, target: Numbers, tokens: int, parts: int) -> Numbers:
    """Cuts into as few batches as the budget allows and whole steps need, all of about the same size.

    Filling each batch to the brim would leave a small one at the end, and with it a noisy step and idle processes.
    """
    ends = _ends(source), _ends(target)
    cuts = cut(*ends, tokens)
    wanted = -(-(cuts.size - 1) // parts) * parts
    if wanted > source.size:
        raise ValueError(
            f"{source.size} examples do not make {wanted} batches of at most {tokens} tokens, which whole steps of "
            f"{parts} batches need: raise train.tokens, or use fewer processes or a smaller train.accumulate"
        )
    low = max(int(source.max()), int(target.max()), -(-max(ends[0][-1], ends[1][-1]) // wanted))
    high = tokens
    for _ in range(EVEN):
        middle = (low + high) // 2
        tried = cut(*ends, middle)
        if tried.size - 1 <= wanted:
            cuts, high = tried, middle
        else:
            low = middle + 1
    return _split_largest(cuts, ends[0] + ends[1], wanted)


def cut(source_ends: Numbers, target_ends: Numbers, tokens: int) -> Numbers:
    """Cuts that fill each batch in turn until one more example would go over the budget of either side.

    The ends count all tokens up to each example, and begin with 0. No single example is over the budget.
    """
    cuts = [0]
    last = source_ends.size - 1
    while (at := cuts[-1]) < last:
        full = min(
            source_ends.searchsorted(source_ends[at] + tokens, side="right"),
            target_ends.searchsorted(target_ends[at] + tokens, side="right"),
        )
        cuts.append(int(full) - 1)
    return np.array(cuts)


def _split_largest(cuts: Numbers, ends: Numbers, wanted: int) -> Numbers:
    """Halve the batches with most tokens until there are as many as wanted."""
    while (missing := wanted - (cuts.size - 1)) > 0:
        sizes = np.where(np.diff(cuts) > 1, np.diff(ends[cuts]), 0)
        largest = np.argsort(-sizes, kind="stable")[:missing]
        largest = largest[sizes[largest] > 0]
        halves = (cuts[largest] + cuts[largest + 1]) // 2
        cuts = np.sort(np.concatenate([cuts, halves]))
    return cuts


def _ends(lengths: Numbers) -> Numbers:
    """The sum of all lengths before each example, and at last of all."""
    return np.concatenate([[0], np.cumsum(lengths)])
