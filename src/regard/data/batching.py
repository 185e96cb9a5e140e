"""Stores to an endless stream of ragged batches under a token budget, made ahead of the model.

An epoch is an order of all examples (`regard.data.order`), taken in pools of up to 65,536 (`regard.data.pool`). Each is
cut into batches and steps by the lengths of its examples (`regard.data.plan`), and each process gathers its own batches
of it (`regard.data.example`). Nothing is drawn from a generator that runs through the epoch, so any position is reached
by looking at one pool, and a batch does not depend on how many were made before.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np
import torch

from regard.data.ahead import Ahead
from regard.data.example import Batch, Rows, prepare
from regard.data.order import Mixture
from regard.data.plan import Order, Plan, Shard, cut, plan_pool
from regard.data.pool import Pairs, Pool, Sampling


@dataclass(frozen=True, order=True)
class Position:
    """A place in the stream, between two steps; `Position(**asdict(position))` brings it back from JSON."""

    epoch: int = 0
    """Epochs wholly behind."""
    pool: int = 0
    """Pools of the epoch wholly behind."""
    step: int = 0
    """Steps of the pool behind."""

    def __post_init__(self) -> None:
        """Refuse a place before the beginning."""
        if min(self.epoch, self.pool, self.step) < 0:
            raise ValueError(f"no position has a negative part: {self}")


BEGINNING = Position()
_ALONE = Shard()
_STEPS, _SUBWORDS = 1, 2  # numbers that keep apart what is drawn for the same pool


class Step(NamedTuple):
    """What this process learns from before the weights move, and where the stream stands after it."""

    after: Position
    batches: list[Batch]


class _Cut(NamedTuple):
    """A pool, and how this process's share of it is cut into batches."""

    epoch: int
    number: int
    pool: Pool
    plan: Plan


