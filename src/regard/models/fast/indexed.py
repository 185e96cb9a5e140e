"""A Transformer on a CPU: packed linears, and keys and values that are pointed at rather than moved.

A row of a search is a list of places where its own tokens lie, and those of its source. Beams that change places, and
sentences that leave, exchange or drop such lists; sentences that join bring theirs. Rows need not be equally long: all
write into the last column of the lists, and what lies before a row's beginning is shaded.
"""

import weakref
from collections import deque
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.models.beams import check_lines
from regard.models.fast.engine import check_beams
from regard.models.fast.gaze import LINE, Gaze, available, lines_of, shaded
from regard.models.fast.linear import Precision, pack
from regard.models.fast.parts import (
    Around,
    Embedder,
    Heads,
    Inner,
    Stacks,
    Turn,
    blocks_of,
    filled_output,
    norm_of,
    stream_of,
    turn_at,
)
from regard.models.fast.pool import Pool
from regard.models.fast.search import Search, absorb, take, trim
from regard.models.fast.top import top_of
from regard.nn.attention.banded import within
from regard.nn.attention.multihead import CrossAttention
from regard.nn.attention.plan import Cells, plan
from regard.nn.block import Block
from regard.nn.ragged import Ragged

LONG = 40
"""Tokens of the longest source from which on the encoder's attention is cheaper as a product of whole matrices."""


class EncoderLayer:
    """Self-attention and feed-forward over a ragged batch."""

    def __init__(self, block: Block, precision: Precision) -> None:
        """Pack a trained layer."""
        self.dtype, self.exact = stream_of(precision)
        self.heads, self.qkv = Heads(block.self, precision), pack(block.self.qkv.weight, block.self.qkv.bias, precision)
        self.inner = Inner(block.feedforward, precision)
        self.around_self, self.around_inner = (
            Around(block.around_self, self.dtype),
            Around(block.around_feedforward, self.dtype),
        )

    def __call__(self, x_ND: Float[Tensor, "N D"], where: Gaze | Cells, turn: Turn | None) -> Float[Tensor, "N D"]:
        """Pass a ragged batch through the layer."""
        q_NF, k_NF, v_NF = self.heads.split(self.qkv(self.around_self.enter(x_ND)).to(self.exact), 0, 0, 1)
        q_NHE, k_NF = self.heads.query(q_NF.contiguous(), turn), self.heads.key(k_NF, turn)
        if isinstance(where, Gaze):
            keys, values = k_NF.reshape(-1, q_NHE.shape[2]).t(), v_NF.reshape(-1, self.heads.sizes[1])
            mixed_NF = where.mix(q_NHE, keys, values, self.heads.scale)
        else:
            mixed_NF = _in_cells(q_NHE, k_NF, v_NF, where, self.heads)
        x_ND = self.around_self.leave(self.heads.out.add(mixed_NF.to(self.dtype), x_ND))
        return self.around_inner.leave(self.inner.add(self.around_inner.enter(x_ND), x_ND))


class DecoderLayer:
    """Self-attention, attention to the source and feed-forward, for one new token a row."""

    def __init__(self, block: Block, cross: CrossAttention, number: int, precision: Precision) -> None:
        """Pack a trained layer."""
        assert block.around_cross is not None
        self.number = number
        self.dtype, self.exact = stream_of(precision)
        self.own, self.cross = Heads(block.self, precision), Heads(cross, precision)
        self.qkv = pack(block.self.qkv.weight, block.self.qkv.bias, precision)
        self.query, self.kv = (pack(each.weight, each.bias, precision) for each in (cross.query, cross.kv))
        self.inner = Inner(block.feedforward, precision)
        arounds = (block.around_self, block.around_cross, block.around_feedforward)
        self.around_self, self.around_cross, self.around_inner = (Around(each, self.dtype) for each in arounds)

    def keep(self, memory_ND: Float[Tensor, "N D"], pool: Pool, where: slice) -> None:
        """Write keys and values of a memory where searches look for them."""
        k_NF, v_NF = self.cross.split(self.kv(memory_ND), 0, 1)
        pool.write(self.number, where, k_NF, v_NF)

    def step(
        self, x_RD: Float[Tensor, "R D"], state: Search, new: slice, at: tuple[Gaze, Gaze], turn: Turn | None
    ) -> Float[Tensor, "R D"]:
        """Pass one new token a row through the layer; its key and value go into the rows `new`."""
        q_RF, k_RF, v_RF = self.own.split(self.qkv(self.around_self.enter(x_RD)).to(self.exact), 0, 0, 1)
        state.own.write(self.number, new, self.own.key(k_RF, turn), v_RF)
        mixed_RF = self._mix(self.own, self.own.query(q_RF.contiguous(), turn), state.own, at[0])
        x_RD = self.around_self.leave(self.own.out.add(mixed_RF, x_RD))
        q_RHE = self.cross.query(self.query(self.around_cross.enter(x_RD)).to(self.exact), None)
        x_RD = self.around_cross.leave(self.cross.out.add(self._mix(self.cross, q_RHE, state.memory, at[1]), x_RD))
        return self.around_inner.leave(self.inner.add(self.around_inner.enter(x_RD), x_RD))

    def _mix(self, heads: Heads, q_RHE: Tensor, pool: Pool, at: Gaze) -> Tensor:
        keys, values = pool.key_lines[self.number], pool.value_lines[self.number]
        return at.mix(q_RHE, keys, values, heads.scale).to(self.dtype)


