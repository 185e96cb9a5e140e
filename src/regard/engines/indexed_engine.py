"""A Transformer on a CPU: packed linear layers, and keys and values that are pointed at instead of moved."""

import copy
import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.inference import in_inference_mode
from regard.engines.indexed_attention import MIN_KEYS, AttentionIndex, attention_index, is_available, mask_to_bias
from regard.engines.indexed_layers import (
    IndexedDecoder,
    IndexedDecoderLayer,
    IndexedEncoderLayer,
    IndexedLayer,
    compile_script,
)
from regard.engines.kv_pool import IndexedMemory, IndexedState, SparePools
from regard.engines.layers import EngineEmbedding, Rotation, convert_norm, rotation_at
from regard.engines.linear import Precision, attention_dtype, pack_output, pad_few_rows, stream_dtype
from regard.engines.malloc import keep_freed_memory
from regard.engines.parts import TransformerParts
from regard.engines.thread_sharing import ThreadSharing
from regard.engines.topk import top_logprobs
from regard.models.hierarchical import HierarchicalTransformerEncoder
from regard.models.rows import check_mixed_rows, check_rows
from regard.models.transformer import Stack
from regard.nn.attention.banded import padded_attention
from regard.nn.attention.mask import AttentionMask
from regard.nn.attention.plan import LengthBuckets, plan_attention
from regard.nn.ragged import NestedRagged, Ragged

HEAVY = 1 << 22
"""Parameters of a decoder from which on threads may share a step: reading fewer takes less time than waiting."""
LONG = 40
"""Length of the longest source from which on dense attention in the encoder is faster than indexed attention."""


class IndexedEncoder:
    """The encoder of an `IndexedEngine`."""

    def __init__(self, stack: Stack, precision: Precision) -> None:
        """Pack a trained encoder."""
        self.dtype, self.mask = attention_dtype(precision), stack.mask
        self.empty = torch.empty(0, dtype=self.dtype)
        self.embed = EngineEmbedding(stack.embedding, stream_dtype(precision))
        self.layers = [IndexedEncoderLayer(block, precision).eval() for block in stack.blocks]
        self.compiled_layers = [compile_script(layer) for layer in self.layers]
        self.norm = convert_norm(stack.norm, stream_dtype(precision))
        self.attention_index = compile_script(attention_index)

    def __call__(self, source: Ragged) -> Float[Tensor, "N D"]:
        """Encode a batch that has at least one token."""
        x_ND = self.embed(source.values, source.position_N, source.longest)
        cos, sin = _rotation(self.layers[0], source.position_N, self.empty)
        query = self.layers[0].query
        if source.longest > LONG or source.tokens * query.heads < max(source.longest, MIN_KEYS):
            buckets = _buckets(source, self.mask)
            for layer in self.layers:
                x_ND = layer.leave(_attend_in_buckets(layer.project(x_ND, cos, sin), buckets, layer), x_ND)
        else:
            index = self._index(source)
            for compiled_layer in self.compiled_layers:
                x_ND = compiled_layer(x_ND, index, cos, sin)
        normed_ND: Tensor = self.norm(x_ND)
        return normed_ND

    def _index(self, source: Ragged) -> AttentionIndex:
        """Return where the tokens of each source attend."""
        heads, position_N1 = self.layers[0].query.heads, source.position_N[:, None]
        key_K = torch.arange(max(source.longest, MIN_KEYS))
        begin_N1 = (torch.arange(source.tokens) - source.position_N)[:, None]
        length_N1 = source.lengths_B[source.sequence_N.long()][:, None]
        mask_NK = (key_K < length_N1) & self.mask.allows(position_N1, key_K)
        bias_NHK = mask_to_bias(mask_NK, self.dtype)[:, None]
        if self.mask.slopes:
            slopes_H1 = torch.tensor(self.mask.slopes, dtype=self.dtype)[:, None]
            bias_NHK = bias_NHK - slopes_H1 * (key_K - position_N1).abs()[:, None]
        rows_NK = torch.where(mask_NK, begin_N1 + key_K, 0)
        index: AttentionIndex = self.attention_index(rows_NK, bias_NHK, heads, source.tokens * heads)
        return index


