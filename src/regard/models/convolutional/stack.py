"""Convolutional sequence to sequence (Gehring et al. 2017): no recurrence, every position of a target at once.

Every sum of two is multiplied by √½, so that its variance stays (§3.4).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.beams import check_lines
from regard.models.memory import Memory
from regard.nn.attention.alignment import Alignment
from regard.nn.attention.kept import Kept
from regard.nn.attention.plan import Plan, plan
from regard.nn.attention.sight import Sight
from regard.nn.convolution import GatedConvolution, Window
from regard.nn.embedding import Embedding
from regard.nn.ragged import Ragged
from regard.nn.tap import Tap

HALF = math.sqrt(0.5)


class EncoderLayer(nn.Module):
    """A convolution in a residual connection (§3.2)."""

    def __init__(self, convolution: GatedConvolution) -> None:
        """Around a built convolution."""
        super().__init__()
        self.convolution, self.stream = convolution, Tap()

    def forward(self, x_ND: Float[Tensor, "N D"], window: Window) -> Float[Tensor, "N D"]:
        """Pass a ragged batch through the layer."""
        left: Tensor = self.stream((x_ND + self.convolution(x_ND, window)) * HALF)
        return left


class ConvolutionalEncoder(nn.Module):
    """Gated convolutions upon each other; each sees further by the width of its kernel."""

    def __init__(
        self, embedding: Embedding, enter: nn.Linear, layers: Iterable[EncoderLayer], leave: nn.Linear
    ) -> None:
        """`enter` and `leave` lead from the width of embeddings to that of the layers and back."""
        super().__init__()
        self.embedding, self.enter, self.leave = embedding, enter, leave
        self.layers = nn.ModuleList(layers)
        self.states = Tap()

    def encode(self, tokens: Ragged) -> Memory:
        """Keys z for the decoder's attention, and values z + e, which know the token itself too (§3.3)."""
        e_ND = self.embedding(tokens)
        x_ND = self.enter(e_ND)
        layers = [each for each in self.layers if isinstance(each, EncoderLayer)]
        window = Window.of(tokens.layout, layers[0].convolution.kernel, causal=False)
        for layer in layers:
            x_ND = layer(x_ND, window)
        z_ND = self.states(self.leave(x_ND))
        return Memory(z_ND, tokens.layout, values_ND=z_ND + e_ND)


class DecoderLayer(nn.Module):
    """A causal convolution, and attention to the source from each place (§3.3)."""

    def __init__(self, convolution: GatedConvolution, cross: Alignment, query: nn.Linear, context: nn.Linear) -> None:
        """`query` and `context` lead from the width of the layers to that of embeddings and back."""
        super().__init__()
        self.convolution, self.cross, self.query, self.context = convolution, cross, query, context
        self.stream = Tap()

    def forward(
        self, x_ND: Float[Tensor, "N D"], g_ND: Float[Tensor, "N D2"], memory: Memory, window: Window, there: Plan
    ) -> Float[Tensor, "N D"]:
        """Pass a ragged batch through the layer; `g_ND` are the targets' embeddings."""
        h_ND = (x_ND + self.convolution(x_ND, window)) * HALF
        assert memory.values_ND is not None, "a convolutional encoder says what is mixed"
        c_ND = self.cross(self.query(h_ND) + g_ND, memory.states_ND, memory.values_ND, there)
        return self._leave(h_ND, c_ND, memory.layout.lengths_B[there.queries.sequence_N])

    def step(
        self, x_RD: Float[Tensor, "R D"], g_RD: Float[Tensor, "R D2"], before: Float[Tensor, "R behind D"], kept: Kept
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "R behind D"]]:
        """Pass one new token a row through the layer."""
        y_RD, before = self.convolution.step(x_RD, before)
        h_RD = (x_RD + y_RD) * HALF
        c_RD = self.cross.step(self.query(h_RD) + g_RD, kept)
        assert kept.mask_BK is not None, "a memory has an end"
        beams = x_RD.shape[0] // kept.mask_BK.shape[0]
        return self._leave(h_RD, c_RD, kept.mask_BK.sum(-1).repeat_interleave(beams)), before

    def _leave(
        self, h_ND: Float[Tensor, "N D"], c_ND: Float[Tensor, "N D2"], sources_N: Int[Tensor, " N"]
    ) -> Float[Tensor, "N D"]:
        """The context added to the stream; m · √(1/m) makes up for the mean of m values that it is (§3.4)."""
        grown_ND = c_ND * sources_N.to(c_ND.dtype).sqrt()[:, None]
        left: Tensor = self.stream((h_ND + self.context(grown_ND)) * HALF)
        return left


