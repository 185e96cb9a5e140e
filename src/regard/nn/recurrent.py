"""Recurrence: layers of LSTM or GRU over a ragged batch, by torch's kernels (cuDNN on CUDA), or one step at a time.

A recurrence reads the first tokens of all sequences together, then all second ones, and so on. `Packing` is that
order, from the longest sequence to the shortest, so that no step computes on padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils.rnn import PackedSequence

from regard.nn.attention.buckets import Grouping, by_length
from regard.nn.dropout import Dropout
from regard.nn.ragged import Layout
from regard.nn.tap import Tap, joining, taps

RECTANGLES = 4  # more save little padding and make each product smaller

Hidden = tuple[Tensor, ...]
"""Where a recurrence stands, a row for each sequence: h_LBD, and for an LSTM its cells c_LBD too."""


@dataclass(frozen=True, eq=False)
class Packing:
    """The tokens of a ragged batch in the order a recurrence reads them, step after step."""

    grouping: Grouping
    """Which token stands where in that order."""
    sizes: tuple[int, ...]
    """Rows that go on at each step; they are the first ones, so they never grow."""
    rows_B: Int[Tensor, " B2"]
    """The sequence of each row."""

    @classmethod
    def of(cls, layout: Layout, backwards: bool = False) -> "Packing":
        """The longest first, empty ones left out, read from the end if told; asks the device for the lengths."""
        lengths = layout.lengths_B.cpu().numpy().astype(np.int64)
        rows = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
        sizes = len(lengths) - np.cumsum(np.bincount(lengths, minlength=layout.longest + 1))[:-1]
        rank = np.empty_like(lengths)
        rank[rows] = np.arange(rows.size)
        sequence, step = np.repeat(np.arange(lengths.size), lengths), _steps(lengths, backwards)
        back = (np.cumsum(sizes) - sizes)[step] + rank[sequence]
        there = np.empty_like(back)
        there[back] = np.arange(back.size)
        return _packing(layout, there, back, None, sizes.tolist(), rows)

    @classmethod
    def square(cls, layout: Layout, backwards: bool = False) -> "Packing":
        """All sequences in the order they have, each as long as the longest; asks the device for the lengths."""
        lengths = layout.lengths_B.cpu().numpy().astype(np.int64)
        sequence, step = np.repeat(np.arange(lengths.size), lengths), _steps(lengths, backwards)
        back = step * lengths.size + sequence
        there, holes = np.zeros(layout.longest * lengths.size, np.int64), np.ones(layout.longest * lengths.size, bool)
        there[back], holes[back] = np.arange(back.size), False
        return _packing(layout, there, back, holes, [lengths.size] * layout.longest, np.arange(lengths.size))

    def spread(self, x: Shaped[Tensor, "N *rest"]) -> Shaped[Tensor, "N2 *rest"]:
        """The tokens in the order they are read."""
        return self.grouping.spread(x)[0][0]

    def collect(self, x: Shaped[Tensor, "N2 *rest"]) -> Shaped[Tensor, "N *rest"]:
        """The tokens in the order of the batch again."""
        return self.grouping.collect([x[None]])


def _steps(lengths: NDArray[np.int64], backwards: bool) -> NDArray[np.int64]:
    """When each token is read."""
    ends = np.cumsum(lengths)
    place = np.arange(ends[-1])
    return np.repeat(ends, lengths) - 1 - place if backwards else place - np.repeat(ends - lengths, lengths)


def _packing(
    layout: Layout,
    there: NDArray[np.int64],
    back: NDArray[np.int64],
    holes: NDArray[np.bool_] | None,
    sizes: Sequence[int],
    rows: NDArray[np.int64],
) -> Packing:
    """The packing with these orders, on the layout's device."""
    where = layout.offsets.device
    gaps = None if holes is None or not holes.any() else torch.from_numpy(holes).to(where)
    grouping = Grouping(torch.from_numpy(there).to(where), torch.from_numpy(back).to(where), gaps, ((1, there.size),))
    return Packing(grouping, tuple(sizes), torch.from_numpy(rows).to(where))


