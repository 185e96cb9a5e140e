"""A Transformer on a CPU: packed linears, and keys and values that are pointed at rather than moved.

A row of a search is a list of places where its own tokens lie, and those of its source. Beams that change places, and
sentences that leave, exchange or drop such lists; sentences that join bring theirs. Rows need not be equally long: all
write into the last column of the lists, and what lies before a row's beginning is shaded.
"""

import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.models.beams import check_lines
from regard.models.fast.company import Company
from regard.models.fast.engine import check_beams
from regard.models.fast.gaze import LINE, Gaze, available, gaze, seats_of, shaded
from regard.models.fast.heap import keep_freed_memory
from regard.models.fast.layers import Decoder, DecoderLayer, EncoderLayer, exact_of
from regard.models.fast.linear import Precision, dtype_of, fill_up, pack_output
from regard.models.fast.norms import norm_of
from regard.models.fast.parts import Embedder, Stacks, Turn, blocks_of, filled_output, turn_at
from regard.models.fast.pool import Pool
from regard.models.fast.script import compiled
from regard.models.fast.search import Search, absorb, take, trim
from regard.models.fast.top import greatest
from regard.nn.attention.banded import within
from regard.nn.attention.plan import Cells, plan
from regard.nn.ragged import Ragged

HEAVY = 1 << 22
"""Numbers in a decoder from which on threads may share a step: reading smaller ones takes less than waiting."""
LONG = 40
"""Tokens of the longest source from which on the encoder's attention is cheaper as a product of whole matrices."""