@dataclass(frozen=True, eq=False)
class ConvolutionalState:
    """How far a search has come: the tokens each layer still sees, for R rows of which W in a line share a memory."""

    before: tuple[Float[Tensor, "R behind D"], ...]
    position_R: Int[Tensor, " R"]
    length: int
    """No row has come further than this."""
    kept: Kept
    """One for all layers: none of them projects the memory."""
    beams: int


class ConvolutionalDecoder(nn.Module):
    """Causal gated convolutions, each with its own attention to the source (§3.3)."""

    def __init__(
        self, embedding: Embedding, enter: nn.Linear, layers: Iterable[DecoderLayer], leave: nn.Linear
    ) -> None:
        """`enter` and `leave` lead from the width of embeddings to that of the layers and back."""
        super().__init__()
        self.embedding, self.enter, self.leave = embedding, enter, leave
        self.layers = nn.ModuleList(layers)
        self.states = Tap()

    def forward(self, tokens: Ragged, memory: Memory) -> Float[Tensor, "N D"]:
        """The state of every target token."""
        g_ND = self.embedding(tokens)
        x_ND = self.enter(g_ND)
        window = Window.of(tokens.layout, self._blocks()[0].convolution.kernel, causal=True)
        there = plan(Sight(), tokens.layout, memory.layout)
        for layer in self._blocks():
            x_ND = layer(x_ND, g_ND, memory, window, there)
        return self._read(x_ND)

    def start(self, rows: int, memory: Memory) -> ConvolutionalState:
        """Rows that have seen nothing but the memory."""
        assert memory.values_ND is not None, "a convolutional encoder says what is mixed"
        blocks = self._blocks()
        behind, width = blocks[0].convolution.kernel - 1, self.enter.out_features
        before = tuple(memory.states_ND.new_zeros(rows, behind, width) for _ in blocks)
        position_R = torch.zeros(rows, dtype=torch.int64, device=memory.states_ND.device)
        kept = blocks[0].cross.keep(memory.states_ND, memory.values_ND, memory.layout)
        return ConvolutionalState(before, position_R, 0, kept, rows // len(memory.layout))

    def step(
        self, tokens_R: Int[Tensor, " R"], state: ConvolutionalState
    ) -> tuple[Float[Tensor, "R D"], ConvolutionalState]:
        """One token further."""
        self.embedding.check(tokens_R, state.length + 1)
        g_RD = self.embedding.embed(tokens_R, state.position_R)
        x_RD, after = self.enter(g_RD), []
        for layer, before in zip(self._blocks(), state.before, strict=True):
            x_RD, seen = layer.step(x_RD, g_RD, before, state.kept)
            after.append(seen)
        moved = ConvolutionalState(tuple(after), state.position_R + 1, state.length + 1, state.kept, state.beams)
        return self._read(x_RD), moved

    def select(self, state: ConvolutionalState, rows_R: Int[Tensor, " R"]) -> ConvolutionalState:
        """The search that goes on with these rows; no memory moves while every line stays."""
        check_lines(rows_R, state.beams, state.position_R.shape[0])
        leave = rows_R.shape[0] < state.position_R.shape[0]
        return ConvolutionalState(
            tuple(each.index_select(0, rows_R) for each in state.before),
            state.position_R.index_select(0, rows_R),
            state.length,
            state.kept.rows(rows_R[:: state.beams] // state.beams) if leave else state.kept,
            state.beams,
        )

    def join(self, states: Sequence[ConvolutionalState]) -> ConvolutionalState:
        """Several searches as one; each row knows its own position."""
        return ConvolutionalState(
            tuple(torch.cat(several) for several in zip(*(each.before for each in states), strict=True)),
            torch.cat([each.position_R for each in states]),
            max(each.length for each in states),
            Kept.joined([each.kept for each in states]),
            states[0].beams,
        )

    def _read(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N D2"]:
        """What is scored against the vocabulary."""
        read: Tensor = self.embedding.drop(self.states(self.leave(x_ND)))
        return read

    def _blocks(self) -> list[DecoderLayer]:
        """The layers, as what they are."""
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]