class IndexedEngine:
    """Runs a trained Transformer on a CPU. It packs copies of the weights: after more training, make a new engine."""

    mixes_rows: Literal[True] = True
    max_top_k = 1  # a CPU scans a whole row of logits sooner than it sorts the first few

    def __init__(self, model: TransformerParts, precision: Precision) -> None:
        """Pack a trained model."""
        assert is_available(), "this build of torch has no kernels for indexed attention"
        keep_freed_memory()
        self.precision: Precision = precision
        dtype, self.dtype = stream_dtype(precision), attention_dtype(precision)
        self.encoder: IndexedEncoder | HierarchicalTransformerEncoder | None = None
        if isinstance(model.encoder, HierarchicalTransformerEncoder):
            self.encoder = copy.deepcopy(model.encoder).to("cpu", dtype).eval()
        elif model.encoder is not None:
            self.encoder = IndexedEncoder(model.encoder, precision)
        self.mask, self.embed = model.decoder.mask, EngineEmbedding(model.decoder.embedding, dtype)
        blocks = model.decoder.blocks
        self.decoder_layers = [IndexedDecoderLayer(block, precision).eval() for block in blocks]
        self.vocabulary = model.output.weight.shape[0]
        norm, output = convert_norm(model.decoder.norm, dtype), pack_output(*model.padded_output(), precision)
        slopes_H = torch.tensor(self.mask.slopes, dtype=self.dtype)
        decoder = IndexedDecoder(self.decoder_layers, norm, output, slopes_H)
        pad_few_rows(decoder)
        self.decode = compile_script(decoder)
        parameters = sum(weight.numel() for weight in model.decoder.parameters())
        # int8 gains little from threads, and float64 is for users to whom the order of a sum matters.
        shares = parameters > HEAVY and precision in ("float32", "bfloat16")
        self.thread_sharing = ThreadSharing() if shares else None
        self.attention_index, self.top_logprobs = compile_script(attention_index), compile_script(top_logprobs)
        attentions = [blocks[0].self, *([] if blocks[0].cross is None else [blocks[0].cross])]
        self.spare_pools = [
            SparePools(len(blocks), one.heads, (one.key_size, one.value_size), self.dtype) for one in attentions
        ]
        """Tables of keys and values for self-attention, and for cross-attention."""
        self.empty = torch.empty(0, dtype=self.dtype)
        self.no_memory = [(self.empty, self.empty)] * len(blocks), (self.empty,) * 5

    @in_inference_mode
    def start(self, inputs: Ragged | NestedRagged, beams: int = 1) -> IndexedState:
        """Encode sources, or prefill prompts, and return the decoding state with `beams` adjacent rows for each."""
        prompts = inputs if self.encoder is None and isinstance(inputs, Ragged) else None
        rows, columns = len(inputs) * beams, 0 if prompts is None else prompts.longest
        memory = None if self.encoder is None else self._encode(self.encoder, inputs)
        # Row 0 of the tables belongs to nobody.
        own = self.spare_pools[0].take(rows * MIN_KEYS + (0 if prompts is None else prompts.tokens) + 1)
        state = IndexedState(
            torch.full((len(inputs),), beams),
            own,
            memory,
            torch.zeros(rows, columns + 2 * MIN_KEYS, dtype=torch.int64),
            torch.full((rows, columns + 2 * MIN_KEYS), -torch.inf, dtype=self.dtype),
            torch.zeros(rows, dtype=torch.int64),
        )
        if prompts is not None:
            self._prefill(prompts, state)
        for spare, pool in zip(self.spare_pools, (own, *([] if memory is None else [memory.pool])), strict=True):
            weakref.finalize(state, spare.give_back, pool)
        return state

    @in_inference_mode
    def step(self, tokens_R: Int[Tensor, " R"], state: IndexedState) -> tuple[Float[Tensor, "R V"], IndexedState]:
        """Append one token to each row; return the log-probabilities of the token after it, and the new state."""
        logits_NV, shared = self._advance(tokens_R, state)
        logprobs_NV = logits_NV.to(self.dtype)
        torch.log_softmax(logprobs_NV, -1, out=logprobs_NV)  # in place, so that no second table is written
        return _spread(logprobs_NV[:, : self.vocabulary], shared), state

    @in_inference_mode
    def top_k(
        self, tokens_R: Int[Tensor, " R"], state: IndexedState, k: int
    ) -> tuple[Float[Tensor, "R K"], Int[Tensor, "R K"], IndexedState]:
        """Make a step; return the k greatest log-probabilities of each row, greatest first, their tokens, the state."""
        logits_NV, shared = self._advance(tokens_R, state)
        logprob_NK, token_NK = self.top_logprobs(logits_NV, k)
        return _spread(logprob_NK, shared), _spread(token_NK, shared), state

    @in_inference_mode
    def select(self, state: IndexedState, rows_R: Int[Tensor, " R"]) -> IndexedState:
        """Return the state that continues from these rows: beams keep to their sentence, whole sentences may leave."""
        if state.beams is None:
            check_mixed_rows(rows_R, state.sentence_R)
        else:
            check_rows(rows_R, state.beams, state.rows_RT.shape[0])
        state.select(rows_R)
        return state

    @in_inference_mode
    def join(self, states: Sequence[IndexedState]) -> IndexedState:
        """Return one state of the sentences of several, in order; each row continues from its own position."""
        first, *others = states
        for other in others:
            first.absorb(other)
        return first

    def _encode(
        self, encoder: IndexedEncoder | HierarchicalTransformerEncoder, inputs: Ragged | NestedRagged
    ) -> IndexedMemory:
        """Encode inputs and compute the keys and values of their memory."""
        if isinstance(encoder, HierarchicalTransformerEncoder):
            assert isinstance(inputs, NestedRagged), "a hierarchical encoder reads nested inputs"
            memory = encoder.encode(inputs)
            source = Ragged(memory.states_ND, memory.layout)
        else:
            assert isinstance(inputs, Ragged), "the other encoders read sequences"
            encoder.embed.check(inputs.values, inputs.longest)
            source = inputs.with_values(encoder(inputs)) if inputs.tokens else inputs
        pool = self.spare_pools[1].take(source.tokens + 1)
        new = pool.take(source.tokens)
        if source.tokens:
            for number, layer in enumerate(self.decoder_layers):
                assert layer.cross is not None, "a decoder with an encoder attends to it"
                pool.write(number, new, *layer.cross.keys_and_values(source.values))
        key_S = torch.arange(max(source.longest, MIN_KEYS))
        mask_BS = key_S < source.lengths_B[:, None]
        rows_BS = torch.where(mask_BS, source.offsets[:-1, None].long() + key_S + new.start, 0)
        # A row with an empty source attends to table row 0, whose value is zero.
        bias_BS = mask_to_bias(mask_BS | (source.lengths_B == 0)[:, None], self.dtype)
        return IndexedMemory(pool, rows_BS, bias_BS)

    def _prefill(self, prompts: Ragged, state: IndexedState) -> None:
        """Compute keys and values of all prompts in one parallel pass; the beams of a prompt point at the same ones."""
        self.embed.check(prompts.values, prompts.longest)
        new = state.own.take(prompts.tokens)
        if prompts.tokens:
            x_ND = self.embed(prompts.values, prompts.position_N, prompts.longest)
            cos, sin = _rotation(self.decoder_layers[0], prompts.position_N, self.empty)
            buckets = _buckets(prompts, self.mask)
            for number, layer in enumerate(self.decoder_layers):
                projected = layer.project(x_ND, cos, sin)
                state.own.write(number, new, *projected[1:])
                if number + 1 < len(self.decoder_layers):  # of the last layer, only keys and values are needed
                    x_ND = layer.leave(_attend_in_buckets(projected, buckets, layer), x_ND)
        columns, begin_B1 = prompts.longest, prompts.longest - prompts.lengths_B[:, None]
        column_T = torch.arange(columns)
        mask_BT = column_T >= begin_B1
        rows_BT = torch.where(mask_BT, prompts.offsets[:-1, None].long() + column_T - begin_B1 + new.start, 0)
        beams_B = state.beams_B
        state.rows_RT[:, :columns] = rows_BT.repeat_interleave(beams_B, 0)
        state.bias_RT[:, :columns] = mask_to_bias(mask_BT, self.dtype).repeat_interleave(beams_B, 0)
        state.length_R = prompts.lengths_B.long().repeat_interleave(beams_B)
        state.prompt_R, state.columns = state.length_R, columns

    def _advance(self, tokens_R: Int[Tensor, " R"], state: IndexedState) -> tuple[Float[Tensor, "N V"], int]:
        """Return logits after one new token in each row, padding of the vocabulary included, and for how many rows.

        In the first step the beams of a sentence usually read the same token. Then one is computed for all of them.
        """
        beams = state.beams or 1
        shared = beams if beams > 1 and state.is_fresh and _are_equal(tokens_R, beams) else 1
        length_N, column = state.length_R[::shared], state.columns
        x_ND = self._embed(tokens_R[::shared], length_N, column + 1)
        new = state.reserve(shared)
        rows = state.rows_RT[::shared], state.bias_RT[::shared], column
        rotation = _rotation(self.decoder_layers[0], length_N, self.empty)
        memory, memory_index = self.no_memory
        if state.memory is not None:
            memory, memory_index = (
                state.memory.pool.views,
                self._memory_index(state.memory, state.beams or state.beams_B, shared),
            )
        with nullcontext() if self.thread_sharing is None else self.thread_sharing.step(length_N.shape[0]):
            logits_NV: Tensor = self.decode(x_ND, rows, new, state.own.tables_and_views, memory, memory_index, rotation)
        if shared > 1:
            state.rows_RT[:, column] = _spread(state.rows_RT[::shared, column], shared)
            state.bias_RT[:, column] = 0
        state.columns += 1
        state.length_R = state.length_R + 1
        return logits_NV, shared

    def _embed(self, tokens_R: Int[Tensor, " R"], length_R: Int[Tensor, " R"], longest: int) -> Float[Tensor, "R D"]:
        """Embed the rows' newest tokens."""
        self.embed.check(tokens_R[:0], longest)
        try:
            return self.embed(tokens_R, length_R, longest)
        except IndexError:  # the ids are read only when something is wrong with them
            self.embed.check(tokens_R, longest)
            raise

    def _memory_index(self, memory: IndexedMemory, beams: int | Int[Tensor, " B"], shared: int) -> AttentionIndex:
        """Return where each row attends in the memory, or the first row of each sentence if one stands for all."""
        if shared > 1:
            first: AttentionIndex = self.attention_index(
                memory.rows_BS, memory.bias_BS[:, None], memory.pool.heads, memory.pool.lines
            )
            return first
        if memory.index is None:
            rows_RS = memory.rows_BS.repeat_interleave(beams, 0)
            bias_RHS = memory.bias_BS.repeat_interleave(beams, 0)[:, None]
            memory.index = self.attention_index(rows_RS, bias_RHS, memory.pool.heads, memory.pool.lines)
        return memory.index


