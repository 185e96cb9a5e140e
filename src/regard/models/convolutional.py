"""ConvS2S, convolutional sequence to sequence (Gehring et al. 2017): no recurrence, all positions of a target at once.

Every sum of two terms is multiplied by √½, so that its variance stays (§3.4).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.memory import Memory
from regard.models.rows import check_rows
from regard.models.seq2seq import Seq2Seq
from regard.models.tying import tie
from regard.nn.attention.kv_cache import KVCache
from regard.nn.attention.mask import AttentionMask
from regard.nn.attention.plan import AttentionPlan, plan_attention
from regard.nn.attention.scores import DotScore
from regard.nn.attention.single_head import AttentionFormulas, SingleHeadAttention
from regard.nn.convolution import ConvolutionWindow, GatedConvolution
from regard.nn.cost import TokenCounts, count_flops
from regard.nn.embedding import Embedding, OutputProjection
from regard.nn.position import LearnedPositions
from regard.nn.ragged import Ragged
from regard.nn.tap import Tap
from regard.recipe import ConvS2S

ROOT_HALF = math.sqrt(0.5)


class ConvolutionalEncoderLayer(nn.Module):
    """A gated convolution with a residual connection (§3.2)."""

    def __init__(self, convolution: GatedConvolution) -> None:
        """Wrap a built convolution."""
        super().__init__()
        self.convolution, self.stream = convolution, Tap()

    def forward(self, x_ND: Float[Tensor, "N D"], window: ConvolutionWindow) -> Float[Tensor, "N D"]:
        """Pass a ragged batch through the layer."""
        stream_ND: Tensor = self.stream((x_ND + self.convolution(x_ND, window)) * ROOT_HALF)
        return stream_ND


class ConvolutionalStack(nn.Module):
    """An embedding and convolutional layers, with projections between their widths."""

    def __init__(self, embedding: Embedding, enter: nn.Linear, layers: Iterable[nn.Module], leave: nn.Linear) -> None:
        """Put built parts together; `enter` and `leave` map from the width of embeddings to that of layers and back."""
        super().__init__()
        self.embedding, self.enter, self.leave = embedding, enter, leave
        self.layers = nn.ModuleList(layers)
        self.states = Tap()

    @property
    def max_positions(self) -> int | None:
        """The longest sequence it can read."""
        return self.embedding.max_positions


class ConvolutionalEncoder(ConvolutionalStack):
    """A stack of gated convolutions, each of which sees further by the width of its kernel."""

    def encode(self, inputs: Ragged) -> Memory:
        """Encode a ragged batch of token ids: keys z, and values z + e, which hold the token itself too (§3.3)."""
        e_ND = self.embedding(inputs)
        x_ND = self.enter(e_ND)
        layers = [layer for layer in self.layers if isinstance(layer, ConvolutionalEncoderLayer)]
        window = ConvolutionWindow.from_layout(inputs.layout, layers[0].convolution.kernel, causal=False)
        for layer in layers:
            x_ND = layer(x_ND, window)
        z_ND = self.states(self.leave(x_ND))
        return Memory(z_ND, inputs.layout, values_ND=z_ND + e_ND)


class ConvolutionalDecoderLayer(nn.Module):
    """A causal gated convolution, and attention to the memory from every position (§3.3)."""

    formulas: ClassVar = AttentionFormulas(
        "W h + g",
        "the layer's state and the token's embedding",
        "stream",
        "output",
        "(h + W (context · √m)) · √½",
        "layer output",
    )

    def __init__(
        self, convolution: GatedConvolution, cross: SingleHeadAttention, query: nn.Linear, context: nn.Linear
    ) -> None:
        """Put built parts together.

        Args:
            convolution: The convolution.
            cross: The attention.
            query: Maps from the width of layers to that of embeddings.
            context: Maps back.
        """
        super().__init__()
        self.convolution, self.cross, self.query, self.context = convolution, cross, query, context
        self.stream = Tap()

    def forward(
        self,
        x_ND: Float[Tensor, "N D"],
        g_ND: Float[Tensor, "N D2"],
        memory: Memory,
        window: ConvolutionWindow,
        plan: AttentionPlan,
    ) -> Float[Tensor, "N D"]:
        """Pass a ragged batch through the layer; `g_ND` are the embeddings of the targets."""
        h_ND = (x_ND + self.convolution(x_ND, window)) * ROOT_HALF
        # d = W h + b + g (eq. 1): the query holds the token itself, besides what the convolutions have seen.
        c_ND = self.cross(self.query(h_ND) + g_ND, memory.states_ND, memory.values, plan)
        return self._add_context(h_ND, c_ND, memory.layout.lengths_B[plan.queries.sequence_N])

    def step(
        self,
        x_RD: Float[Tensor, "R D"],
        g_RD: Float[Tensor, "R D2"],
        before: Float[Tensor, "R behind D"],
        cache: KVCache,
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "R behind D"]]:
        """Pass one new token a row through the layer; return its state and the inputs the next step convolves."""
        y_RD, before = self.convolution.step(x_RD, before)
        h_RD = (x_RD + y_RD) * ROOT_HALF
        c_RD = self.cross.step(self.query(h_RD) + g_RD, cache)
        assert cache.mask_BK is not None, "a cached memory has a mask"
        beams = x_RD.shape[0] // cache.mask_BK.shape[0]
        return self._add_context(h_RD, c_RD, cache.mask_BK.sum(-1).repeat_interleave(beams)), before

    def flops(self, counts: TokenCounts) -> int:
        """Return the operations of a forward pass."""
        width = self.query.out_features
        parts = sum(count_flops(part, counts) for part in (self.convolution, self.query, self.context))
        return parts + self.cross.attention_flops(counts, width, width)

    def _add_context(
        self, h_ND: Float[Tensor, "N D"], c_ND: Float[Tensor, "N D2"], lengths_N: Int[Tensor, " N"]
    ) -> Float[Tensor, "N D"]:
        """Add the context to the residual stream.

        The context is a mean of m values. The factor m · √(1/m) makes up for its smaller variance (§3.4).
        """
        scaled_ND = c_ND * lengths_N.to(c_ND.dtype).sqrt()[:, None]
        stream_ND: Tensor = self.stream((h_ND + self.context(scaled_ND)) * ROOT_HALF)
        return stream_ND


@dataclass(frozen=True, eq=False)
class ConvolutionalState:
    """The decoding state of R rows. The `beams` rows of one source are adjacent."""

    before: tuple[Float[Tensor, "R behind D"], ...]
    """For each layer, the last inputs of its convolution."""
    length: int
    """Tokens of every row."""
    cache: KVCache
    """Keys and values of the memory: the same for all layers, since none of them projects the memory."""
    beams: int


class ConvolutionalDecoder(ConvolutionalStack):
    """A stack of causal gated convolutions, each with its own attention to the memory (§3.3)."""

    def forward(self, tokens: Ragged, memory: Memory) -> Float[Tensor, "N D"]:
        """Return the state of every target token."""
        g_ND = self.embedding(tokens)
        x_ND = self.enter(g_ND)
        window = ConvolutionWindow.from_layout(tokens.layout, self._layers[0].convolution.kernel, causal=True)
        plan = plan_attention(AttentionMask(), tokens.layout, memory.layout)
        for layer in self._layers:
            x_ND = layer(x_ND, g_ND, memory, window, plan)
        return self._output(x_ND)

    def start(self, rows: int, memory: Memory) -> ConvolutionalState:
        """Return the decoding state of `rows` rows that have read the memory only."""
        layers = self._layers
        behind, width = layers[0].convolution.kernel - 1, self.enter.out_features
        # A causal convolution is padded on the left, so the inputs before the first token are zero.
        before = tuple(memory.states_ND.new_zeros(rows, behind, width) for _ in layers)
        cache = layers[0].cross.make_cache(memory.states_ND, memory.values, memory.layout)
        return ConvolutionalState(before, 0, cache, rows // len(memory.layout))

    def step(
        self, tokens_R: Int[Tensor, " R"], state: ConvolutionalState
    ) -> tuple[Float[Tensor, "R D"], ConvolutionalState]:
        """Append one token to each row; return the state at that token, and the new decoding state."""
        self.embedding.check(tokens_R, state.length + 1)
        g_RD = self.embedding.embed(tokens_R, torch.full_like(tokens_R, state.length))
        x_RD, after = self.enter(g_RD), []
        for layer, before in zip(self._layers, state.before, strict=True):
            x_RD, inputs = layer.step(x_RD, g_RD, before, state.cache)
            after.append(inputs)
        return self._output(x_RD), ConvolutionalState(tuple(after), state.length + 1, state.cache, state.beams)

    def select(self, state: ConvolutionalState, rows_R: Int[Tensor, " R"]) -> ConvolutionalState:
        """Return the decoding state that continues from these rows; no memory moves while every memory stays."""
        rows = state.before[0].shape[0]
        check_rows(rows_R, state.beams, rows)
        cache = state.cache
        if rows_R.shape[0] < rows:
            cache = cache.select_rows(rows_R[:: state.beams] // state.beams)
        before = tuple(inputs.index_select(0, rows_R) for inputs in state.before)
        return ConvolutionalState(before, state.length, cache, state.beams)

    def _output(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N D2"]:
        """Return what the output projection reads."""
        output_ND: Tensor = self.embedding.drop(self.states(self.leave(x_ND)))
        return output_ND

    @property
    def _layers(self) -> list[ConvolutionalDecoderLayer]:
        """The layers, typed."""
        return [layer for layer in self.layers if isinstance(layer, ConvolutionalDecoderLayer)]


def make_embedding(settings: ConvS2S, vocabulary: int) -> Embedding:
    """Make an embedding with learned positions, initialised as in §3.5."""
    position = LearnedPositions(settings.embedding, settings.positions)
    embedding = Embedding(vocabulary, settings.embedding, position, scaled=False, dropout=settings.dropout)
    for weight in (embedding.weight, position.weight):
        nn.init.normal_(weight, std=0.1)
    return embedding


def make_encoder(settings: ConvS2S, embedding: Embedding) -> ConvolutionalEncoder:
    """Make the encoder."""
    enter = _make_linear(settings.embedding, settings.width)
    layers = [ConvolutionalEncoderLayer(_make_convolution(settings)) for _ in range(settings.encoder_layers)]
    return ConvolutionalEncoder(embedding, enter, layers, _make_linear(settings.width, settings.embedding))


def make_decoder(settings: ConvS2S, embedding: Embedding) -> ConvolutionalDecoder:
    """Make the decoder, for a memory as wide as the embedding."""
    layers = [
        ConvolutionalDecoderLayer(
            _make_convolution(settings),
            SingleHeadAttention(DotScore()),
            _make_linear(settings.width, settings.embedding),
            _make_linear(settings.embedding, settings.width),
        )
        for _ in range(settings.decoder_layers)
    ]
    enter = _make_linear(settings.embedding, settings.width)
    return ConvolutionalDecoder(embedding, enter, layers, _make_linear(settings.width, settings.embedding))


def build_convs2s(settings: ConvS2S, source_vocabulary: int, target_vocabulary: int) -> Seq2Seq:
    """Build the model for vocabularies of these sizes."""
    source, target = make_embedding(settings, source_vocabulary), make_embedding(settings, target_vocabulary)
    shared = tie(settings.tied, source, target)
    encoder, decoder = make_encoder(settings, source), make_decoder(settings, target)
    return Seq2Seq(encoder, decoder, OutputProjection(settings.embedding, target_vocabulary, shared))


def _make_convolution(settings: ConvS2S) -> GatedConvolution:
    return GatedConvolution(settings.width, settings.kernel, settings.dropout)


def _make_linear(inputs: int, outputs: int) -> nn.Linear:
    """Make a linear layer that preserves the variance of its inputs (§3.5)."""
    linear = nn.Linear(inputs, outputs)
    nn.init.normal_(linear.weight, std=math.sqrt(1 / inputs))
    nn.init.zeros_(linear.bias)
    return linear
