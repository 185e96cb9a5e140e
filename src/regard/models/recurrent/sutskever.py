"""Sequence to sequence through one vector (Sutskever et al. 2014): the decoder knows only the encoder's final state."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.memory import Memory
from regard.models.recurrent.encoder import RecurrentEncoder
from regard.models.recurrent.state import RecurrentState, spread_over_beams
from regard.models.seq2seq import Seq2Seq
from regard.models.tying import tie
from regard.nn.dropout import Dropout
from regard.nn.embedding import Embedding, OutputProjection
from regard.nn.ragged import Ragged
from regard.nn.recurrent import HiddenState, RecurrentLayers
from regard.recipe import Sutskever


class SutskeverDecoder(nn.Module):
    """Recurrent layers that start from v, the encoder's final state: p(y_t | v, y_1 … y_{t-1}) (§2, eq. 1)."""

    def __init__(self, embedding: Embedding, recurrence: RecurrentLayers, dropout: float = 0.0) -> None:
        """Put built parts together; `dropout` applies before the output projection."""
        super().__init__()
        self.embedding, self.recurrence, self.drop = embedding, recurrence, Dropout(dropout)

    @property
    def max_positions(self) -> int | None:
        """The longest target it can decode: None, as there is no limit."""
        return self.embedding.max_positions

    def forward(self, tokens: Ragged, memory: Memory) -> Float[Tensor, "N D"]:
        """Return the state at every target token, from one pass over the whole target."""
        states_ND: Tensor = self.drop(
            self.recurrence.all_states(self.embedding(tokens), tokens.layout, self._initial_state(memory))
        )
        return states_ND

    def start(self, rows: int, memory: Memory) -> RecurrentState:
        """Return the decoding state of `rows` rows that start where the encoder stopped."""
        return RecurrentState(spread_over_beams(self._initial_state(memory), rows), None, rows // len(memory.layout))

    def step(self, tokens_R: Int[Tensor, " R"], state: RecurrentState) -> tuple[Float[Tensor, "R D"], RecurrentState]:
        """Append one token to each row; return the state at that token, and the new decoding state."""
        self.embedding.check(tokens_R, 0)
        x_RD = self.embedding.embed(tokens_R, torch.zeros_like(tokens_R))
        x_RD, hidden = self.recurrence.step(x_RD, state.hidden)
        return self.drop(self.recurrence.states(x_RD)), state.advanced(hidden)

    def select(self, state: RecurrentState, rows_R: Int[Tensor, " R"]) -> RecurrentState:
        """Return the decoding state that continues from these rows."""
        return state.select(rows_R)

    def _initial_state(self, memory: Memory) -> HiddenState:
        recurrence = self.recurrence
        return memory.initial_state(recurrence.cells.num_layers, recurrence.width, recurrence.state_count)


def build_sutskever(settings: Sutskever, source_vocabulary: int, target_vocabulary: int) -> Seq2Seq:
    """Build the model for vocabularies of these sizes."""
    width, dropout = settings.width, settings.dropout
    source, target = (
        Embedding(vocabulary, settings.embedding, dropout=dropout)
        for vocabulary in (source_vocabulary, target_vocabulary)
    )
    shared = tie(settings.tied, source, target)
    encoder, decoder = (
        RecurrentLayers(settings.cell, settings.embedding, width, settings.layers, dropout=dropout) for _ in range(2)
    )
    return Seq2Seq(
        RecurrentEncoder(source, encoder, settings.backwards),
        SutskeverDecoder(target, decoder, dropout),
        OutputProjection(width, target_vocabulary, shared),
    )