def _are_equal(tokens_R: Int[Tensor, " R"], beams: int) -> bool:
    """Return whether all beams of each sentence read the same token."""
    return bool((tokens_R.view(-1, beams) == tokens_R[::beams, None]).all())


def _spread(x_N: Tensor, shared: int) -> Tensor:
    """Repeat each row for all rows it stands for."""
    return x_N if shared == 1 else x_N.repeat_interleave(shared, 0)


def _rotation(layer: IndexedLayer, position_N: Int[Tensor, " N"], empty: Tensor) -> Rotation:
    """Return cosine and sine for rotary positions; `empty` twice where the layer has none."""
    return rotation_at(position_N, layer.query.key_size, empty) if layer.query.rotary else (empty, empty)


def _buckets(batch: Ragged, mask: AttentionMask) -> LengthBuckets:
    """Group the sequences of a batch by length, for dense attention."""
    buckets = plan_attention(mask, batch.layout, batch.layout).buckets
    assert buckets is not None, "on a CPU a plan has buckets"
    return buckets


def _attend_in_buckets(
    projected: Sequence[Tensor], buckets: LengthBuckets, layer: IndexedLayer
) -> Float[Tensor, "N F"]:
    """Attend densely, one bucket of sequences of similar length after the other."""
    mixed = []
    heads, scale = layer.query.heads, layer.query.scale
    sides = zip(*(buckets.queries.pad(x_NF.reshape(x_NF.shape[0], heads, -1)) for x_NF in projected), strict=True)
    for (q, k, v), limit in zip(sides, buckets.limits, strict=True):
        mixed.append(v if q.shape[1] == 0 else padded_attention(q, k, v, limit, scale, 0.0))
    return buckets.queries.unpad(mixed).flatten(1)