class IndexedEngine:
    """Runs a trained Transformer on a CPU. It keeps a copy of the weights: train on, and make a new engine."""

    def __init__(self, model: Stacks, precision: Precision) -> None:
        """Pack a trained model."""
        assert available(), "this build of torch has no attention by index"
        self.precision: Precision = precision
        dtype, self.exact = stream_of(precision)
        self.sight = model.encoder.sight
        self.embed_source, self.embed_target = (
            Embedder(stack.embedding, dtype) for stack in (model.encoder, model.decoder)
        )
        self.encoder_layers = [EncoderLayer(block, precision) for block in blocks_of(model.encoder)]
        self.decoder_layers = [
            DecoderLayer(block, block.cross, number, precision)
            for number, block in enumerate(blocks_of(model.decoder))
            if block.cross is not None
        ]
        self.encoder_norm, self.decoder_norm = norm_of(model.encoder.norm, dtype), norm_of(model.decoder.norm, dtype)
        self.vocabulary, self.width = model.output.weight.shape
        weight, bias = filled_output(model.output)
        self.output = pack(weight, bias, precision)
        first = self.decoder_layers[0]
        self.heads, self.sizes = first.own.heads, first.own.sizes
        self.cross_heads, self.cross_sizes = first.cross.heads, first.cross.sizes
        self.turns = first.own.turns
        own, memory = (self.heads, self.sizes), (self.cross_heads, self.cross_sizes)
        self.spare: dict[tuple[int, tuple[int, int]], deque[Pool]] = {own: deque(), memory: deque()}
        self.slopes_H = torch.tensor(model.decoder.sight.slopes, dtype=self.exact)

    @torch.inference_mode()
    def start(self, source: Ragged, beams: int = 1) -> Search:
        """Begin a search with `beams` rows for each source, those of one source in a line."""
        memory_ND = self._encode(source)
        rows = len(source) * beams
        own, pool = (
            self._pool(self.heads, self.sizes, rows * LINE),
            self._pool(self.cross_heads, self.cross_sizes, source.tokens),
        )
        where = pool.take(source.tokens)
        for layer in self.decoder_layers if source.tokens else ():
            layer.keep(memory_ND, pool, where)
        place_S = torch.arange(lines_of(source.longest))
        seen_BS = place_S < source.lengths_B[:, None]
        source_BS = torch.where(seen_BS, source.offsets[:-1, None].long() + place_S + where.start, 0)
        # Who has an empty source looks at row 0, which is zero.
        shade_BS = shaded(seen_BS | (source.lengths_B == 0)[:, None], self.exact)
        state = Search(
            beams,
            own,
            pool,
            source_BS,
            shade_BS,
            torch.zeros(rows, 2 * LINE, dtype=torch.int64),
            torch.full((rows, 2 * LINE), -torch.inf, dtype=self.exact),
            torch.zeros(rows, dtype=torch.int64),
        )
        for each in (own, pool):
            weakref.finalize(state, self.spare[each.heads, each.sizes].append, each)
        return state

    @torch.inference_mode()
    def step(self, tokens_R: Int[Tensor, " R"], state: Search) -> tuple[Float[Tensor, "R V"], Search]:
        """Log-probabilities of the next token in each row, given its last one, and the search with that."""
        logits_RV = self.output(self._advance(tokens_R, state)).to(self.exact)
        return logits_RV.log_softmax(-1)[:, : self.vocabulary], state

    @torch.inference_mode()
    def top(
        self, tokens_R: Int[Tensor, " R"], state: Search, k: int
    ) -> tuple[Float[Tensor, "R K"], Int[Tensor, "R K"], Search]:
        """The k greatest of what `step` says, greatest first, and their tokens."""
        logits_RV = self.output(self._advance(tokens_R, state))
        return *top_of(logits_RV, k), state

    @torch.inference_mode()
    def select(self, state: Search, rows_R: Int[Tensor, " R"]) -> Search:
        """The search that goes on with these rows: the rows of a sentence stay together; whole sentences may leave."""
        rows = state.rows_RT.shape[0]
        check_lines(rows_R, state.beams, rows)
        state.rows_RT = state.rows_RT.index_select(0, rows_R)
        if rows_R.shape[0] < rows:
            lines_B = rows_R[:: state.beams] // state.beams
            state.source_BS, state.shade_BS = state.source_BS[lines_B], state.shade_BS[lines_B]
            state.shade_RT, state.length_R = state.shade_RT[rows_R], state.length_R[rows_R]
            state.at_memory = None
            trim(state)
        return state

    @torch.inference_mode()
    def join(self, states: Sequence[Search]) -> Search:
        """One search of the sentences of several, in order; each row goes on from its own position."""
        first, *others = states
        check_beams([each.beams for each in states])
        for other in others:
            absorb(first, other)
        return first

    def _pool(self, heads: int, sizes: tuple[int, int], room: int) -> Pool:
        """Empty tables, those of a search that is over where there are such: fresh memory is slow at first touch."""
        spare = self.spare[heads, sizes]
        pool = spare.pop() if spare else Pool(len(self.decoder_layers), heads, sizes, self.exact)
        pool.clear(room + 1)
        return pool

    def _encode(self, source: Ragged) -> Float[Tensor, "N D"]:
        """What the encoder leaves of each source."""
        self.embed_source.check(source.values, source.longest)
        if source.tokens == 0:
            return torch.empty(0, self.width, dtype=self.exact)
        x_ND = self.embed_source(source.values, source.position_N, source.longest)
        where = self._where(source)
        turn = None
        if self.encoder_layers and self.encoder_layers[0].heads.turns:
            turn = turn_at(source.position_N, self.encoder_layers[0].heads.sizes[0], torch.empty(0, dtype=self.exact))
        for layer in self.encoder_layers:
            x_ND = layer(x_ND, where, turn)
        return self.encoder_norm(x_ND)

    def _where(self, source: Ragged) -> Gaze | Cells:
        """Who looks where in the source."""
        sight, heads = self.sight, self.encoder_layers[0].heads.heads
        if source.longest > LONG or source.tokens * heads < lines_of(source.longest):
            cells = plan(sight, source.layout, source.layout).cells
            assert cells is not None, "plans on a CPU have cells"
            return cells
        place_K = torch.arange(lines_of(source.longest))
        begin_N1 = (torch.arange(source.tokens) - source.position_N)[:, None]
        seen_NK = (place_K < source.lengths_B[source.sequence_N.long()][:, None]) & sight.allows(
            source.position_N[:, None], place_K
        )
        shade_NHK = shaded(seen_NK, self.exact)[:, None]
        if sight.slopes:
            ahead_NK = (place_K - source.position_N[:, None]).abs()
            shade_NHK = shade_NHK - torch.tensor(sight.slopes, dtype=self.exact)[:, None] * ahead_NK[:, None]
        rows_NK = torch.where(seen_NK, begin_N1 + place_K, 0)
        return Gaze.over(rows_NK, shade_NHK, heads, source.tokens * heads)

    def _advance(self, tokens_R: Int[Tensor, " R"], state: Search) -> Float[Tensor, "R D"]:
        """The decoder's state of one new token in each row, ready to be scored."""
        self.embed_target.check(tokens_R, state.clock + 1)
        new = take(state)
        x_RD = self.embed_target(tokens_R, state.length_R, state.clock + 1)
        turn = turn_at(state.length_R, self.sizes[0], state.shade_RT) if self.turns else None
        at = self._gaze(state), self._gaze_at_memory(state)
        for layer in self.decoder_layers:
            x_RD = layer.step(x_RD, state, new, at, turn)
        state.clock += 1
        state.length_R = state.length_R + 1
        return self.decoder_norm(x_RD)

    def _gaze(self, state: Search) -> Gaze:
        """Each row's own tokens, the one being written among them."""
        places = lines_of(state.clock + 1)
        shade_RHT = state.shade_RT[:, None, :places]
        if self.slopes_H.numel():
            ahead_T = (torch.arange(places) - state.clock).abs()
            shade_RHT = shade_RHT - self.slopes_H[:, None] * ahead_T
        return Gaze.over(state.rows_RT[:, :places], shade_RHT, self.heads, state.own.lines)

    def _gaze_at_memory(self, state: Search) -> Gaze:
        """Each row's source, which its beams share."""
        if state.at_memory is None:
            rows_RS = state.source_BS.repeat_interleave(state.beams, 0)
            shade_RHS = state.shade_BS.repeat_interleave(state.beams, 0)[:, None]
            state.at_memory = Gaze.over(rows_RS, shade_RHS, self.cross_heads, state.memory.lines)
        return state.at_memory


def _in_cells(q_NHE: Tensor, k_NF: Tensor, v_NF: Tensor, cells: Cells, heads: Heads) -> Tensor:
    """The encoder's attention over long sources: cell after cell of sequences of like length."""
    mixed = []
    k_NHE, v_NHE = (each.reshape(-1, heads.heads, size) for each, size in zip((k_NF, v_NF), heads.sizes, strict=True))
    sides = zip(*(cells.queries.spread(each) for each in (q_NHE, k_NHE, v_NHE)), strict=True)
    for (q, k, v), limit in zip(sides, cells.limits, strict=True):
        mixed.append(v if q.shape[1] == 0 else within(q, k, v, limit, heads.scale, 0.0))
    return cells.queries.collect(mixed).flatten(1)