class IndexedEngine:
    """Runs a trained Transformer on a CPU. It keeps a copy of the weights: train on, and make a new engine."""

    listed = 1  # a CPU looks through a whole row sooner than it sorts the first few

    def __init__(self, model: Stacks, precision: Precision) -> None:
        """Pack a trained model."""
        assert available(), "this build of torch has no attention by index"
        keep_freed_memory()
        self.precision: Precision = precision
        dtype, self.exact = dtype_of(precision), exact_of(precision)
        self.sight = model.encoder.sight
        self.embed_source, self.embed_target = (
            Embedder(stack.embedding, dtype) for stack in (model.encoder, model.decoder)
        )
        encoder, decoder = blocks_of(model.encoder), blocks_of(model.decoder)
        self.encoder_layers = [EncoderLayer(block, precision).eval() for block in encoder]
        crosses = [block.cross for block in decoder if block.cross is not None]
        self.decoder_layers = [
            DecoderLayer(block, cross, precision).eval() for block, cross in zip(decoder, crosses, strict=True)
        ]
        self.vocabulary, self.width = model.output.weight.shape
        self.encoder_norm, norm = norm_of(model.encoder.norm, dtype), norm_of(model.decoder.norm, dtype)
        output = pack_output(*filled_output(model.output), precision)
        slopes_H = torch.tensor(model.decoder.sight.slopes, dtype=self.exact)
        self.encoder_steps = [compiled(each) for each in self.encoder_layers]
        decoder_steps = Decoder(self.decoder_layers, norm, output, slopes_H)
        fill_up(decoder_steps)
        self.decode = compiled(decoder_steps)
        numbers = sum(each.numel() for each in model.decoder.parameters())
        # int8 gains little, and float64 is for whom the order of a sum matters.
        self.company = Company() if numbers > HEAVY and precision in ("float32", "bfloat16") else None
        self.gaze, self.greatest = compiled(gaze), compiled(greatest)
        own, cross = decoder[0].self, crosses[0]
        self.own = own.heads, (own.key_size, own.value_size)
        self.memory = cross.heads, (cross.key_size, cross.value_size)
        self.turned = encoder[0].self.rotary is not None, own.rotary is not None
        self.spare: dict[tuple[int, tuple[int, int]], deque[Pool]] = {self.own: deque(), self.memory: deque()}
        self.unturned = torch.empty(0, dtype=self.exact), torch.empty(0, dtype=self.exact)

    @torch.inference_mode()
    def start(self, source: Ragged, beams: int = 1) -> Search:
        """Begin a search with `beams` rows for each source, those of one source in a line."""
        memory_ND = self._encode(source)
        rows = len(source) * beams
        own, pool = self._pool(*self.own, rows * LINE), self._pool(*self.memory, source.tokens)
        where = pool.take(source.tokens)
        for number, layer in enumerate(self.decoder_layers if source.tokens else ()):
            pool.write(number, where, *layer.keep(memory_ND))
        place_S = torch.arange(seats_of(source.longest))
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
        logits_NV, each = self._advance(tokens_R, state)
        said_NV = logits_NV.to(self.exact)
        torch.log_softmax(said_NV, -1, out=said_NV)  # where the logits lie, so that no second table is written
        return _spread(said_NV[:, : self.vocabulary], each), state

    @torch.inference_mode()
    def top(
        self, tokens_R: Int[Tensor, " R"], state: Search, k: int
    ) -> tuple[Float[Tensor, "R K"], Int[Tensor, "R K"], Search]:
        """The k greatest of what `step` says, greatest first, and their tokens."""
        logits_NV, each = self._advance(tokens_R, state)
        best_NK, token_NK = self.greatest(logits_NV, k)
        return _spread(best_NK, each), _spread(token_NK, each), state

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
        cos, sin = self._turn(0, source.position_N)
        for layer, step in zip(self.encoder_layers, self.encoder_steps, strict=True):
            if isinstance(where, Cells):
                x_ND = layer.leave(_in_cells(layer.project(x_ND, cos, sin), where, layer), x_ND)
            else:
                x_ND = step(x_ND, where, cos, sin)
        normed_ND: Tensor = self.encoder_norm(x_ND)
        return normed_ND

    def _turn(self, side: int, position_N: Int[Tensor, " N"]) -> Turn:
        """What turns queries and keys at these positions, in the encoder (0) or the decoder (1)."""
        layers = (self.encoder_layers, self.decoder_layers)[side]
        return turn_at(position_N, layers[0].query.size, self.unturned[0]) if self.turned[side] else self.unturned

    def _where(self, source: Ragged) -> Gaze | Cells:
        """Who looks where in the source."""
        sight, heads = self.sight, self.encoder_layers[0].query.heads
        if source.longest > LONG or source.tokens * heads < seats_of(source.longest):
            cells = plan(sight, source.layout, source.layout).cells
            assert cells is not None, "plans on a CPU have cells"
            return cells
        place_K = torch.arange(seats_of(source.longest))
        begin_N1 = (torch.arange(source.tokens) - source.position_N)[:, None]
        seen_NK = (place_K < source.lengths_B[source.sequence_N.long()][:, None]) & sight.allows(
            source.position_N[:, None], place_K
        )
        shade_NHK = shaded(seen_NK, self.exact)[:, None]
        if sight.slopes:
            ahead_NK = (place_K - source.position_N[:, None]).abs()
            shade_NHK = shade_NHK - torch.tensor(sight.slopes, dtype=self.exact)[:, None] * ahead_NK[:, None]
        rows_NK = torch.where(seen_NK, begin_N1 + place_K, 0)
        at: Gaze = self.gaze(rows_NK, shade_NHK, heads, source.tokens * heads)
        return at

    def _advance(self, tokens_R: Int[Tensor, " R"], state: Search) -> tuple[Float[Tensor, "N V"], int]:
        """The logits behind one new token in each row, tokens that only fill up the vocabulary among them.

        Also for how many rows each stands: where the rows of every sentence begin alike, one speaks for all.
        """
        each = state.beams if state.clock == 0 and _alike(tokens_R, state.beams) else 1
        length_N = state.length_R[::each]
        x_ND = self._embed(tokens_R[::each], length_N, state.clock + 1)
        new = take(state, each)
        lists, turn = (state.rows_RT[::each], state.shade_RT[::each], state.clock), self._turn(1, length_N)
        at_memory = self._gaze_at_memory(state, each)
        tables = state.own.tables, state.memory.looks
        with nullcontext() if self.company is None else self.company.step(length_N.shape[0]):
            logits_NV: Tensor = self.decode(x_ND, lists, new, *tables, at_memory, turn)
        if each > 1:
            state.rows_RT[:, 0], state.shade_RT[:, 0] = _spread(state.rows_RT[::each, 0], each), 0
        state.clock += 1
        state.length_R = state.length_R + 1
        return logits_NV, each

    def _embed(self, tokens_R: Int[Tensor, " R"], length_R: Int[Tensor, " R"], longest: int) -> Float[Tensor, "R D"]:
        """The vectors of the rows' last tokens."""
        self.embed_target.check(tokens_R[:0], longest)
        try:
            return self.embed_target(tokens_R, length_R, longest)
        except IndexError:
            self.embed_target.check(tokens_R, longest)
            raise

    def _gaze_at_memory(self, state: Search, each: int) -> Gaze:
        """The source of each row, which its beams share, or of the first of each sentence."""
        if each > 1:
            first: Gaze = self.gaze(state.source_BS, state.shade_BS[:, None], self.memory[0], state.memory.lines)
            return first
        if state.at_memory is None:
            rows_RS = state.source_BS.repeat_interleave(state.beams, 0)
            shade_RHS = state.shade_BS.repeat_interleave(state.beams, 0)[:, None]
            state.at_memory = self.gaze(rows_RS, shade_RHS, self.memory[0], state.memory.lines)
        return state.at_memory


def _alike(tokens_R: Int[Tensor, " R"], beams: int) -> bool:
    """Whether all rows of each sentence read the same token."""
    return beams > 1 and bool((tokens_R.view(-1, beams) == tokens_R[::beams, None]).all())


def _spread(x_N: Tensor, each: int) -> Tensor:
    """What one row says, said of all that it stands for."""
    return x_N if each == 1 else x_N.repeat_interleave(each, 0)


def _in_cells(projected: Sequence[Tensor], cells: Cells, layer: EncoderLayer) -> Tensor:
    """The encoder's attention over long sources: cell after cell of sequences of like length."""
    mixed = []
    heads, scale = layer.query.heads, layer.query.scale
    sides = zip(*(cells.queries.spread(each.reshape(each.shape[0], heads, -1)) for each in projected), strict=True)
    for (q, k, v), limit in zip(sides, cells.limits, strict=True):
        mixed.append(v if q.shape[1] == 0 else within(q, k, v, limit, scale, 0.0))
    return cells.queries.collect(mixed).flatten(1)