class Recurrence(nn.Module):
    """Layers of LSTM (Hochreiter & Schmidhuber 1997) or GRU (Cho et al. 2014), one upon the other.

    Both are torch's: its GRU lets the reset gate act on the product with the last state, as cuDNN does, not on the
    state before it, as Cho et al. have it.
    """

    def __init__(
        self, cell: str, inputs: int, width: int, layers: int = 1, both: bool = False, dropout: float = 0.0
    ) -> None:
        """`both` reads in both directions and sets the two states side by side; `dropout` falls between layers."""
        super().__init__()
        if cell not in ("lstm", "gru"):
            raise ValueError(f"there is no cell '{cell}'; it may be lstm or gru")
        between = dropout if layers > 1 else 0.0
        kind = nn.LSTM if cell == "lstm" else nn.GRU
        self.cells = kind(inputs, width, layers, dropout=between, bidirectional=both)
        self.drop, self.states = Dropout(between), Tap()
        self.gates = nn.ModuleList(Tap() for _ in range(0 if both else layers))
        if cell == "lstm":
            _remember(self.cells)

    @property
    def parts(self) -> int:
        """How many tensors say where it stands."""
        return 2 if isinstance(self.cells, nn.LSTM) else 1

    @property
    def width(self) -> int:
        """Width of a state in one direction."""
        return self.cells.hidden_size

    def rest(self, rows: int, like: Tensor) -> Hidden:
        """Where it stands before anything is read: at zero."""
        layers = self.cells.num_layers * (2 if self.cells.bidirectional else 1)
        return tuple(like.new_zeros(layers, rows, self.width) for _ in range(self.parts))

    def forward(
        self, x_ND: Float[Tensor, "N D"], layout: Layout, start: Hidden, backwards: bool = False
    ) -> tuple[Float[Tensor, "N D2"], Hidden]:
        """The last layer's state at every token, and where each sequence stands behind its end.

        Unwatched, torch's kernels run the whole sequence; they never show the gates, so watched it goes step by step.
        """
        if any(tap.watched for tap in taps(self.gates).values()):
            return self._formed(x_ND, layout, start, backwards)
        packing = Packing.of(layout, backwards)
        if not packing.sizes:
            return self.states(x_ND.new_zeros(0, self.width * (2 if self.cells.bidirectional else 1))), start
        packed = PackedSequence(packing.spread(x_ND), torch.tensor(packing.sizes), None, None)
        begin = [each.index_select(1, packing.rows_B) for each in start]
        read, end = self.cells(packed, (begin[0], begin[1]) if self.parts == 2 else begin[0])
        ends = end if self.parts == 2 else (end,)
        # A sequence of no token has not moved.
        last = tuple(one.index_copy(1, packing.rows_B, to) for one, to in zip(start, _as(start, ends), strict=True))
        return self.states(packing.collect(read.data)), last

    def states_at(self, x_ND: Float[Tensor, "N D"], layout: Layout, start: Hidden) -> Float[Tensor, "N D2"]:
        """The same where nobody asks for the end, one direction only.

        oneDNN has a fused LSTM for rectangles, which says no ends but of whole rows: nearly twice as fast on a CPU.
        """
        if x_ND.device.type != "cpu" or self.parts != 2 or any(tap.watched for tap in taps(self.gates).values()):
            states_ND: Tensor = self(x_ND, layout, start)[0]
            return states_ND
        grouping, members = by_length(layout, RECTANGLES)
        read = []
        for rectangle, rows in zip(grouping.spread(x_ND), members, strict=True):
            h, c = (each.index_select(1, torch.from_numpy(rows)) for each in start)
            if rectangle.shape[1] == 0:
                read.append(rectangle.new_zeros(*rectangle.shape[:2], self.width))
            else:
                read.append(self.cells(rectangle.transpose(0, 1), (h, c))[0].transpose(0, 1))
        collected_ND: Tensor = self.states(grouping.collect(read))
        return collected_ND

    def step(self, x_RD: Float[Tensor, "R D"], hidden: Hidden) -> tuple[Float[Tensor, "R D2"], Hidden]:
        """The last layer's state at one new token a row, and where the rows stand then; one direction only."""
        assert not self.cells.bidirectional, "the other direction begins at the end, which is not known yet"
        after: list[Sequence[Tensor]] = []
        for layer, weights in enumerate(self.cells.all_weights):
            x_RD = self.drop(x_RD) if layer else x_RD
            here = [each[layer] for each in hidden]
            after.append(self._cell(x_RD, here, weights, self.gates[layer]))
            x_RD = after[-1][0]
        if len(after) == 1:
            return x_RD, tuple(each[None] for each in after[0])
        return x_RD, tuple(torch.stack(each) for each in zip(*after, strict=True))

    def _cell(
        self, x_RD: Float[Tensor, "R D"], here: list[Tensor], weights: Sequence[Tensor], gates: nn.Module
    ) -> Sequence[Tensor]:
        """One layer a step further."""
        if isinstance(gates, Tap) and gates.watched:
            return _lstm(x_RD, here, weights, gates) if self.parts == 2 else _gru(x_RD, here, weights, gates)
        if self.parts == 2:
            return torch.lstm_cell(x_RD, here, *weights)
        return (torch.gru_cell(x_RD, *here, *weights),)

    def _formed(
        self, x_ND: Float[Tensor, "N D"], layout: Layout, start: Hidden, backwards: bool
    ) -> tuple[Float[Tensor, "N D2"], Hidden]:
        """The same step by step, all rows in the order of the batch."""
        packing, hidden, tops = Packing.square(layout, backwards), start, [x_ND.new_zeros(0, self.width)]
        with joining(taps(self.gates).values(), lambda steps: packing.collect(torch.cat(steps))):
            for time, x_BD in enumerate(torch.split_with_sizes(packing.spread(x_ND), packing.sizes)):
                top_BD, moved = self.step(x_BD, hidden)
                goes_on = (layout.lengths_B > time)[:, None]
                hidden = tuple(torch.where(goes_on, new, old) for new, old in zip(moved, hidden, strict=True))
                tops.append(top_BD)
        return self.states(packing.collect(torch.cat(tops))), hidden


