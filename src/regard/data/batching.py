"""Turn stores into an endless stream of ragged batches under a token budget, prepared ahead of the model.

An epoch is an order of all examples (`regard.data.order`), taken in pools of up to 65,536 (`regard.data.pool`). Each
pool is divided into batches and steps by the lengths of its examples (`regard.data.plan`); each process gathers its own
batches, and the task collates them (`regard.data.batch`). No random generator runs through the epoch, so any position
is reached by planning one pool, and a batch does not depend on how many came before it.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np

from regard.data.batch import Batch, Collator, RandomKey
from regard.data.order import Mixture
from regard.data.plan import BatchPlan, Order, Shard, cut, plan_pool
from regard.data.pool import ExamplePool, SubwordSampling
from regard.data.prefetch import Prefetch
from regard.data.rows import Numbers, offsets_of
from regard.data.store import Records


@dataclass(frozen=True, order=True)
class StreamPosition:
    """A position in the stream of steps; `StreamPosition(**asdict(position))` restores it from JSON."""

    epoch: int = 0
    """Completed epochs."""
    pool: int = 0
    """Completed pools of the epoch."""
    step: int = 0
    """Completed steps of the pool."""

    def __post_init__(self) -> None:
        """Check that nothing is negative."""
        if min(self.epoch, self.pool, self.step) < 0:
            raise ValueError(f"a position in the stream has no negative part: {self}")


BEGINNING = StreamPosition()
_SINGLE_PROCESS = Shard()
_STEPS, _SUBWORDS = 1, 2  # keep apart the random numbers drawn for the same pool
_BATCHES = 3  # and for the same epoch


class Step(NamedTuple):
    """The batches of this process for one update, and the position in the stream after it."""

    after: StreamPosition
    batches: list[Batch]


class _PlannedPool(NamedTuple):
    """A pool, and the plan of this process's batches."""

    epoch: int
    number: int
    pool: ExamplePool
    plan: BatchPlan


