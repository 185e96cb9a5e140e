"""The decoder of Luong et al. 2015: at each step it moves first, and then looks at the source from where it stands.

h_t is the top state of a stacked recurrence; c_t the context it finds; h̃_t = tanh(W_c [c_t; h_t]) (eq. 5) is scored
against the vocabulary (eq. 6) and, with input feeding, set beside the next token's vector (§3.3).
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.memory import Memory
from regard.models.recurrent.known import walk
from regard.models.recurrent.state import RecurrentState, joined, spread_over_beams
from regard.nn.attention.alignment import Alignment
from regard.nn.attention.plan import plan
from regard.nn.attention.sight import Sight
from regard.nn.dropout import Dropout
from regard.nn.embedding import Embedding
from regard.nn.ragged import Ragged
from regard.nn.recurrent import Recurrence
from regard.nn.tap import Tap


class AttentionalTop(nn.Module):
    """What stands upon the recurrence: attention, and the attentional vector."""

    def __init__(self, cross: Alignment, width: int, memory: int, dropout: float = 0.0) -> None:
        """For states of `width` that look at states of width `memory`."""
        super().__init__()
        self.cross, self.combine = cross, nn.Linear(memory + width, width, bias=False)
        self.vector, self.drop = Tap(), Dropout(dropout)

    def forward(self, h_ND: Float[Tensor, "N D"], context_ND: Float[Tensor, "N D2"]) -> Float[Tensor, "N D"]:
        """h̃ = tanh(W_c [c; h])."""
        vector_ND: Tensor = self.drop(self.vector(torch.tanh(self.combine(torch.cat([context_ND, h_ND], -1)))))
        return vector_ND


class LuongDecoder(nn.Module):
    """Attention from the current state; without input feeding a whole target is one recurrence and one attention."""

    def __init__(self, embedding: Embedding, recurrence: Recurrence, top: AttentionalTop, feeding: bool) -> None:
        """Put built parts together; with `feeding` the recurrence takes the last attentional vector too."""
        super().__init__()
        self.embedding, self.recurrence, self.top, self.feeding = embedding, recurrence, top, feeding

    def forward(self, tokens: Ragged, memory: Memory) -> Float[Tensor, "N D"]:
        """The attentional vector at every target token."""
        x_ND = self.embedding(tokens)
        if self.feeding:
            return walk(self._move, x_ND, tokens.layout, self.start(len(tokens), memory), self)
        h_ND = self.recurrence.states_at(x_ND, tokens.layout, memory.last)
        there = plan(Sight(), tokens.layout, memory.layout)
        vector_ND: Tensor = self.top(h_ND, self.top.cross(h_ND, memory.states_ND, memory.states_ND, there))
        return vector_ND

    def start(self, rows: int, memory: Memory) -> RecurrentState:
        """Rows that stand where the encoder stopped, with nothing fed yet."""
        kept = self.top.cross.keep(memory.states_ND, memory.states_ND, memory.layout)
        hidden = spread_over_beams(memory.last, rows)
        feed_RD = torch.zeros_like(hidden[0][-1]) if self.feeding else None
        return RecurrentState(hidden, kept, rows // len(memory.layout), feed_RD)

    def step(self, tokens_R: Int[Tensor, " R"], state: RecurrentState) -> tuple[Float[Tensor, "R D"], RecurrentState]:
        """One token further."""
        self.embedding.check(tokens_R, 0)
        return self._move(self.embedding.embed(tokens_R, torch.zeros_like(tokens_R)), state)

    def select(self, state: RecurrentState, rows_R: Int[Tensor, " R"]) -> RecurrentState:
        """The search that goes on with these rows."""
        return state.select(rows_R)

    def join(self, states: Sequence[RecurrentState]) -> RecurrentState:
        """Several searches as one."""
        return joined(list(states))

    def _move(self, x_RD: Float[Tensor, "R D"], state: RecurrentState) -> tuple[Float[Tensor, "R D2"], RecurrentState]:
        """Move, look, and combine."""
        assert state.kept is not None, "the decoder looks at a memory"
        given_RD = x_RD if state.feed_RD is None else torch.cat([x_RD, state.feed_RD], -1)
        h_RD, hidden = self.recurrence.step(given_RD, state.hidden)
        h_RD = self.recurrence.states(h_RD)
        vector_RD = self.top(h_RD, self.top.cross.step(h_RD, state.kept))
        return vector_RD, state.moved(hidden, vector_RD if self.feeding else None)
