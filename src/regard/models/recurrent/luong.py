"""Attention from the current state (Luong et al. 2015): the decoder moves first, and then attends to the source.

h_t is the top state of stacked recurrent layers and c_t the context it attends to; h̃_t = tanh(W_c [c_t; h_t]) (eq. 5)
goes to the output projection (eq. 6) and, with input feeding, beside the next token's vector (§3.3).
"""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.memory import Memory
from regard.models.recurrent.encoder import RecurrentEncoder
from regard.models.recurrent.state import RecurrentState, force_step_by_step, spread_over_beams
from regard.models.seq2seq import Seq2Seq
from regard.models.tying import tie
from regard.nn.attention.kv_cache import KVCache
from regard.nn.attention.mask import AttentionMask
from regard.nn.attention.plan import plan_attention
from regard.nn.attention.scores import make_score_function
from regard.nn.attention.single_head import AttentionFormulas, PredictedWindow, SingleHeadAttention
from regard.nn.cost import TokenCounts, count_flops
from regard.nn.dropout import Dropout
from regard.nn.embedding import Embedding, OutputProjection
from regard.nn.ragged import Ragged
from regard.nn.recurrent import HiddenState, RecurrentLayers
from regard.nn.tap import Tap
from regard.recipe import Luong


class AttentionalLayer(nn.Module):
    """The layer above the recurrence: attention, and the attentional vector h̃."""

    formulas: ClassVar = AttentionFormulas(
        "h_t", "the decoder's state", "vector", "vector", "h̃ = tanh(W_c [context; h])"
    )

    def __init__(self, cross: SingleHeadAttention, width: int, memory_width: int, dropout: float = 0.0) -> None:
        """Create the layer for states of `width` and a memory of `memory_width`."""
        super().__init__()
        self.cross, self.combine = cross, nn.Linear(memory_width + width, width, bias=False)
        self.vector, self.drop = Tap(), Dropout(dropout)

    def forward(self, h_ND: Float[Tensor, "N D"], context_ND: Float[Tensor, "N D2"]) -> Float[Tensor, "N D"]:
        """Return h̃ = tanh(W_c [c; h])."""
        vector_ND: Tensor = self.drop(self.vector(torch.tanh(self.combine(torch.cat([context_ND, h_ND], -1)))))
        return vector_ND

    def flops(self, counts: TokenCounts) -> int:
        """Return the operations of a forward pass."""
        width = self.combine.out_features
        attention = self.cross.attention_flops(counts, width, self.combine.in_features - width)
        return count_flops(self.combine, counts) + attention


class LuongDecoder(nn.Module):
    """A decoder that attends from its current state; without input feeding, training takes one pass over the target."""

    def __init__(self, embedding: Embedding, recurrence: RecurrentLayers, top: AttentionalLayer, feeding: bool) -> None:
        """Put built parts together; with `feeding` the recurrence also reads the last attentional vector."""
        super().__init__()
        self.embedding, self.recurrence, self.top, self.feeding = embedding, recurrence, top, feeding

    @property
    def max_positions(self) -> int | None:
        """The longest target it can decode: None, as there is no limit."""
        return self.embedding.max_positions

    def forward(self, tokens: Ragged, memory: Memory) -> Float[Tensor, "N D"]:
        """Return the attentional vector at every target token."""
        x_ND = self.embedding(tokens)
        if self.feeding:
            return force_step_by_step(self._step, x_ND, tokens.layout, self.start(len(tokens), memory), self)
        # Without feeding, the recurrence does not depend on attention: all states first, then one attention for all.
        h_ND = self.recurrence.all_states(x_ND, tokens.layout, self._initial_state(memory))
        plan = plan_attention(AttentionMask(), tokens.layout, memory.layout)
        vector_ND: Tensor = self.top(h_ND, self.top.cross(h_ND, memory.states_ND, memory.values, plan))
        return vector_ND

    def start(self, rows: int, memory: Memory) -> RecurrentState:
        """Return the decoding state of `rows` rows that start where the encoder stopped, with nothing fed yet."""
        cache = self.top.cross.make_cache(memory.states_ND, memory.values, memory.layout)
        hidden = spread_over_beams(self._initial_state(memory), rows)
        feed_RD = torch.zeros_like(hidden[0][-1]) if self.feeding else None
        return RecurrentState(hidden, cache, rows // len(memory.layout), feed_RD)

    def step(self, tokens_R: Int[Tensor, " R"], state: RecurrentState) -> tuple[Float[Tensor, "R D"], RecurrentState]:
        """Append one token to each row; return the attentional vector at that token, and the new decoding state."""
        self.embedding.check(tokens_R, 0)
        return self._step(self.embedding.embed(tokens_R, torch.zeros_like(tokens_R)), state)

    def select(self, state: RecurrentState, rows_R: Int[Tensor, " R"]) -> RecurrentState:
        """Return the decoding state that continues from these rows."""
        return state.select(rows_R)

    def _step(self, x_RD: Float[Tensor, "R D"], state: RecurrentState) -> tuple[Float[Tensor, "R D2"], RecurrentState]:
        """Advance the recurrence, attend, and combine."""
        assert isinstance(state.cache, KVCache), "the decoder attends to a memory"
        # Input feeding (§3.3): the recurrence also reads the last h̃, and so what was attended to before.
        inputs_RD = x_RD if state.feed_RD is None else torch.cat([x_RD, state.feed_RD], -1)
        h_RD, hidden = self.recurrence.step(inputs_RD, state.hidden)
        h_RD = self.recurrence.states(h_RD)
        vector_RD = self.top(h_RD, self.top.cross.step(h_RD, state.cache))
        return vector_RD, state.advanced(hidden, vector_RD if self.feeding else None)

    def _initial_state(self, memory: Memory) -> HiddenState:
        recurrence = self.recurrence
        return memory.initial_state(recurrence.cells.num_layers, recurrence.width, recurrence.state_count)


def build_luong(settings: Luong, source_vocabulary: int, target_vocabulary: int) -> Seq2Seq:
    """Build the model for vocabularies of these sizes."""
    width, vectors, dropout = settings.width, settings.embedding, settings.dropout
    source, target = (
        Embedding(vocabulary, vectors, dropout=dropout) for vocabulary in (source_vocabulary, target_vocabulary)
    )
    shared = tie(settings.tied, source, target)
    focus = PredictedWindow(width, settings.reach) if settings.reach is not None else None
    cross = SingleHeadAttention(make_score_function(settings.score, width), focus)
    encoder, decoder = (
        RecurrentLayers(settings.cell, inputs, width, settings.layers, dropout=dropout)
        for inputs in (vectors, vectors + width if settings.feeding else vectors)
    )
    top = AttentionalLayer(cross, width, width, dropout)
    return Seq2Seq(
        RecurrentEncoder(source, encoder, settings.backwards),
        LuongDecoder(target, decoder, top, settings.feeding),
        OutputProjection(width, target_vocabulary, shared),
    )
