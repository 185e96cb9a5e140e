"""The decoder of Sutskever et al. 2014: all it knows of the source is the state in which the encoder stopped."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.memory import Memory
from regard.models.recurrent.state import RecurrentState, joined, spread_over_beams
from regard.nn.dropout import Dropout
from regard.nn.embedding import Embedding
from regard.nn.ragged import Ragged
from regard.nn.recurrent import Recurrence


class SutskeverDecoder(nn.Module):
    """p(y_t | v, y_1 … y_{t-1}) with v the encoder's last state (§2, eq. 1)."""

    def __init__(self, embedding: Embedding, recurrence: Recurrence, dropout: float = 0.0) -> None:
        """Put built parts together; `dropout` falls on what is scored against the vocabulary."""
        super().__init__()
        self.embedding, self.recurrence, self.drop = embedding, recurrence, Dropout(dropout)

    def forward(self, tokens: Ragged, memory: Memory) -> Float[Tensor, "N D"]:
        """The state at every target token, by one recurrence over the whole target."""
        states_ND: Tensor = self.drop(self.recurrence.states_at(self.embedding(tokens), tokens.layout, memory.last))
        return states_ND

    def start(self, rows: int, memory: Memory) -> RecurrentState:
        """Rows that stand where the encoder stopped."""
        beams = rows // len(memory.layout)
        return RecurrentState(spread_over_beams(memory.last, rows), None, beams)

    def step(self, tokens_R: Int[Tensor, " R"], state: RecurrentState) -> tuple[Float[Tensor, "R D"], RecurrentState]:
        """One token further."""
        self.embedding.check(tokens_R, 0)
        x_RD = self.embedding.embed(tokens_R, torch.zeros_like(tokens_R))
        x_RD, hidden = self.recurrence.step(x_RD, state.hidden)
        return self.drop(self.recurrence.states(x_RD)), state.moved(hidden)

    def select(self, state: RecurrentState, rows_R: Int[Tensor, " R"]) -> RecurrentState:
        """The search that goes on with these rows."""
        return state.select(rows_R)

    def join(self, states: Sequence[RecurrentState]) -> RecurrentState:
        """Several searches as one."""
        return joined(list(states))
