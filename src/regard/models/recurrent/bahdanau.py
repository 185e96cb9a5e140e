"""RNNsearch (Bahdanau et al. 2015): before each step, the decoder attends to the source from its previous state.

c_i = Σ_j α_ij h_j, with α_i the softmax of a(s_{i-1}, h_j) (eq. 5, 6); s_i = f(s_{i-1}, y_{i-1}, c_i) (§3.1).
"""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.memory import Memory
from regard.models.recurrent.encoder import RecurrentEncoder
from regard.models.recurrent.state import MemoryCache, RecurrentState, force_step_by_step, spread_over_beams
from regard.models.seq2seq import Seq2Seq
from regard.models.tying import tie
from regard.nn.attention.kv_cache import KVCache
from regard.nn.attention.scores import AdditiveScore
from regard.nn.attention.single_head import AttentionFormulas, SingleHeadAttention
from regard.nn.cost import TokenCounts, count_flops
from regard.nn.dropout import Dropout
from regard.nn.embedding import Embedding, OutputProjection
from regard.nn.ragged import Ragged
from regard.nn.recurrent import RecurrentLayers
from regard.nn.tap import Tap
from regard.recipe import Bahdanau


class AttendingCell(nn.Module):
    """A recurrent step that attends first: base class of what `BahdanauDecoder` repeats."""

    def __init__(self, recurrence: RecurrentLayers) -> None:
        """Create the cell; the recurrence reads the token's vector and the context, concatenated."""
        super().__init__()
        self.recurrence = recurrence

    def make_cache(self, memory: Memory) -> MemoryCache:
        """Return what attention needs of a memory, computed once for all steps."""
        raise NotImplementedError

    def attend(self, s_RD: Float[Tensor, "R D"], cache: MemoryCache) -> Float[Tensor, "R D2"]:
        """Return the context of each row, given its state before the step."""
        raise NotImplementedError

    def forward(
        self, x_RD: Float[Tensor, "R D"], state: RecurrentState
    ) -> tuple[Float[Tensor, "R D2"], RecurrentState]:
        """Return the concatenation of new state, token and context, and the next decoding state."""
        assert state.cache is not None, "the cell attends to a memory"
        # The query is s_{i-1}, the state before this step (eq. 6), so attention comes before the recurrence.
        context_RD = self.attend(state.hidden[0][-1], state.cache)
        top_RD, hidden = self.recurrence.step(torch.cat([x_RD, context_RD], -1), state.hidden)
        return torch.cat([self.recurrence.states(top_RD), x_RD, context_RD], -1), state.advanced(hidden)


class AttentiveCell(AttendingCell):
    """A recurrent step that first attends to all states of the memory."""

    formulas: ClassVar = AttentionFormulas(
        "s_{i−1}",
        "the decoder's state before this step",
        "recurrence.states",
        "state",
        "s_i = f(s_{i−1}, [y_{i−1}; context])",
    )

    def __init__(self, cross: SingleHeadAttention, recurrence: RecurrentLayers, memory_width: int) -> None:
        """Put built parts together."""
        super().__init__(recurrence)
        self.cross, self.memory_width = cross, memory_width

    def make_cache(self, memory: Memory) -> KVCache:
        """Return keys and values of a memory."""
        return self.cross.make_cache(memory.states_ND, memory.values, memory.layout)

    def attend(self, s_RD: Float[Tensor, "R D"], cache: MemoryCache) -> Float[Tensor, "R D2"]:
        """Return the context of each row, given its state before the step."""
        assert isinstance(cache, KVCache), "the cache of this cell"
        context_RD: Tensor = self.cross.step(s_RD, cache)
        return context_RD

    def flops(self, counts: TokenCounts) -> int:
        """Return the operations of a forward pass."""
        attention = self.cross.attention_flops(counts, self.recurrence.width, self.memory_width)
        return count_flops(self.recurrence, counts) + attention