@dataclass(frozen=True)
class Feed:
    """A stream of batches from stores mixed by weight, each with at most `tokens` tokens in each of its sequences.

    Processes that differ only in `shard.rank` divide every step among them and take equally many steps.
    """

    POOL: ClassVar[int] = 65_536
    """Maximum number of examples planned at a time; an epoch is divided evenly."""
    POOLS_AHEAD: ClassVar[int] = 1

    stores: Sequence[Records]
    weights: Sequence[float]
    tokens: int
    collator: Collator
    """Makes batches of records: the task."""
    order: Order = "random"
    seed: int = 0
    """Random seed of the order of examples and of subword sampling."""
    shard: Shard = _SINGLE_PROCESS
    sampling: SubwordSampling | None = None

    def __post_init__(self) -> None:
        """Refuse, before training starts, what could not run to the end."""
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
            _check_budget(store, self.collator, self.tokens, f"example {{}} of corpus {number + 1}")
        if self.sampling is not None:
            for store in self.stores:
                store.text(np.arange(1))  # a store without its text raises its error now
        if len(self.mixture) // self.pools < self.shard.parts:
            raise ValueError(
                f"an epoch of {len(self.mixture)} examples cannot be divided among the {self.shard.parts} batches "
                f"of a step ({self.shard.world} processes, {self.shard.accumulate} accumulated): "
                "use fewer processes, a smaller train.accumulate, or more data"
            )

    @cached_property
    def mixture(self) -> Mixture:
        """The order of examples in each epoch."""
        return Mixture(tuple(map(len, self.stores)), tuple(self.weights), self.seed)

    @cached_property
    def longest(self) -> int:
        """Maximum number of tokens of a sequence, symbols included; sampled subwords may double it."""
        stored = max(longest_sequence(store, self.collator) for store in self.stores)
        if self.sampling is None:
            return stored
        return max(stored, min(2 * stored, self.tokens, self.sampling.max_tokens or self.tokens))

    @cached_property
    def pools(self) -> int:
        """Number of pools of an epoch; they are of equal size, so that none is too small for a step."""
        return max(1, -(-len(self.mixture) // self.POOL))

    def steps(self, start: StreamPosition = BEGINNING) -> Generator[Step, None, None]:
        """Yield steps without end, from a position on; close it when done.

        Sampling the subwords of a pool takes seconds, so with sampling a thread prepares the next pool meanwhile.
        """
        if start.pool >= self.pools:
            raise ValueError(f"{start} is beyond the {self.pools} pools of an epoch: the data are not those it is from")
        pools = self._pools(start)
        with closing(pools) if self.sampling is None else Prefetch(pools, self.POOLS_AHEAD) as planned:
            first = start.step
            for pool in planned:
                if first > self._length(pool):
                    raise ValueError(
                        f"{start} is beyond the {self._length(pool)} steps of its pool: the data, the token budget or "
                        "the number of processes are not those it is from"
                    )
                for step in range(first, self._length(pool)):
                    yield Step(self._after(pool, step), self._batches(pool, step))
                first = 0

    def epoch(self, number: int) -> Iterator[list[Batch]]:
        """Yield the steps of one epoch, prepared as they are requested."""
        for pool_number in range(self.pools):
            pool = self._load(number, pool_number)
            for step in range(self._length(pool)):
                yield self._batches(pool, step)

    def _pools(self, start: StreamPosition) -> Generator[_PlannedPool, None, None]:
        """Yield planned pools without end, from that of a position on."""
        epoch, pool = start.epoch, start.pool
        while True:
            yield self._load(epoch, pool)
            pool = (pool + 1) % self.pools
            epoch += pool == 0

    def _load(self, epoch: int, number: int) -> _PlannedPool:
        """Load one pool and plan this process's batches of it."""
        indices = self.mixture.draw(epoch, self._first(number), self._first(number + 1))
        key = (self.seed, epoch, number)
        if self.sampling is None:
            pool = ExamplePool(self.stores, indices)
        else:
            count = len(self.sampling.samplers)
            seeds = np.random.SeedSequence((*key, _SUBWORDS)).generate_state(count * len(self.stores))
            grouped = seeds.reshape(-1, count).tolist()
            pool = ExamplePool.sample(self.stores, indices, self.sampling, self.collator, self.longest, grouped)
        lengths = self.collator.sequence_lengths(pool.lengths())
        plan = plan_pool(lengths, self.tokens, self.shard.parts, self.order, (*key, _STEPS))
        return _PlannedPool(epoch, number, pool, plan.only(self.shard.batches(len(plan))))

    def _length(self, pool: _PlannedPool) -> int:
        """Return the number of steps of a pool."""
        return len(pool.plan) // self.shard.accumulate

    def _batches(self, pool: _PlannedPool, step: int) -> list[Batch]:
        """Return this process's batches of one step."""
        first = step * self.shard.accumulate
        batches = range(first, first + self.shard.accumulate)
        return [self._batch(pool, pool.plan.examples(batch)) for batch in batches]

    def _batch(self, pool: _PlannedPool, examples: Numbers) -> Batch:
        """Return the batch of some examples of a pool."""
        draw = RandomKey((self.seed, pool.epoch, _BATCHES), self._first(pool.number) + examples)
        return self.collator.collate_for_training(*pool.pool.take(examples), draw)

    def _first(self, pool: int) -> int:
        """Return the position in the epoch at which a pool begins."""
        return len(self.mixture) * pool // self.pools

    def _after(self, pool: _PlannedPool, step: int) -> StreamPosition:
        """Return the position after a step; after the last step of a pool it is the start of the next pool."""
        if step + 1 < self._length(pool):
            return StreamPosition(pool.epoch, pool.number, step + 1)
        if pool.number + 1 < self.pools:
            return StreamPosition(pool.epoch, pool.number + 1)
        return StreamPosition(pool.epoch + 1)


def in_order(store: Records, collator: Collator, tokens: int, pool: int = Feed.POOL) -> Iterator[Batch]:
    """Yield every record of a store once, in order, for validation; several processes may take every n-th batch.

    The lengths of `pool` examples are read at a time.
    """
    _check_budget(store, collator, tokens, "example {}")
    for start in range(0, len(store), pool):
        lengths = collator.sequence_lengths(
            {name: counts[start : start + pool] for name, counts in store.lengths.items()}
        )
        cuts = cut([offsets_of(counts) for counts in lengths], tokens)
        for begin, end in pairwise(cuts + start):
            indices = np.arange(begin, end)
            yield collator.collate(store.gather(indices), indices)


def longest_sequence(store: Records, collator: Collator) -> int:
    """Return the number of tokens, symbols included, of the longest sequence of a store.

    The lengths of a record's fields determine it together, so the longest value of each field is not enough.
    """
    longest = 0
    for start in range(0, len(store), Feed.POOL):
        lengths = {name: counts[start : start + Feed.POOL] for name, counts in store.lengths.items()}
        longest = max(longest, *(int(counts.max()) for counts in collator.sequence_lengths(lengths)))
    return longest


def _check_budget(store: Records, collator: Collator, tokens: int, name: str) -> None:
    """Raise a ValueError that names the record if one does not fit into a batch of `tokens` tokens."""
    if tokens < 1:
        raise ValueError(f"a batch holds at least one token, not {tokens}")
    if longest_sequence(store, collator) <= tokens:
        return
    counts = np.maximum.reduce(list(collator.sequence_lengths(store.lengths)))
    first = int(np.flatnonzero(counts > tokens)[0])
    raise ValueError(
        f"{name.format(first)} has {counts[first]} tokens with start or end symbol, but a batch holds "
        f"at most {tokens}: raise train.tokens to {counts.max()} or more, or lower data.longest to drop it"
    )
