"""Keys and values of a search, each written once and then only pointed at."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.models.fast.gaze import lines_of

SMALLEST = 64  # rows of the smallest table


class Pool:
    """For each layer a table of keys and one of values, with a row for each token; rows are taken in order."""

    def __init__(self, layers: int, heads: int, sizes: tuple[int, int], dtype: torch.dtype) -> None:
        """Empty tables for keys and values of these sizes a head."""
        self.heads, self.sizes, self.dtype = heads, sizes, dtype
        self.taken = self.room = 0
        """Rows in use, and rows there are. Row 0 is nobody's and all zero, for places where there is nothing."""
        self.keys = [torch.empty(0, heads * sizes[0], dtype=dtype) for _ in range(layers)]
        self.values = [torch.empty(0, heads * sizes[1], dtype=dtype) for _ in range(layers)]
        self.clear(SMALLEST)

    def clear(self, room: int) -> None:
        """Forget everything, and have room for so many rows."""
        self.taken = 0
        if room > self.room:
            self._grow(room)
        for table in (*self.keys, *self.values):
            table[0] = 0
        self.taken = 1

    @property
    def lines(self) -> int:
        """Lines of a table: one for each row and head."""
        return self.room * self.heads

    def take(self, rows: int) -> slice:
        """The next so many rows, to be written in every layer; tables grow where they must."""
        if self.taken + rows > self.room:
            self._grow(max(2 * self.room, self.taken + rows))
        self.taken += rows
        return slice(self.taken - rows, self.taken)

    def write(self, layer: int, where: slice, k_NF: Float[Tensor, "N F"], v_NF: Float[Tensor, "N F2"]) -> None:
        """Put keys and values of one layer into rows that were taken."""
        self.keys[layer][where] = k_NF
        self.values[layer][where] = v_NF

    def prune(self, pointers: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """Forget the rows nobody points at, where these are half of all; what the pointers are from then on."""
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
        self._view()
        return number[pointers]

    def append(self, other: "Pool", pointers: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """Copy the rows of another pool that these point at to the end of this one; pointers to where they are now."""
        rows = torch.unique(pointers[pointers > 0])
        number = torch.zeros(other.taken, dtype=torch.int64)
        where = self.take(rows.shape[0])
        number[rows] = torch.arange(where.start, where.stop)
        for layer in range(len(self.keys)):
            self.write(layer, where, other.keys[layer].index_select(0, rows), other.values[layer].index_select(0, rows))
        return number[pointers]

    def _grow(self, room: int) -> None:
        """Make room for so many rows, in whole lines of places."""
        room = lines_of(room)
        for tables in (self.keys, self.values):
            for layer, table in enumerate(tables):
                tables[layer] = torch.empty(room, table.shape[1], dtype=self.dtype)
                tables[layer][: self.taken] = table[: self.taken]
        self.room = room
        self._view()

    def _view(self) -> None:
        """The tables layer by layer, and as lines of one head each, as they are looked at: keys turned, and values."""
        keys = [table.view(-1, self.sizes[0]).t() for table in self.keys]
        values = [table.view(-1, self.sizes[1]) for table in self.values]
        self.looks = list(zip(keys, values, strict=True))
        self.tables = list(zip(self.keys, self.values, keys, values, strict=True))
