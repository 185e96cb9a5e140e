"""The KV cache of the indexed engine: every key and value is written once, and rows of a batch point at them.

A row of the batch is a list of the table rows of its own tokens, and of those of its memory. To reorder beams, such
lists are exchanged; to drop or add sentences, lists are dropped or added. Rows may differ in length: all write into the
same column, and the columns before a row's first token are masked.
"""

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from threading import RLock
from weakref import WeakSet

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from regard.engines.indexed_attention import AttentionIndex, round_up

MIN_ROWS = 64  # rows of the smallest table
SPARE_BYTES, SPARE_POOLS = 64 << 20, 2
"""Tables that are kept for later batches: so many bytes, or so many pools if these are larger."""


class KVPool:
    """A table of keys and one of values for each layer, with a row for each token. Rows are taken in order."""

    def __init__(self, layers: int, heads: int, sizes: tuple[int, int], dtype: torch.dtype) -> None:
        """Make empty tables for heads with keys and values of these sizes."""
        self.heads, self.sizes, self.dtype = heads, sizes, dtype
        self.taken = self.capacity = 0
        """Rows in use, and rows allocated. Row 0 is all zero and belongs to no token: padding points at it."""
        self.keys = [torch.empty(0, heads * sizes[0], dtype=dtype) for _ in range(layers)]
        self.values = [torch.empty(0, heads * sizes[1], dtype=dtype) for _ in range(layers)]
        self.clear(MIN_ROWS)

    def clear(self, capacity: int) -> None:
        """Drop everything, and allocate at least this many rows."""
        self.taken = 0
        if capacity > self.capacity:
            self._grow(capacity)
        for table in (*self.keys, *self.values):
            table[0] = 0
        self.taken = 1

    @property
    def bytes(self) -> int:
        """Size of the tables."""
        return self.capacity * self.heads * sum(self.sizes) * len(self.keys) * self.dtype.itemsize

    @property
    def lines(self) -> int:
        """Lines of a table: one for each row and head."""
        return self.capacity * self.heads

    def take(self, rows: int) -> slice:
        """Return the next rows, to be written in every layer. Tables grow where they must."""
        if self.taken + rows > self.capacity:
            self._grow(max(2 * self.capacity, self.taken + rows))
        self.taken += rows
        return slice(self.taken - rows, self.taken)

    def write(self, layer: int, rows: slice, k_NF: Float[Tensor, "N F"], v_NF: Float[Tensor, "N F2"]) -> None:
        """Write keys and values of one layer into rows that were taken."""
        self.keys[layer][rows] = k_NF
        self.values[layer][rows] = v_NF

    def prune(self, pointers: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """Drop the rows that nothing points at, if they are half of all; return the new pointers."""
        live = torch.unique(torch.cat([pointers.new_zeros(1), pointers.flatten()]))
        if 2 * live.shape[0] > self.taken:
            return pointers
        number = torch.zeros(self.taken, dtype=torch.int64)
        number[live] = torch.arange(live.shape[0])
        for tables in (self.keys, self.values):
            for layer, table in enumerate(tables):
                tables[layer] = torch.empty_like(table)
                torch.index_select(table, 0, live, out=tables[layer][: live.shape[0]])
        self.taken = live.shape[0]
        self._make_views()
        return number[pointers]

    def append(self, other: "KVPool", pointers: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """Copy the rows of another pool that these point at to the end of this one; return the new pointers."""
        rows = torch.unique(pointers[pointers > 0])
        number = torch.zeros(other.taken, dtype=torch.int64)
        new = self.take(rows.shape[0])
        number[rows] = torch.arange(new.start, new.stop)
        for layer in range(len(self.keys)):
            self.write(layer, new, other.keys[layer].index_select(0, rows), other.values[layer].index_select(0, rows))
        return number[pointers]

    def _grow(self, capacity: int) -> None:
        """Allocate larger tables and copy the rows in use."""
        capacity = round_up(capacity)
        for tables in (self.keys, self.values):
            for layer, table in enumerate(tables):
                tables[layer] = torch.empty(capacity, table.shape[1], dtype=self.dtype)
                tables[layer][: self.taken] = table[: self.taken]
        self.capacity = capacity
        self._make_views()

    def _make_views(self) -> None:
        """View the tables as lines of one head each, as `attend` reads them: keys transposed, and values."""
        keys = [table.view(-1, self.sizes[0]).t() for table in self.keys]
        values = [table.view(-1, self.sizes[1]) for table in self.values]
        self.views = list(zip(keys, values, strict=True))
        self.tables_and_views = list(zip(self.keys, self.values, keys, values, strict=True))


class SparePools:
    """The tables of finished batches, to be used again: fresh memory is slow when first touched.

    They are as many as there were batches at a time, and each grows to what the largest batch has ever needed. So their
    memory is limited, or that of a server with many workers would grow for days; the oldest are dropped first. A few
    are kept whatever their size, since a large model has large tables in every batch.
    """

    def __init__(self, layers: int, heads: int, sizes: tuple[int, int], dtype: torch.dtype) -> None:
        """Begin without any; the arguments are those of `KVPool`."""
        self._make = partial(KVPool, layers, heads, sizes, dtype)
        self._pools: deque[KVPool] = deque()
        self._bytes = 0
        _EVERY.add(self)
        # A thread that is inside may be interrupted by the garbage collector, which returns the tables of a batch.
        self._lock = RLock()

    def take(self, capacity: int) -> KVPool:
        """Return empty tables with at least this many rows."""
        with self._lock:
            pool = self._pools.pop() if self._pools else None
            self._bytes -= 0 if pool is None else pool.bytes
        pool = pool or self._make()
        pool.clear(capacity)
        return pool

    def give_back(self, pool: KVPool) -> None:
        """Keep tables that are no longer in use, as far as the limit allows."""
        with self._lock:
            self._pools.append(pool)
            self._bytes += pool.bytes
            while self._bytes > SPARE_BYTES and len(self._pools) > SPARE_POOLS:
                self._bytes -= self._pools.popleft().bytes

    def clear(self) -> None:
        """Drop all tables."""
        with self._lock:
            self._pools.clear()
            self._bytes = 0


_EVERY: WeakSet[SparePools] = WeakSet()
"""The spare pools of all engines of this process."""


def drop_spare_pools() -> None:
    """Drop the spare tables of all engines, which have grown to what the largest batch has ever needed."""
    for spare in list(_EVERY):
        spare.clear()


@dataclass(eq=False)
class IndexedMemory:
    """The keys and values of an encoder's memory, which the beams of a sentence share."""

    pool: KVPool
    rows_BS: Int[Tensor, "B S"]
    """The table rows of each sentence's source, padded with 0."""
    bias_BS: Float[Tensor, "B S"]
    """What is added to their scores: minus infinity for padding."""
    index: AttentionIndex | None = None
    """Where every row of the batch attends, while the batch stays as it is."""

    def keep(self, sentences_B: Int[Tensor, " B"]) -> None:
        """Drop all sentences but these."""
        self.rows_BS, self.bias_BS, self.index = self.rows_BS[sentences_B], self.bias_BS[sentences_B], None

    def absorb(self, other: "IndexedMemory") -> None:
        """Append the sentences of another memory."""
        if self.pool.taken + other.pool.taken > self.pool.capacity:
            self.rows_BS = self.pool.prune(self.rows_BS)
        rows = [self.rows_BS, self.pool.append(other.pool, other.rows_BS)]
        columns = max(rows_BS.shape[1] for rows_BS in rows)
        self.rows_BS = torch.cat([functional.pad(rows_BS, (0, columns - rows_BS.shape[1])) for rows_BS in rows])
        self.bias_BS = torch.cat(
            [
                functional.pad(bias_BS, (0, columns - bias_BS.shape[1]), value=-torch.inf)
                for bias_BS in (self.bias_BS, other.bias_BS)
            ]
        )
        self.index = None


@dataclass(eq=False)
class IndexedState:
    """The decoding state of a batch. A step writes into it, so only the state that the step returns may be used."""

    beams_B: Int[Tensor, " B"]
    """Rows of each sentence."""
    own: KVPool
    """Keys and values of the rows' own tokens."""
    memory: IndexedMemory | None
    """None for a language model."""
    rows_RT: Int[Tensor, "R T"]
    """The table rows of each row's tokens, the newest in the last column in use, padded with 0."""
    bias_RT: Float[Tensor, "R T"]
    """What is added to their scores: minus infinity for padding."""
    length_R: Int[Tensor, " R"]
    """Tokens of each row, its prompt's among them."""
    prompt_R: Int[Tensor, " R"] | None = None
    """Tokens of each row's prompt; None if no row has one."""
    columns: int = 0
    """Columns in use, which is the length of the longest row."""
    beams: int | None = field(init=False)
    """Rows of each sentence; None if sentences have different numbers of rows."""

    def __post_init__(self) -> None:
        """Note whether all sentences have the same number of rows."""
        self._count_rows()

    def _count_rows(self) -> None:
        counts = {*self.beams_B.tolist()}
        self.beams = counts.pop() if len(counts) == 1 else None

    @property
    def sentence_R(self) -> Int[Tensor, " R"]:
        """The sentence of each row."""
        return torch.arange(self.beams_B.shape[0]).repeat_interleave(self.beams_B)

    @property
    def is_fresh(self) -> bool:
        """Whether no row has made a step yet, so that all beams of a sentence are equal."""
        return self.columns == 0 or (self.prompt_R is not None and torch.equal(self.length_R, self.prompt_R))

    def reserve(self, shared: int = 1) -> int:
        """Take a table row for the next token of each row, or of every `shared`-th row; return the first of them."""
        rows, columns = self.rows_RT.shape[0] // shared, self.rows_RT.shape[1]
        if self.columns == columns:
            self.rows_RT = functional.pad(self.rows_RT, (0, columns))
            self.bias_RT = functional.pad(self.bias_RT, (0, columns), value=-torch.inf)
        if self.own.taken + rows > self.own.capacity:
            self.rows_RT = self.own.prune(self.rows_RT)
        first: int = self.own.take(rows).start
        return first

    def select(self, rows_R: Int[Tensor, " R"]) -> None:
        """Continue from these rows."""
        rows = self.rows_RT.shape[0]
        self.rows_RT = self.rows_RT.index_select(0, rows_R)
        if rows_R.shape[0] == rows:
            return
        kept_B = rows_R[:: self.beams] // self.beams if self.beams else torch.unique(self.sentence_R[rows_R])
        if self.memory is not None:
            self.memory.keep(kept_B)
        self.beams_B = self.beams_B[kept_B]
        self._count_rows()
        self.bias_RT, self.length_R = self.bias_RT[rows_R], self.length_R[rows_R]
        self.prompt_R = None if self.prompt_R is None else self.prompt_R[rows_R]
        unused = self.columns - (int(self.length_R.max()) if self.length_R.numel() else 0)
        if unused:  # the longest row has left: drop the columns before every row's first token
            self.rows_RT = functional.pad(self.rows_RT[:, unused:], (0, unused))
            self.bias_RT = functional.pad(self.bias_RT[:, unused:], (0, unused), value=-torch.inf)
            self.columns -= unused

    def absorb(self, other: "IndexedState") -> None:
        """Append the sentences of another state."""
        other.rows_RT = self.own.append(other.own, other.rows_RT)
        columns = max(self.columns, other.columns)
        rows, biases = zip(*(state._aligned(columns) for state in (self, other)), strict=True)
        self.rows_RT, self.bias_RT = torch.cat(rows), torch.cat(biases)
        self.length_R, self.columns = torch.cat([self.length_R, other.length_R]), columns
        self.beams_B = torch.cat([self.beams_B, other.beams_B])
        self._count_rows()
        if self.prompt_R is not None and other.prompt_R is not None:
            self.prompt_R = torch.cat([self.prompt_R, other.prompt_R])
        if self.memory is not None and other.memory is not None:
            self.memory.absorb(other.memory)

    def _aligned(self, columns: int) -> tuple[Tensor, Tensor]:
        """Return rows and biases with the newest token in the column before this one, and space after it."""
        sides = (columns - self.columns, round_up(columns + 1) - columns)
        rows_RT = functional.pad(self.rows_RT[:, : self.columns], sides)
        return rows_RT, functional.pad(self.bias_RT[:, : self.columns], sides, value=-torch.inf)
