"""Recurrent layers: LSTM or GRU over a ragged batch by torch's kernels (cuDNN on CUDA), or one step at a time.

A recurrence reads the first tokens of all sequences together, then all second tokens, and so on. `Packing` is that
order. With the longest sequence first, no step computes on padding.
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

from regard.nn.attention.buckets import BucketLayout, bucket_evenly
from regard.nn.cost import TokenCounts
from regard.nn.dropout import Dropout
from regard.nn.ragged import Layout
from regard.nn.tap import Tap, joining_records, named_taps

RECTANGLES = 4  # more would save little padding and make each product smaller

HiddenState = tuple[Tensor, ...]
"""The state of a recurrence, one row a sequence: h_LBD, and for an LSTM also its cells c_LBD."""


@dataclass(frozen=True, eq=False)
class Packing:
    """The tokens of a ragged batch in the order a recurrence reads them, step after step."""

    order: BucketLayout
    """The mapping between tokens and that order, as one rectangle of a single row."""
    sizes: tuple[int, ...]
    """Number of rows at each step. The rows that continue are the first ones, so it never grows."""
    rows_B: Int[Tensor, " B2"]
    """The sequence of each row."""

    @classmethod
    def by_length(cls, layout: Layout, backwards: bool = False) -> "Packing":
        """Order sequences from the longest to the shortest and omit empty ones; waits for the device.

        Args:
            layout: The batch.
            backwards: Whether to read every sequence from its end.
        """
        lengths = layout.lengths_B.cpu().numpy().astype(np.int64)
        rows = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
        # Rows at step t: the sequences that are longer than t, all less those of at most t tokens.
        sizes = len(lengths) - np.cumsum(np.bincount(lengths, minlength=layout.longest + 1))[:-1]
        rank = np.empty_like(lengths)
        rank[rows] = np.arange(rows.size)
        sequence, step = np.repeat(np.arange(lengths.size), lengths), _steps(lengths, backwards)
        # A token is read after all tokens of earlier steps, and after those of longer sequences at its own step.
        slot = (np.cumsum(sizes) - sizes)[step] + rank[sequence]
        token = np.empty_like(slot)
        token[slot] = np.arange(slot.size)
        return _make_packing(layout, token, slot, None, sizes.tolist(), rows)

    @classmethod
    def padded(cls, layout: Layout, backwards: bool = False) -> "Packing":
        """Keep the order of the sequences and pad each to the longest; waits for the device."""
        lengths = layout.lengths_B.cpu().numpy().astype(np.int64)
        sequence, step = np.repeat(np.arange(lengths.size), lengths), _steps(lengths, backwards)
        slot, slots = step * lengths.size + sequence, layout.longest * lengths.size
        token, padding = np.zeros(slots, np.int64), np.ones(slots, bool)
        token[slot], padding[slot] = np.arange(slot.size), False
        return _make_packing(layout, token, slot, padding, [lengths.size] * layout.longest, np.arange(lengths.size))

    def pack(self, x: Shaped[Tensor, "N *rest"]) -> Shaped[Tensor, "N2 *rest"]:
        """Return the tokens of the batch in the order they are read."""
        return self.order.pad(x)[0][0]

    def unpack(self, x: Shaped[Tensor, "N2 *rest"]) -> Shaped[Tensor, "N *rest"]:
        """Return tokens in reading order in the order of the batch."""
        return self.order.unpad([x[None]])


def _steps(lengths: NDArray[np.int64], backwards: bool) -> NDArray[np.int64]:
    """Return the step at which each token is read."""
    ends = np.cumsum(lengths)
    token = np.arange(ends[-1])
    return np.repeat(ends, lengths) - 1 - token if backwards else token - np.repeat(ends - lengths, lengths)


def _make_packing(
    layout: Layout,
    token: NDArray[np.int64],
    slot: NDArray[np.int64],
    padding: NDArray[np.bool_] | None,
    sizes: Sequence[int],
    rows: NDArray[np.int64],
) -> Packing:
    """Create a packing on the device of a layout."""
    device = layout.offsets.device
    gaps = None if padding is None or not padding.any() else torch.from_numpy(padding).to(device)
    order = BucketLayout(
        torch.from_numpy(token).to(device), torch.from_numpy(slot).to(device), gaps, ((1, token.size),)
    )
    return Packing(order, tuple(sizes), torch.from_numpy(rows).to(device))


class RecurrentLayers(nn.Module):
    """A stack of LSTM (Hochreiter & Schmidhuber 1997) or GRU (Cho et al. 2014) layers.

    Both are torch's. Its GRU applies the reset gate to the product with the last state, as cuDNN does; Cho et al. apply
    it to the state before the product.
    """

    def __init__(
        self, cell: str, inputs: int, width: int, layers: int = 1, bidirectional: bool = False, dropout: float = 0.0
    ) -> None:
        """Create the layers.

        Args:
            cell: "lstm" or "gru".
            inputs: Size of the input vectors.
            width: Size of the state in one direction.
            layers: Number of layers.
            bidirectional: Whether to read in both directions and concatenate the two states.
            dropout: Probability with which a value is dropped between layers.
        """
        super().__init__()
        if cell not in ("lstm", "gru"):
            raise ValueError(f"unknown recurrent cell '{cell}'; choose lstm or gru")
        between = dropout if layers > 1 else 0.0
        kind = nn.LSTM if cell == "lstm" else nn.GRU
        self.cells = kind(inputs, width, layers, dropout=between, bidirectional=bidirectional)
        self.drop, self.states = Dropout(between), Tap()
        self.gates = nn.ModuleList(Tap() for _ in range(0 if bidirectional else layers))
        if cell == "lstm":
            _open_forget_gates(self.cells)

    @property
    def state_count(self) -> int:
        """Return the number of tensors in a hidden state: 2 for an LSTM, 1 for a GRU."""
        return 2 if isinstance(self.cells, nn.LSTM) else 1

    @property
    def width(self) -> int:
        """Return the size of the state in one direction."""
        return self.cells.hidden_size

    def initial_state(self, rows: int, like: Tensor) -> HiddenState:
        """Return a hidden state of zeros for so many rows, with the dtype and device of `like`."""
        layers = self.cells.num_layers * (2 if self.cells.bidirectional else 1)
        return tuple(like.new_zeros(layers, rows, self.width) for _ in range(self.state_count))

    def forward(
        self, x_ND: Float[Tensor, "N D"], layout: Layout, start: HiddenState, backwards: bool = False
    ) -> tuple[Float[Tensor, "N D2"], HiddenState]:
        """Read whole sequences from the state `start`.

        torch's kernels read a sequence at once but never expose the gates. If a gate is watched, the sequences are read
        step by step instead.

        Returns:
            The last layer's state at every token, and the hidden state after each sequence.
        """
        if self._gates_watched():
            return self._step_by_step(x_ND, layout, start, backwards)
        packing = Packing.by_length(layout, backwards)
        if not packing.sizes:
            return self.states(x_ND.new_zeros(0, self.width * (2 if self.cells.bidirectional else 1))), start
        packed = PackedSequence(packing.pack(x_ND), torch.tensor(packing.sizes), None, None)
        begin = [state.index_select(1, packing.rows_B) for state in start]
        read, end = self.cells(packed, (begin[0], begin[1]) if self.state_count == 2 else begin[0])
        # Half-precision kernels end in their own dtype, and an empty sequence keeps the state it started with.
        ends = tuple(
            old.index_copy(1, packing.rows_B, new.to(old.dtype))
            for old, new in zip(start, end if self.state_count == 2 else (end,), strict=True)
        )
        return self.states(packing.unpack(read.data)), ends

    def all_states(self, x_ND: Float[Tensor, "N D"], layout: Layout, start: HiddenState) -> Float[Tensor, "N D2"]:
        """Return the last layer's state at every token, for one direction and without the final hidden state.

        On a CPU, oneDNN's fused LSTM is nearly twice as fast, but it reads padded rectangles and returns the state
        after the padding, not after each sequence.
        """
        if x_ND.device.type != "cpu" or self.state_count != 2 or self._gates_watched():
            states_ND: Tensor = self(x_ND, layout, start)[0]
            return states_ND
        buckets, members = bucket_evenly(layout, RECTANGLES)
        read = []
        for rectangle, rows in zip(buckets.pad(x_ND), members, strict=True):
            h, c = (state.index_select(1, torch.from_numpy(rows)) for state in start)
            if rectangle.shape[1] == 0:
                read.append(rectangle.new_zeros(*rectangle.shape[:2], self.width))
            else:
                read.append(self.cells(rectangle.transpose(0, 1), (h, c))[0].transpose(0, 1))
        collected_ND: Tensor = self.states(buckets.unpad(read))
        return collected_ND

    def step(self, x_RD: Float[Tensor, "R D"], hidden: HiddenState) -> tuple[Float[Tensor, "R D2"], HiddenState]:
        """Read one token a row, in one direction; return the last layer's state and the new hidden state."""
        assert not self.cells.bidirectional, "the backward direction starts at the end, which is not known yet"
        after: list[Sequence[Tensor]] = []
        for layer, weights in enumerate(self.cells.all_weights):
            x_RD = self.drop(x_RD) if layer else x_RD
            before = [state[layer] for state in hidden]
            after.append(self._cell(x_RD, before, weights, self.gates[layer]))
            x_RD = after[-1][0]
        if len(after) == 1:
            return x_RD, tuple(state[None] for state in after[0])
        return x_RD, tuple(torch.stack(states) for states in zip(*after, strict=True))

    def flops(self, counts: TokenCounts) -> int:
        """Return the operations of a forward pass."""
        return 2 * counts.tokens * sum(weight.numel() for weight in self.cells.parameters() if weight.ndim == 2)

    def _gates_watched(self) -> bool:
        return any(tap.watched for tap in named_taps(self.gates).values())

    def _cell(
        self, x_RD: Float[Tensor, "R D"], before: list[Tensor], weights: Sequence[Tensor], gates: nn.Module
    ) -> Sequence[Tensor]:
        """Advance one layer by one step."""
        if isinstance(gates, Tap) and gates.watched:
            cell = _lstm_cell if self.state_count == 2 else _gru_cell
            return cell(x_RD, before, weights, gates)
        if self.state_count == 2:
            return torch.lstm_cell(x_RD, before, *weights)
        return (torch.gru_cell(x_RD, *before, *weights),)

    def _step_by_step(
        self, x_ND: Float[Tensor, "N D"], layout: Layout, start: HiddenState, backwards: bool
    ) -> tuple[Float[Tensor, "N D2"], HiddenState]:
        """Compute `forward` one step at a time, with the rows in the order of the batch."""
        packing, hidden, tops = Packing.padded(layout, backwards), start, [x_ND.new_zeros(0, self.width)]
        with joining_records(named_taps(self.gates).values(), lambda steps: packing.unpack(torch.cat(steps))):
            for time, x_BD in enumerate(torch.split_with_sizes(packing.pack(x_ND), packing.sizes)):
                top_BD, after = self.step(x_BD, hidden)
                continues = (layout.lengths_B > time)[:, None]
                hidden = tuple(torch.where(continues, new, old) for new, old in zip(after, hidden, strict=True))
                tops.append(top_BD)
        return self.states(packing.unpack(torch.cat(tops))), hidden


