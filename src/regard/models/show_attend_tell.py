"""Show, Attend and Tell (Xu et al. 2015): an LSTM that attends to a region of a picture before each word.

α_t = softmax of a(a_i, h_{t-1}) over regions i (eq. 4, 5). The context ẑ_t is Σ_i α_ti a_i (soft, eq. 13), or the
vector of one region, which is sampled from α_t in training and is the most probable one afterwards (hard, eq. 8, 9).
It is multiplied by β_t = σ(f_β(h_{t-1})) (§4.2.1). Without attention, the LSTM reads one vector of the picture before
the first word (Vinyals et al. 2015, §3.1).
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from regard.models.image_encoder import make_image_encoder
from regard.models.memory import Memory
from regard.models.recurrent.bahdanau import AttendingCell, BahdanauDecoder, ReadOut
from regard.models.recurrent.state import MemoryCache, RecurrentState, force_step_by_step, spread_over_beams
from regard.models.recurrent.sutskever import SutskeverDecoder
from regard.models.seq2seq import Seq2Seq
from regard.nn.attention.kv_cache import KVCache
from regard.nn.attention.scores import AdditiveScore
from regard.nn.attention.single_head import AttentionFormulas, SingleHeadAttention
from regard.nn.cost import TokenCounts, count_flops
from regard.nn.dropout import thread_generator
from regard.nn.embedding import Embedding, OutputProjection
from regard.nn.pooling import MeanPooling
from regard.nn.ragged import Ragged
from regard.nn.recurrent import HiddenState, RecurrentLayers
from regard.nn.tap import Tap
from regard.recipe import Captioning, ImageSettings, ShowAttendTell


@dataclass(frozen=True, eq=False)
class RegionCache:
    """Keys and values of the regions of each picture, and which captions are trained with sampled regions."""

    regions: KVCache
    sampled_B: Bool[Tensor, " B"] | None
    """None samples nothing."""

    def select_rows(self, rows: Tensor) -> "RegionCache":
        """Return the cache of these pictures, in this order."""
        sampled_B = None if self.sampled_B is None else self.sampled_B.index_select(0, rows)
        return RegionCache(self.regions.select_rows(rows), sampled_B)

    def first_rows(self, rows: int) -> "RegionCache":
        """Return the cache of the first pictures, as views."""
        sampled_B = None if self.sampled_B is None else self.sampled_B[:rows]
        return RegionCache(self.regions.first_rows(rows), sampled_B)


class RegionAttention(SingleHeadAttention):
    """Soft or hard attention to regions.

    `probabilities` is the tap of α_t, and `weights` that of what multiplies the regions: the same for soft attention,
    and 1 for one region for hard attention.
    """

    def __init__(self, score: AdditiveScore, kind: str, temperature: float = 1.0) -> None:
        """Create attention of a kind: soft, hard or gumbel."""
        super().__init__(score)
        self.kind, self.temperature, self.probabilities = kind, temperature, Tap()

    def attend_to_regions(
        self, q_RD: Float[Tensor, "R D"], cache: RegionCache
    ) -> tuple[Float[Tensor, "R D2"], Float[Tensor, "R L"], Float[Tensor, "R L"]]:
        """Return the context of each row, α_t, and what multiplied the regions."""
        regions, q_RD = cache.regions, self.query(q_RD)
        pictures = regions.k_BHKE.shape[0]
        q_BHQE = q_RD.view(pictures, 1, q_RD.shape[0] // max(1, pictures), q_RD.shape[1])
        scores_BHQK = self.scores(self.score.match(q_BHQE, regions.k_BHKE))
        hidden_BHQK = ~self.mask(regions.mask_for(q_BHQE))
        scores_BHQK = scores_BHQK.masked_fill(hidden_BHQK, torch.finfo(scores_BHQK.dtype).min)
        p_BHQK = self.probabilities(scores_BHQK.softmax(-1))
        weights_BHQK = self.weights(self._choose(p_BHQK, scores_BHQK, cache.sampled_B))
        context_RD: Tensor = self.context((weights_BHQK.to(regions.v_BHKE.dtype) @ regions.v_BHKE).flatten(0, 2))
        return context_RD, p_BHQK.flatten(0, 2), weights_BHQK.flatten(0, 2)

    def _choose(self, p_BHQK: Tensor, scores_BHQK: Tensor, sampled_B: Tensor | None) -> Tensor:
        """Return what multiplies the regions."""
        if self.kind == "soft":
            return p_BHQK
        if not self.training or sampled_B is None:
            return _one_hot(p_BHQK, p_BHQK)
        noise = torch.empty_like(p_BHQK).exponential_(generator=thread_generator(p_BHQK.device))
        noisy_BHQK = scores_BHQK - noise.clamp(min=torch.finfo(noise.dtype).tiny).log()  # argmax has distribution p
        chosen_BHQK = _one_hot(noisy_BHQK, p_BHQK)
        if self.kind == "gumbel":
            soft_BHQK = (noisy_BHQK / self.temperature).softmax(-1)
            chosen_BHQK = chosen_BHQK + soft_BHQK - soft_BHQK.detach()
        return torch.where(sampled_B[:, None, None, None], chosen_BHQK, p_BHQK)


class RegionCell(AttendingCell):
    """An LSTM step that first attends to regions."""

    formulas: ClassVar = AttentionFormulas(
        "h_{t−1}",
        "the decoder's state before this step",
        "recurrence.states",
        "state",
        "h_t = LSTM(h_{t−1}, [E y_{t−1}; β_t · context])",
    )

    def __init__(self, cross: RegionAttention, recurrence: RecurrentLayers, memory_width: int) -> None:
        """Put built parts together."""
        super().__init__(recurrence)
        self.cross, self.memory_width = cross, memory_width
        self.gate, self.beta = nn.Linear(recurrence.width, 1), Tap()

    def make_cache(self, memory: Memory) -> RegionCache:
        """Return keys and values of the regions."""
        return RegionCache(self.cross.make_cache(memory.states_ND, memory.values, memory.layout), None)

    def attend(self, s_RD: Float[Tensor, "R D"], cache: MemoryCache) -> Float[Tensor, "R D2"]:
        """Return the gated context of each row, given its state before the step."""
        return self._attend(s_RD, cache)[0]

    def forward(
        self, x_RD: Float[Tensor, "R D"], state: RecurrentState
    ) -> tuple[Float[Tensor, "R D2"], RecurrentState]:
        """Return the concatenation of new state, token, context, α_t and what multiplied the regions."""
        assert state.cache is not None, "the cell attends to a memory"
        context_RD, p_RL, weights_RL = self._attend(state.hidden[0][-1], state.cache)
        top_RD, hidden = self.recurrence.step(torch.cat([x_RD, context_RD], -1), state.hidden)
        outputs = self.recurrence.states(top_RD), x_RD, context_RD, p_RL, weights_RL
        return torch.cat(outputs, -1), state.advanced(hidden)

    def flops(self, counts: TokenCounts) -> int:
        """Return the operations of a forward pass."""
        attention = self.cross.attention_flops(counts, self.recurrence.width, self.memory_width)
        return count_flops(self.recurrence, counts) + attention

    def _attend(self, s_RD: Tensor, cache: MemoryCache) -> tuple[Tensor, Tensor, Tensor]:
        assert isinstance(cache, RegionCache), "the cache of this cell"
        context_RD, p_RL, weights_RL = self.cross.attend_to_regions(s_RD, cache)
        return self.beta(torch.sigmoid(self.gate(s_RD))) * context_RD, p_RL, weights_RL


class AttendedTokens(NamedTuple):
    """The result of teacher forcing, with attention."""

    states_ND: Float[Tensor, "N D"]
    """The read-out at every target token."""
    probabilities_NL: Float[Tensor, "N L"]
    """α_t at every token."""
    weights_NL: Float[Tensor, "N L"]
    """What multiplied the regions at every token."""
    sampled_B: Bool[Tensor, " B"] | None
    """The captions whose regions were sampled; None if none were."""


class RegionDecoder(BahdanauDecoder):
    """A decoder that attends to regions from its previous state; its first state is made of their mean (§3.1.2)."""

    def __init__(
        self, embedding: Embedding, cell: RegionCell, bridges: tuple[nn.Linear, nn.Linear | None], readout: ReadOut
    ) -> None:
        """Put built parts together; the bridges make the first hidden state, and the first memory cells of an LSTM."""
        super().__init__(embedding, cell, bridges[0], readout)
        self.cell_bridge, self.attention = bridges[1], cell.cross
        self.baseline = RewardBaseline() if cell.cross.kind == "hard" else None
        self.expected = 0.0
        """Share of the captions that are trained with the mean of the regions although attention is hard."""

    def forward(self, tokens: Ragged, memory: Memory) -> Float[Tensor, "N D"]:
        """Return the read-out at every target token."""
        return self.attended(tokens, memory).states_ND

    def attended(self, tokens: Ragged, memory: Memory) -> AttendedTokens:
        """Return the read-out and the attention at every target token; hard attention samples in training mode."""
        start, sampled_B = self.start(len(tokens), memory), None
        assert isinstance(start.cache, RegionCache)
        if self.training and self.attention.kind != "soft":
            draws_B = torch.empty(len(tokens), device=tokens.device)
            draws_B.uniform_(generator=thread_generator(tokens.device))
            sampled_B = draws_B >= (self.expected if self.attention.kind == "hard" else 0.0)
            start = RecurrentState(start.hidden, RegionCache(start.cache.regions, sampled_B), start.beams)
        outputs_ND = force_step_by_step(self.cell, self.embedding(tokens), tokens.layout, start, self.cell)
        read, attention = self._split(outputs_ND)
        return AttendedTokens(self.readout(read), *attention.chunk(2, -1), sampled_B)

    def start(self, rows: int, memory: Memory) -> RecurrentState:
        """Return the decoding state of `rows` rows at h_0 = tanh(f_h(mean)), c_0 = tanh(f_c(mean)) (§3.1.2)."""
        state = super().start(rows, memory)
        if self.cell_bridge is None:
            return state
        cells_BD = torch.tanh(self.cell_bridge(memory.summary_BD))
        hidden = state.hidden[0], *spread_over_beams((cells_BD[None],), rows)
        return RecurrentState(hidden, state.cache, state.beams)

    def step(self, tokens_R: Tensor, state: RecurrentState) -> tuple[Float[Tensor, "R D"], RecurrentState]:
        """Append one token to each row; return the read-out at that token, and the new decoding state."""
        self.embedding.check(tokens_R, 0)
        outputs_RD, state = self.cell(self.embedding.embed(tokens_R, torch.zeros_like(tokens_R)), state)
        return self.readout(self._split(outputs_RD)[0]), state

    def _split(self, outputs_ND: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the read-out reads, and the attention."""
        width = self.readout.mix.in_features
        return outputs_ND[:, :width], outputs_ND[:, width:]