@dataclass(frozen=True)
class Feed:
    """Batches from stores mixed by weight, each with at most `tokens` tokens of either side.

    `order` is `random`, or `length` for batches of like length. All that is random starts from `seed`. Processes that
    differ in `shard.rank` alone share out every step among them and take equally many steps.
    """

    POOL: ClassVar[int] = 65_536
    """Examples loaded at once, at most; about as many, since an epoch is divided evenly."""
    STEPS_AHEAD: ClassVar[int] = 8
    POOLS_AHEAD: ClassVar[int] = 1

    stores: Sequence[Pairs]
    weights: Sequence[float]
    tokens: int
    order: Order = "random"
    seed: int = 0
    shard: Shard = _ALONE
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        """Refuse, before anything is learnt, what could not go on to the end."""
        if not self.stores or any(len(store) == 0 for store in self.stores):
            raise ValueError(f"there is nothing to draw from: {[len(store) for store in self.stores]} examples")
        if len(self.weights) != len(self.stores):
            raise ValueError(f"{len(self.stores)} stores need as many weights, not {len(self.weights)}")
        if not all(0 < weight < math.inf for weight in self.weights):
            raise ValueError(f"weights are positive numbers, not {list(self.weights)}")
        if self.seed < 0:
            raise ValueError(f"a seed is 0 or more, not {self.seed}")
        if self.order not in ("random", "length"):
            raise ValueError(f"the order is 'random' or 'length', not {self.order!r}")
        for number, store in enumerate(self.stores):
            check_budget(store, self.tokens, f"example {{}} of corpus {number + 1}")
        if self.sampling is not None:
            for store in self.stores:
                store.text(np.arange(1))  # a store without its text says so now
        if len(self.mixture) // self.pools < self.shard.parts:
            raise ValueError(
                f"an epoch of {len(self.mixture)} examples cannot be shared out among the {self.shard.parts} batches "
                f"of a step ({self.shard.world} processes, {self.shard.accumulate} accumulated): "
                "use fewer processes, a smaller train.accumulate, or more data"
            )

    @cached_property
    def mixture(self) -> Mixture:
        """The order of examples in each epoch."""
        return Mixture(tuple(map(len, self.stores)), tuple(self.weights), self.seed)

    @cached_property
    def longest(self) -> int:
        """Tokens that no sequence exceeds, its added symbol included; cut anew, text may have twice what it has now."""
        stored = 1 + max(max(store.longest) for store in self.stores)
        if self.sampling is None:
            return stored
        return max(stored, min(2 * stored, self.tokens, self.sampling.most or self.tokens))

    @cached_property
    def pools(self) -> int:
        """Pools of an epoch; of even size, so that none is too small for a step."""
        return max(1, -(-len(self.mixture) // self.POOL))

    def epochs(self, start: Position = BEGINNING, pin: bool = False) -> Ahead[Step]:
        """Steps without end from a position on, made by a thread some steps ahead; close it when done.

        `pin` puts them in page-locked memory, for copies to CUDA beside the computation; without CUDA it does nothing.
        """
        if start.pool >= self.pools:
            raise ValueError(f"{start} is beyond the {self.pools} pools of an epoch: these are not the data it is from")
        device = torch.cuda.current_device() if pin and torch.cuda.is_available() else None
        return Ahead(self._steps(start, device), self.STEPS_AHEAD)

    def epoch(self, number: int) -> Iterator[list[Batch]]:
        """The steps of one epoch, made as they are asked for."""
        for each in range(self.pools):
            pool = self._load(number, each)
            for step in range(self._length(pool)):
                yield self._batches(pool, step)

    def _steps(self, start: Position, device: int | None) -> Generator[Step, None, None]:
        """What the thread of `epochs` makes."""
        if device is not None:
            torch.cuda.set_device(device)  # a new thread's is the first one, where pinning would then take memory
        with Ahead(self._pools(start), self.POOLS_AHEAD) as pools:
            first = start.step
            for pool in pools:
                if first > self._length(pool):
                    raise ValueError(
                        f"{start} is beyond the {self._length(pool)} steps of its pool: these are not the data, "
                        "the token budget or the number of processes it is from"
                    )
                for step in range(first, self._length(pool)):
                    batches = self._batches(pool, step)
                    pinned = batches if device is None else [batch.pin_memory() for batch in batches]
                    yield Step(self._after(pool, step), pinned)
                first = 0

    def _pools(self, start: Position) -> Generator[_Cut, None, None]:
        """Loaded pools without end, from that of a position on."""
        epoch, pool = start.epoch, start.pool
        while True:
            yield self._load(epoch, pool)
            pool = (pool + 1) % self.pools
            epoch += pool == 0

    def _load(self, epoch: int, number: int) -> _Cut:
        """Load one pool, and plan this process's share of it."""
        start, stop = (len(self.mixture) * each // self.pools for each in (number, number + 1))
        which = self.mixture.draw(epoch, start, stop)
        key = (self.seed, epoch, number)
        if self.sampling is None:
            pool = Pool(self.stores, which)
        else:
            seeds = np.random.SeedSequence((*key, _SUBWORDS)).generate_state(2 * len(self.stores)).reshape(-1, 2)
            pool = Pool.sample(self.stores, which, self.sampling, self.longest, seeds.tolist())
        source, target = pool.lengths()
        # One more of each: the symbols that `prepare` adds count too.
        plan = plan_pool(source + 1, target + 1, self.tokens, self.shard.parts, self.order, (*key, _STEPS))
        return _Cut(epoch, number, pool, plan.only(self.shard.batches(len(plan))))

    def _length(self, pool: _Cut) -> int:
        """Steps of a pool."""
        return len(pool.plan) // self.shard.accumulate

    def _batches(self, pool: _Cut, step: int) -> list[Batch]:
        """This process's batches of one step."""
        first = step * self.shard.accumulate
        batches = range(first, first + self.shard.accumulate)
        return [prepare(*pool.pool.take(pool.plan.examples(each))) for each in batches]

    def _after(self, pool: _Cut, step: int) -> Position:
        """The position behind a step; behind a pool's last one it is the next pool's first, so none loads in vain."""
        if step + 1 < self._length(pool):
            return Position(pool.epoch, pool.number, step + 1)
        return Position(pool.epoch, pool.number + 1) if pool.number + 1 < self.pools else Position(pool.epoch + 1)


def in_order(store: Pairs, tokens: int, pool: int = Feed.POOL) -> Iterator[Batch]:
    """Every pair of a store once, as it stands there, for validation; several processes may take every n-th batch.

    The lengths of `pool` examples are looked at together.
    """
    check_budget(store, tokens, "example {}")
    for start in range(0, len(store), pool):
        source, target = (np.cumsum(1 + lengths[start : start + pool], dtype=np.int64) for lengths in store.lengths)
        cuts = cut(np.insert(source, 0, 0), np.insert(target, 0, 0), tokens)
        for begin, end in pairwise(cuts + start):
            which = np.arange(begin, end)
            source_ids, source_offsets, target_ids, target_offsets = store.gather(which)
            yield prepare(Rows(source_ids, source_offsets), Rows(target_ids, target_offsets), which)


def check_budget(store: Pairs, tokens: int, name: str) -> None:
    """Refuse a budget that some pair does not fit, naming the pair."""
    if tokens < 1:
        raise ValueError(f"a batch holds at least one token, not {tokens}")
    for side, longest, lengths in zip(("source", "target"), store.longest, store.lengths, strict=True):
        if longest + 1 > tokens:
            first = int(np.flatnonzero(lengths >= tokens)[0])
            raise ValueError(
                f"{name.format(first)} has {lengths[first] + 1} {side} tokens with its end symbol, but a batch holds "
                f"at most {tokens}: raise train.tokens to {longest + 1} or more, or lower data.longest to drop it"
            )