def _lstm(x_RD: Tensor, here: list[Tensor], weights: Sequence[Tensor], gates: Tap) -> Sequence[Tensor]:
    """An LSTM's step with its gates shown: input, forget and output."""
    to, along, bias, more = weights
    i, f, g, o = (linear(x_RD, to, bias) + linear(here[0], along, more)).chunk(4, -1)
    i, f, o = gates(torch.sigmoid(torch.stack([i, f, o], 1))).unbind(1)
    c_RD = f * here[1] + i * torch.tanh(g)
    return o * torch.tanh(c_RD), c_RD


def _gru(x_RD: Tensor, here: list[Tensor], weights: Sequence[Tensor], gates: Tap) -> Sequence[Tensor]:
    """A GRU's step with its gates shown: reset and update."""
    to, along, bias, more = weights
    (r, z, n), (r2, z2, n2) = linear(x_RD, to, bias).chunk(3, -1), linear(here[0], along, more).chunk(3, -1)
    r, z = gates(torch.sigmoid(torch.stack([r + r2, z + z2], 1))).unbind(1)
    return ((1 - z) * torch.tanh(n + r * n2) + z * here[0],)


def _as(start: Hidden, ends: Hidden) -> Hidden:
    """In the number format of the start: half-precision kernels end in their own."""
    return tuple(end.to(one.dtype) for one, end in zip(start, ends, strict=True))


def _remember(cells: nn.RNNBase) -> None:
    """Let an LSTM begin with open forget gates, whose bias is then 1 in all (Jozefowicz et al. 2015, §2.2)."""
    with torch.no_grad():
        for name, bias in cells.named_parameters():
            if name.startswith("bias_ih"):
                bias.chunk(4)[1].fill_(1.0)
            elif name.startswith("bias_hh"):
                bias.chunk(4)[1].zero_()