def is_recurrent(model: nn.Module) -> bool:
    """Return whether a model has recurrent layers, which run as many steps as the longest sequence has tokens."""
    return any(isinstance(module, RecurrentLayers) for module in model.modules())


def _lstm_cell(x_RD: Tensor, before: list[Tensor], weights: Sequence[Tensor], gates: Tap) -> Sequence[Tensor]:
    """Compute an LSTM step whose gates pass a tap: input, forget and output."""
    input_weight, hidden_weight, input_bias, hidden_bias = weights
    i, f, g, o = (linear(x_RD, input_weight, input_bias) + linear(before[0], hidden_weight, hidden_bias)).chunk(4, -1)
    i, f, o = gates(torch.sigmoid(torch.stack([i, f, o], 1))).unbind(1)
    c_RD = f * before[1] + i * torch.tanh(g)
    return o * torch.tanh(c_RD), c_RD


def _gru_cell(x_RD: Tensor, before: list[Tensor], weights: Sequence[Tensor], gates: Tap) -> Sequence[Tensor]:
    """Compute a GRU step whose gates pass a tap: reset and update."""
    input_weight, hidden_weight, input_bias, hidden_bias = weights
    r, z, n = linear(x_RD, input_weight, input_bias).chunk(3, -1)
    r2, z2, n2 = linear(before[0], hidden_weight, hidden_bias).chunk(3, -1)
    r, z = gates(torch.sigmoid(torch.stack([r + r2, z + z2], 1))).unbind(1)
    return ((1 - z) * torch.tanh(n + r * n2) + z * before[0],)


def _open_forget_gates(cells: nn.RNNBase) -> None:
    """Initialise an LSTM's forget gates with a total bias of 1, so that it remembers (Jozefowicz et al. 2015, §2.2)."""
    with torch.no_grad():
        for name, bias in cells.named_parameters():
            if name.startswith("bias_ih"):
                bias.chunk(4)[1].fill_(1.0)
            elif name.startswith("bias_hh"):
                bias.chunk(4)[1].zero_()