class RewardBaseline(nn.Module):
    """The moving average b of the log-probabilities of captions, from which REINFORCE counts (Xu et al. 2015, §4.1).

    b ← 0.9 b + 0.1 log p(y | s, a). It is stored with the weights, so that a resumed run continues with it.
    """

    DECAY: ClassVar[float] = 0.9

    def __init__(self) -> None:
        """Start without a value."""
        super().__init__()
        self.sums = nn.Parameter(torch.zeros(2), requires_grad=False)  # of values and of their weights

    @property
    def value(self) -> Float[Tensor, ""]:
        """The average; 0 before the first value."""
        return self.sums[0] / self.sums[1].clamp(min=1 - self.DECAY)

    @torch.no_grad()
    def update(self, logprobs_B: Float[Tensor, " B"]) -> None:
        """Average in the log-probabilities of captions; all processes have the same average."""
        mean = logprobs_B.mean().to(self.sums.dtype)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(mean)
            mean /= torch.distributed.get_world_size()
        self.sums.lerp_(torch.stack([mean, torch.ones_like(mean)]), 1 - self.DECAY)


class ImageVectorDecoder(SutskeverDecoder):
    """Recurrent layers that read one vector of the picture before the first word (Vinyals et al. 2015, §3.1)."""

    def __init__(self, embedding: Embedding, recurrence: RecurrentLayers, memory_width: int, dropout: float) -> None:
        """Create the decoder for a memory of this width."""
        super().__init__(embedding, recurrence, dropout)
        self.inner = nn.Linear(memory_width, memory_width)
        self.image, self.pool = nn.Linear(memory_width, recurrence.cells.input_size), MeanPooling()

    def flops(self, counts: TokenCounts) -> int:
        """Return the operations of a forward pass."""
        vector = 2 * self.inner.weight.numel() * counts.memory_tokens + 2 * self.image.weight.numel() * counts.sequences
        return count_flops(self.recurrence, counts) + vector

    def _initial_state(self, memory: Memory) -> HiddenState:
        """Return the state after the vector of the picture."""
        inner_ND = functional.relu(self.inner(memory.states_ND))
        image_BD = self.image(self.pool(inner_ND, memory.layout))
        zeros = self.recurrence.initial_state(len(memory.layout), image_BD)
        return self.recurrence.step(image_BD, zeros)[1]


