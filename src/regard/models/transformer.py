"""The Transformer (Vaswani et al. 2017): token ids of a ragged batch in, a state for each token out.

One stack serves every kind of model. Bidirectional, it is an encoder. Causal, it is a decoder: with cross-attention
that of an encoder-decoder, without it a language model.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.memory import Memory
from regard.models.rows import check_rows
from regard.models.seq2seq import Seq2Seq
from regard.models.tying import tie
from regard.nn.attention.kv_cache import KVCache
from regard.nn.attention.mask import AttentionMask, alibi_slopes
from regard.nn.attention.multihead import CrossAttention, SelfAttention
from regard.nn.attention.plan import plan_attention
from regard.nn.block import LayerCache, TransformerBlock
from regard.nn.embedding import Embedding, OutputProjection
from regard.nn.feedforward import FeedForward
from regard.nn.norm import make_norm
from regard.nn.position import make_position_encoding
from regard.nn.ragged import Layout, Ragged
from regard.recipe import SelfAttentive, Transformer


@dataclass(frozen=True, eq=False)
class StackState:
    """The decoding state of R rows: their KV cache, layer by layer. The `beams` rows of one source are adjacent."""

    caches: tuple[LayerCache, ...]
    position_R: Int[Tensor, " R"]
    """Position of the next token of each row."""
    length: int
    """Length of the longest row, which is the number of columns of the cache. Shorter rows are padded on the left."""
    beams: int


class BlockStack(nn.Module):
    """Layers, and a final norm if they are norm-first (§3.1)."""

    def __init__(self, blocks: Iterable[TransformerBlock], norm: nn.Module | None, mask: AttentionMask) -> None:
        """Put built parts together; `mask` is the mask of self-attention."""
        super().__init__()
        self.layers = nn.ModuleList(blocks)
        self.norm = norm if norm is not None else nn.Identity()
        self.mask = mask

    @property
    def blocks(self) -> list[TransformerBlock]:
        """The layers, typed."""
        return [layer for layer in self.layers if isinstance(layer, TransformerBlock)]

    def transform(
        self, x_ND: Float[Tensor, "N D"], layout: Layout, memory: Memory | None = None
    ) -> Float[Tensor, "N D"]:
        """Return the state of every token, given its vector."""
        own, cross = plan_attention(self.mask, layout, layout), None
        if memory is not None:
            cross = memory.states_ND, plan_attention(AttentionMask(), layout, memory.layout)
        blocks = self.blocks
        next_norms = [*(block.around_self.norm for block in blocks[1:]), self.norm]
        entered_ND = blocks[0].around_self.sublayer_input(x_ND)
        for block, next_norm in zip(blocks, next_norms, strict=True):
            x_ND, entered_ND = block(x_ND, entered_ND, own, cross, next_norm)
        return entered_ND


class Stack(BlockStack):
    """Layers over an embedding."""

    def __init__(
        self, embedding: Embedding, blocks: Iterable[TransformerBlock], norm: nn.Module | None, mask: AttentionMask
    ) -> None:
        """Put built parts together; `mask` is the mask of self-attention."""
        super().__init__(blocks, norm, mask)
        self.embedding = embedding

    @property
    def max_positions(self) -> int | None:
        """The longest sequence it can read; None if there is no limit."""
        return self.embedding.max_positions

    def forward(self, tokens: Ragged, memory: Memory | None = None) -> Float[Tensor, "N D"]:
        """Return the state of every token."""
        return self.transform(self.embedding(tokens), tokens.layout, memory)

    def encode(self, inputs: Ragged) -> Memory:
        """Encode a ragged batch of token ids."""
        return Memory(self(inputs), inputs.layout)

    def start(self, rows: int, memory: Memory | None = None) -> StackState:
        """Return the decoding state of `rows` rows that have read the memory only.

        The keys and values of the memory are computed now, once for all steps.

        Raises:
            ValueError: The stack is not causal.
        """
        if not self.mask.causal:
            raise ValueError(
                "only a causal stack decodes step by step; this one sees later tokens, so give it whole sequences"
            )
        like = self.embedding.weight.new_empty(rows) if memory is None else memory.states_ND.new_empty(rows)
        caches = []
        for block in self.blocks:
            own, cross = KVCache.empty(like, block.self.heads, block.self.key_size, block.self.value_size), None
            if block.cross is not None and memory is not None:
                cross = block.cross.make_cache(memory.states_ND, memory.layout)
            caches.append(LayerCache(own, cross))
        position_R = torch.zeros(rows, dtype=torch.int64, device=like.device)
        return StackState(tuple(caches), position_R, 0, 1 if memory is None else rows // len(memory.layout))

    def prefill(self, prompts: Ragged, beams: int = 1) -> StackState:
        """Read all prompts in one parallel pass; return the decoding state behind them with `beams` rows for each.

        Prompts may differ in length and may be empty: each row continues at its own position.
        """
        layout = prompts.layout
        state = self.start(len(prompts))
        if prompts.tokens:
            x_ND, plan, caches = self.embedding(prompts), plan_attention(self.mask, layout, layout), []
            for block in self.blocks:
                x_ND, cache = block.prefill(x_ND, plan)
                caches.append(cache)
            state = StackState(tuple(caches), layout.lengths_B.long(), layout.longest, 1)
        if beams == 1:
            return state
        rows_R = torch.arange(len(prompts), device=layout.offsets.device).repeat_interleave(beams)
        caches = [LayerCache(cache.self_attention.select_rows(rows_R), None) for cache in state.caches]
        return StackState(tuple(caches), state.position_R.index_select(0, rows_R), state.length, beams)

    def step(self, tokens_R: Int[Tensor, " R"], state: StackState) -> tuple[Float[Tensor, "R D"], StackState]:
        """Append one token to each row; return the state at that token, and the new decoding state."""
        self.embedding.check(tokens_R, state.length + 1)
        x_RD = self.embedding.embed(tokens_R, state.position_R)
        caches = []
        for block, cache in zip(self.blocks, state.caches, strict=True):
            x_RD, grown = block.step(x_RD, state.position_R, cache, self.mask)
            caches.append(grown)
        return self.norm(x_RD), StackState(tuple(caches), state.position_R + 1, state.length + 1, state.beams)

    def select(self, state: StackState, rows_R: Int[Tensor, " R"]) -> StackState:
        """Return the decoding state that continues from these rows; see `regard.models.memory.Decoder`.

        While every memory stays, none of its keys and values moves.
        """
        rows = state.position_R.shape[0]
        check_rows(rows_R, state.beams, rows)
        leave = rows_R.shape[0] < rows
        memories_B = rows_R[:: state.beams] // state.beams
        position_R, length = state.position_R.index_select(0, rows_R), state.length
        is_ragged = state.caches[0].self_attention.mask_BK is not None
        if leave and is_ragged and position_R.numel():  # the longest row may have left
            length = int(position_R.max())

        def selected(cache: LayerCache) -> LayerCache:
            own, cross = cache.self_attention.select_rows(rows_R), cache.cross_attention
            if leave and cross is not None:
                cross = cross.select_rows(memories_B)
            return LayerCache(own if length == state.length else own.last_columns(length), cross)

        return StackState(tuple(selected(cache) for cache in state.caches), position_R, length, state.beams)


def make_embedding(settings: SelfAttentive, vocabulary: int) -> Embedding:
    """Make the embedding of a vocabulary, with its position encoding."""
    position_width = settings.position_width or 0
    position = make_position_encoding(settings.position, position_width or settings.width, settings.positions)
    return Embedding(
        vocabulary,
        settings.width - position_width,
        position,
        "concatenation" if position_width else "sum",
        settings.scale_embedding,
        settings.dropout,
        settings.word_dropout,
    )


def make_block(settings: SelfAttentive, cross: bool) -> TransformerBlock:
    """Make one layer, with or without cross-attention."""
    sizes = settings.width, settings.heads, settings.key_size, settings.value_size
    attention = *sizes, settings.score, settings.attention_dropout
    return TransformerBlock(
        SelfAttention(*attention, rotary=settings.position == "rotary"),
        CrossAttention(*attention) if cross else None,
        FeedForward(settings.width, settings.inner, settings.activation, settings.activation_dropout),
        settings.width,
        settings.norm,
        settings.norm_first,
        settings.dropout,
    )


def make_encoder(settings: SelfAttentive, embedding: Embedding) -> Stack:
    """Make a bidirectional stack over an embedding."""
    return Stack(embedding, *make_layers(settings, settings.encoder_layers, window=settings.window))


def make_decoder(settings: SelfAttentive, embedding: Embedding, cross: bool = True) -> Stack:
    """Make a causal stack over an embedding; without cross-attention it is that of a language model."""
    window = None if cross else settings.window
    return Stack(embedding, *make_layers(settings, settings.decoder_layers, cross, causal=True, window=window))


def make_layers(
    settings: SelfAttentive, layers: int, cross: bool = False, causal: bool = False, window: int | None = None
) -> tuple[list[TransformerBlock], nn.Module, AttentionMask]:
    """Make the layers of a stack, its final norm, and its mask of self-attention."""
    norm = make_norm(settings.norm, settings.width) if settings.norm_first else nn.Identity()
    slopes = alibi_slopes(settings.heads) if settings.position == "alibi" else ()
    mask = AttentionMask(causal=causal, window=window, slopes=slopes)
    return [make_block(settings, cross) for _ in range(layers)], norm, mask


def build_transformer(settings: Transformer, source_vocabulary: int, target_vocabulary: int) -> Seq2Seq:
    """Build an encoder-decoder for vocabularies of these sizes."""
    source, target = make_embedding(settings, source_vocabulary), make_embedding(settings, target_vocabulary)
    shared = tie(settings.tied, source, target)
    output = OutputProjection(settings.width, target_vocabulary, shared)
    model = Seq2Seq(make_encoder(settings, source), make_decoder(settings, target), output)
    initialise(model, settings)
    return model


def initialise(model: nn.Module, settings: SelfAttentive) -> None:
    """Draw all weight matrices again from N(0, init_std²), if the recipe sets `init_std`.

    The matrices that write into a residual stream are divided by the square root of how many its stack has (Radford et
    al. 2019, §2.3).
    """
    if settings.init_std is None:
        return
    writers: dict[int, int] = {}
    for stack in (module for module in model.modules() if isinstance(module, BlockStack)):
        names = [name for name, _ in stack.named_parameters() if name.endswith((".out.weight", ".narrow.weight"))]
        writers |= {id(stack.get_parameter(name)): len(names) for name in names}
    for weight in model.parameters():
        if weight.ndim > 1:
            nn.init.normal_(weight, std=settings.init_std / math.sqrt(writers.get(id(weight), 1)))