class ReadOut(nn.Module):
    """The layer before the output projection, which combines state, token and context (§A.2.2).

    Maxout takes the larger of each two of 2l numbers (Goodfellow et al. 2013); linear makes l numbers.
    """

    def __init__(self, inputs: int, width: int, maxout: bool, dropout: float = 0.0) -> None:
        """Create the read-out from `inputs` numbers to `width`, the paper's l."""
        super().__init__()
        self.width, self.pieces = width, 2 if maxout else 1
        self.mix = nn.Linear(inputs, width * self.pieces)
        self.drop, self.output = Dropout(dropout), Tap()

    def forward(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N D2"]:
        """Transform each token by itself."""
        mixed_ND: Tensor = self.mix(x_ND)
        if self.pieces > 1:
            mixed_ND = mixed_ND.view(*mixed_ND.shape[:1], self.width, self.pieces).amax(-1)
        output_ND: Tensor = self.drop(self.output(mixed_ND))
        return output_ND


class BahdanauDecoder(nn.Module):
    """A decoder that attends from its previous state, and so decodes step by step in training too."""

    def __init__(self, embedding: Embedding, cell: AttendingCell, bridge: nn.Linear, readout: ReadOut) -> None:
        """Put built parts together; `bridge` maps the memory's summary to the first state."""
        super().__init__()
        self.embedding, self.cell, self.bridge, self.readout = embedding, cell, bridge, readout

    @property
    def max_positions(self) -> int | None:
        """The longest target it can decode: None, as there is no limit."""
        return self.embedding.max_positions

    def forward(self, tokens: Ragged, memory: Memory) -> Float[Tensor, "N D"]:
        """Return the read-out at every target token."""
        start = self.start(len(tokens), memory)
        outputs_ND = force_step_by_step(self.cell, self.embedding(tokens), tokens.layout, start, self.cell)
        read_ND: Tensor = self.readout(outputs_ND)
        return read_ND

    def start(self, rows: int, memory: Memory) -> RecurrentState:
        """Return the decoding state of `rows` rows at s_0 = tanh(W_s ←h_1) (§A.2.2).

        ←h_1 is the final state of the encoder's backward direction.

        Raises:
            ValueError: The memory's summary is not as wide as the bridge.
        """
        summary_BD = memory.summary_BD
        if summary_BD.shape[1] != self.bridge.in_features:
            raise ValueError(
                f"this decoder's first state is made from a vector of width {self.bridge.in_features}, but the encoder "
                f"leaves one of width {summary_BD.shape[1]}; build the decoder with a bridge of that width"
            )
        first_BD = torch.tanh(self.bridge(summary_BD))
        zeros = (torch.zeros_like(first_BD)[None] for _ in range(self.cell.recurrence.state_count - 1))
        hidden = spread_over_beams((first_BD[None], *zeros), rows)
        return RecurrentState(hidden, self.cell.make_cache(memory), rows // len(memory.layout))

    def step(self, tokens_R: Int[Tensor, " R"], state: RecurrentState) -> tuple[Float[Tensor, "R D"], RecurrentState]:
        """Append one token to each row; return the read-out at that token, and the new decoding state."""
        self.embedding.check(tokens_R, 0)
        outputs_RD, state = self.cell(self.embedding.embed(tokens_R, torch.zeros_like(tokens_R)), state)
        return self.readout(outputs_RD), state

    def select(self, state: RecurrentState, rows_R: Int[Tensor, " R"]) -> RecurrentState:
        """Return the decoding state that continues from these rows."""
        return state.select(rows_R)

    def flops(self, counts: TokenCounts) -> int:
        """Return the operations of a forward pass; the bridge is applied once a sequence."""
        steps = count_flops(self.cell, counts) + count_flops(self.readout, counts)
        return steps + 2 * self.bridge.weight.numel() * counts.sequences


def make_decoder(settings: Bahdanau, embedding: Embedding, memory_width: int, summary_width: int) -> BahdanauDecoder:
    """Make the decoder, for a memory of this width whose summary has that width."""
    width, vectors = settings.width, settings.embedding
    cell = AttentiveCell(
        SingleHeadAttention(AdditiveScore(width, memory_width, width)),
        RecurrentLayers(settings.cell, vectors + memory_width, width),
        memory_width,
    )
    bridge, maxout = nn.Linear(summary_width, width), settings.readout == "maxout"
    readout = ReadOut(vectors + width + memory_width, settings.readout_width, maxout, settings.dropout)
    return BahdanauDecoder(embedding, cell, bridge, readout)


def build_bahdanau(settings: Bahdanau, source_vocabulary: int, target_vocabulary: int) -> Seq2Seq:
    """Build the model for vocabularies of these sizes."""
    source, target = (
        Embedding(vocabulary, settings.embedding, dropout=settings.dropout)
        for vocabulary in (source_vocabulary, target_vocabulary)
    )
    shared = tie(settings.tied, source, target)
    decoder = make_decoder(settings, target, 2 * settings.width, settings.width)
    recurrence = RecurrentLayers(settings.cell, settings.embedding, settings.width, bidirectional=True)
    output = OutputProjection(settings.readout_width, target_vocabulary, shared)
    return Seq2Seq(RecurrentEncoder(source, recurrence), decoder, output)