def build_show_attend_tell(
    settings: ShowAttendTell, image: ImageSettings, vocabulary: int, options: Captioning
) -> Seq2Seq:
    """Build the model for pictures of this shape and a vocabulary of this size."""
    width, vectors, memory_width = settings.width, settings.embedding, settings.annotation
    encoder = make_image_encoder(
        settings.stem, image.shape, settings.patch, memory_width, settings.stem_layers, settings.dropout
    )
    embedding = Embedding(vocabulary, vectors, dropout=settings.dropout)
    output_width = settings.output_width[0]
    output = OutputProjection(output_width, vocabulary, embedding.weight if settings.tied == "decoder" else None)
    if settings.attention == "none":
        recurrence = RecurrentLayers(settings.cell, vectors, width)
        return Seq2Seq(encoder, ImageVectorDecoder(embedding, recurrence, memory_width, settings.dropout), output)
    attention = RegionAttention(AdditiveScore(width, memory_width, width), settings.attention, options.temperature)
    cell = RegionCell(attention, RecurrentLayers(settings.cell, vectors + memory_width, width), memory_width)
    bridge = nn.Linear(memory_width, width) if cell.recurrence.state_count == 2 else None
    # L_o (E y + L_h h + L_z ẑ) (eq. 7), with a matrix for E y too.
    readout = ReadOut(vectors + width + memory_width, vectors, maxout=False, dropout=settings.dropout)
    decoder = RegionDecoder(embedding, cell, (nn.Linear(memory_width, width), bridge), readout)
    decoder.expected = options.expected
    return Seq2Seq(encoder, decoder, output)


def _one_hot(scores: Tensor, like: Tensor) -> Tensor:
    """Return 1 for the largest score of each row, and 0 for the others."""
    return torch.zeros_like(like).scatter(-1, scores.argmax(-1, keepdim=True), 1.0)
