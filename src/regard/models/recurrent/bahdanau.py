"""The decoder of Bahdanau et al. 2015: before each step it looks at the source, from where it stood after the last.

c_i = Σ_j α_ij h_j, with α_i the softmax of a(s_{i-1}, h_j) (eq. 5, 6); s_i = f(s_{i-1}, y_{i-1}, c_i) (§3.1).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.memory import Memory
from regard.models.recurrent.known import walk
from regard.models.recurrent.state import RecurrentState, joined, spread_over_beams
from regard.nn.attention.alignment import Alignment
from regard.nn.dropout import Dropout
from regard.nn.embedding import Embedding
from regard.nn.ragged import Ragged
from regard.nn.recurrent import Recurrence
from regard.nn.tap import Tap


class AttentiveCell(nn.Module):
    """A recurrent step that looks first."""

    def __init__(self, cross: Alignment, recurrence: Recurrence) -> None:
        """The recurrence is given the token's vector and the context side by side."""
        super().__init__()
        self.cross, self.recurrence = cross, recurrence

    def forward(
        self, x_RD: Float[Tensor, "R D"], state: RecurrentState
    ) -> tuple[Float[Tensor, "R D2"], RecurrentState]:
        """New state, token and context side by side, and where the rows stand then."""
        assert state.kept is not None, "the cell looks at a memory"
        context_RD = self.cross.step(state.hidden[0][-1], state.kept)
        top_RD, hidden = self.recurrence.step(torch.cat([x_RD, context_RD], -1), state.hidden)
        return torch.cat([self.recurrence.states(top_RD), x_RD, context_RD], -1), state.moved(hidden)


class ReadOut(nn.Module):
    """What is scored against the vocabulary, made of state, token and context (§A.2.2).

    Maxout takes the larger of each two of 2l numbers (Goodfellow et al. 2013); linear takes l numbers as they are.
    """

    def __init__(self, inputs: int, width: int, maxout: bool, dropout: float = 0.0) -> None:
        """From so many numbers to `width`, the paper's l."""
        super().__init__()
        self.width, self.pieces = width, 2 if maxout else 1
        self.mix = nn.Linear(inputs, width * self.pieces)
        self.drop, self.output = Dropout(dropout), Tap()

    def forward(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N D2"]:
        """Read each token's state out."""
        mixed_ND: Tensor = self.mix(x_ND)
        if self.pieces > 1:
            mixed_ND = mixed_ND.view(*mixed_ND.shape[:1], self.width, self.pieces).amax(-1)
        read_ND: Tensor = self.drop(self.output(mixed_ND))
        return read_ND


class BahdanauDecoder(nn.Module):
    """RNNsearch: soft alignment from the previous state, step by step in training too."""

    def __init__(self, embedding: Embedding, cell: AttentiveCell, bridge: nn.Linear, readout: ReadOut) -> None:
        """Put built parts together; `bridge` makes the first state of the encoder's backward one."""
        super().__init__()
        self.embedding, self.cell, self.bridge, self.readout = embedding, cell, bridge, readout

    def forward(self, tokens: Ragged, memory: Memory) -> Float[Tensor, "N D"]:
        """What every target token's state, token and context read."""
        begin = self.start(len(tokens), memory)
        made_ND = walk(self.cell, self.embedding(tokens), tokens.layout, begin, self.cell)
        read_ND: Tensor = self.readout(made_ND)
        return read_ND

    def start(self, rows: int, memory: Memory) -> RecurrentState:
        """Rows at s_0 = tanh(W_s ←h_1), with ←h_1 where the encoder's way back ended (§A.2.2)."""
        first_BD = torch.tanh(self.bridge(memory.last[0][-1]))
        hidden = (first_BD[None], *(torch.zeros_like(first_BD)[None] for _ in memory.last[1:]))
        kept = self.cell.cross.keep(memory.states_ND, memory.states_ND, memory.layout)
        return RecurrentState(spread_over_beams(hidden, rows), kept, rows // len(memory.layout))

    def step(self, tokens_R: Int[Tensor, " R"], state: RecurrentState) -> tuple[Float[Tensor, "R D"], RecurrentState]:
        """One token further."""
        self.embedding.check(tokens_R, 0)
        made_RD, state = self.cell(self.embedding.embed(tokens_R, torch.zeros_like(tokens_R)), state)
        return self.readout(made_RD), state

    def select(self, state: RecurrentState, rows_R: Int[Tensor, " R"]) -> RecurrentState:
        """The search that goes on with these rows."""
        return state.select(rows_R)

    def join(self, states: Sequence[RecurrentState]) -> RecurrentState:
        """Several searches as one."""
        return joined(list(states))
