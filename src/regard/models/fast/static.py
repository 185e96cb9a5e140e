"""A Transformer on CUDA: every shape fixed, so that a step is one graph of kernels, launched as a whole.

At one sentence a step's arithmetic takes microseconds, and launching its hundred kernels one by one takes milliseconds:
captured, they follow each other without the host. Batches are filled up to round sizes, so that few graphs are
captured; what fills them is computed and ignored. On a CPU the same programs run uncaptured, which serves tests.
"""

import math
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.stepper import Board, Straight
from regard.models.beams import check_lines
from regard.models.fast.desk import Desk, Shape, Sizes, best
from regard.models.fast.engine import check_beams
from regard.models.fast.linear import Precision
from regard.models.fast.parts import Embedder, Stacks, blocks_of, filled_output, norm_of, turn_at
from regard.models.fast.quick import QuickDecoder, serves
from regard.models.fast.rectangle import Kind, StaticLayer
from regard.nn.ragged import Ragged

STEPS, PLACES = 64, 16  # steps and source places come in powers of two from these on
IDLE = 8  # desks kept for searches to come, with all that was captured


@dataclass(eq=False)
class Going:
    """A search on a desk: which of its sentences are whose, and when they began."""

    desk: Desk
    lines: list[int]
    """The place of each sentence on the desk."""
    starts: list[int]
    """The step at which each began."""
    clock: int = 0
    lines_B: Tensor | None = None
    """The places on the device, where they are not simply the first ones."""

    def settle(self) -> None:
        """Put the places on the device, if they must be told."""
        simple = self.lines == list(range(len(self.lines)))
        self.lines_B = None if simple else torch.tensor(self.lines, device=self.desk.device)

    def pick(self, x_R: Tensor) -> Tensor:
        """This search's rows of what a program says of all."""
        if self.lines_B is None:
            return x_R[: len(self.lines) * self.desk.shape.beams]
        beams = self.desk.shape.beams
        return x_R.view(-1, beams, *x_R.shape[1:]).index_select(0, self.lines_B).flatten(0, 1)


class StaticEngine:
    """Runs a trained Transformer in fixed shapes. It keeps a copy of the weights: train on, and make a new engine."""

    listed = math.inf

    def __init__(self, model: Stacks, device: torch.device | str, precision: Precision) -> None:
        """Copy a trained model to the device; int8 is for CPUs, and becomes float32 here."""
        self.precision: Precision = "float32" if precision == "int8" else precision
        self.kind = Kind(torch.device(device), self.precision)
        self.device, self.dtype = self.kind.device, self.kind.dtype
        self.encoder = [StaticLayer(block, None, i, self.kind) for i, block in enumerate(blocks_of(model.encoder))]
        self.decoder = [
            StaticLayer(block, block.cross, i, self.kind) for i, block in enumerate(blocks_of(model.decoder))
        ]
        self.embed_source, self.embed_target = (
            Embedder(stack.embedding, self.dtype, self.device) for stack in (model.encoder, model.decoder)
        )
        self.norms = tuple(norm_of(stack.norm, self.dtype, self.device) for stack in (model.encoder, model.decoder))
        self.quick = QuickDecoder(model, self.decoder, self.kind) if serves(model, self.decoder, self.kind) else None
        self.vocabulary = model.output.weight.shape[0]
        self.output = self.kind.linear(*filled_output(model.output))
        first = self.decoder[0]
        self.sizes = Sizes(
            len(self.decoder), (first.own.heads, *first.own.sizes), (first.cross.heads, *first.cross.sizes)
        )
        self.sight = model.encoder.sight
        self.slopes_H = torch.tensor(model.decoder.sight.slopes, dtype=torch.float64, device=self.device)
        self.bias: dict[int, Tensor] = {}
        """What distance adds to the encoder's scores, by places."""
        self.free: list[Desk] = []
        """Desks whose searches are over, the longest idle first."""

    @torch.inference_mode()
    def start(self, source: Ragged, beams: int = 1) -> Going:
        """Begin a search with `beams` rows for each source, those of one source in a line."""
        self.embed_source.check(source.values, source.longest)
        source = source.to(self.device)
        many = len(source)
        state = self._sit(Shape(_round(many, 1), beams, _round(source.longest, PLACES), STEPS))
        desk = state.desk
        state.lines, state.starts = list(range(many)), [0] * many
        desk.length_B[:many] = source.lengths_B
        desk.source_BS.zero_()
        desk.source_BS[source.sequence_N.long(), source.position_N.long()] = source.values.long()
        self._prepare(desk.shape)
        desk.run((0, 0), self._encode)
        return state

    @torch.inference_mode()
    def step(self, tokens_R: Int[Tensor, " R"], state: Going) -> tuple[Float[Tensor, "R V"], Going]:
        """Log-probabilities of the next token in each row, given its last one, and the search with that."""
        (said_RV,), state = self._advance(tokens_R, state, 0)
        return state.pick(said_RV)[:, : self.vocabulary].clone(), state

    @torch.inference_mode()
    def top(
        self, tokens_R: Int[Tensor, " R"], state: Going, k: int
    ) -> tuple[Float[Tensor, "R K"], Int[Tensor, "R K"], Going]:
        """The k greatest of what `step` says, greatest first, and their tokens."""
        (best_RK, token_RK), state = self._advance(tokens_R, state, k)
        return state.pick(best_RK).clone(), state.pick(token_RK).clone(), state

    @torch.inference_mode()
    def select(self, state: Going, rows_R: Int[Tensor, " R"]) -> Going:
        """The search that goes on with these rows: the rows of a sentence stay together; whole sentences may leave."""
        W = state.desk.shape.beams
        check_lines(rows_R, W, len(state.lines) * W)
        if rows_R.shape[0] < len(state.lines) * W:
            stay = (rows_R[::W] // W).tolist()
            state.lines, state.starts = [state.lines[i] for i in stay], [state.starts[i] for i in stay]
            state.settle()
        if W > 1:
            state.desk.reorder(state.lines_B, (rows_R % W).view(-1, W))
        if 4 * len(state.lines) <= state.desk.shape.sentences:
            state = self._move([state])
        return state

    @torch.inference_mode()
    def join(self, states: Sequence[Going]) -> Going:
        """One search of the sentences of several, in order; each row goes on from its own position."""
        check_beams([state.desk.shape.beams for state in states])
        first, *others = states
        for other in others:
            first = self._sit_down(first, other)
        return first

    def board(self, state: Going, key: Hashable, make: Callable[[int, int], Board]) -> Any:
        """The board that lies on a search's desk, made for its size if there is none of this key."""
        desk = state.desk
        if key not in desk.boards:
            desk.boards[key] = make(desk.shape.sentences, desk.shape.steps)
        return desk.boards[key]

    @torch.inference_mode()
    def ready(self, state: Going, steps: int) -> Going:
        """The search with room for so many more steps, and its sentences first on the desk."""
        fits = state.clock + steps <= state.desk.shape.steps and state.lines_B is None
        return state if fits else self._move([state], steps)

    @torch.inference_mode()
    def run(self, state: Going, board: Board, steps: int) -> Going:
        """Make so many steps, for which there is room; the board decides in between."""
        self.embed_target.check(board.token_R, state.clock + steps)
        for _ in range(steps):
            places = _round(state.clock + 1, PLACES)
            state.desk.run((places, id(board)), partial(self._decided, places=places, board=board), board.tables)
            state.clock += 1
        return state

    def _decided(self, desk: Desk, places: int, board: Board) -> tuple[Tensor, ...]:
        """The program of a step whose outcome a board decides over."""
        logits_RV = self._logits(desk, board.token_R, places)
        if self.quick is not None and isinstance(board, Straight):
            board.go_on(*self.quick.pick(logits_RV, self.vocabulary, board.limit))
            return ()
        (logprobs_RV,) = best(logits_RV, 0)
        parent_BW = board.decide(logprobs_RV[:, : self.vocabulary])
        if parent_BW is not None:
            desk.reorder(None, parent_BW)
        return ()

    def _advance(self, tokens_R: Tensor, state: Going, k: int) -> tuple[tuple[Tensor, ...], Going]:
        """One step of every row, on the desk."""
        self.embed_target.check(tokens_R, state.clock - min(state.starts, default=0) + 1)
        state = self._with_room(state)
        desk, W = state.desk, state.desk.shape.beams
        if state.lines_B is None:
            desk.token_R[: tokens_R.shape[0]] = tokens_R
        else:
            desk.token_R.view(-1, W).index_copy_(0, state.lines_B, tokens_R.view(-1, W))
        places = _round(state.clock + 1, PLACES)
        said = desk.run((places, -k), partial(self._step, places=places, k=k))
        state.clock += 1
        return said, state

    def _step(self, desk: Desk, places: int, k: int) -> tuple[Tensor, ...]:
        """A step and what is asked of it."""
        return best(self._logits(desk, desk.token_R, places), k)

    def _logits(self, desk: Desk, token_R: Int[Tensor, " R"], places: int) -> Float[Tensor, "R V"]:
        """The program of a step, which reads these tokens and looks at so many steps."""
        masks = desk.own_mask(places * desk.shape.beams, self.slopes_H), desk.shade_BS[:, None, None]
        x_RD = self.embed_target(token_R, desk.position_R, desk.shape.steps)
        if self.quick is not None:
            state_RD = self.quick(x_RD, desk)
            desk.tick()
            return self.output(state_RD)
        turn = turn_at(desk.position_R, self.sizes.own[1], x_RD) if self.decoder[0].own.turns else None
        for layer in self.decoder:
            x_RD = layer.step(x_RD, desk, masks, turn)
        desk.tick()
        return self.output(self.norms[1](x_RD))

    def _encode(self, desk: Desk) -> tuple[Tensor, ...]:
        """The program of the encoder, from ids on the desk to keys and values on the desk."""
        B, S = desk.shape.sentences, desk.shape.source
        position_N = torch.arange(S, device=self.device).expand(B, S).flatten()
        x_ND = self.embed_source(desk.source_BS.flatten(), position_N, S)
        place_S = torch.arange(S, device=self.device)
        # Padding sees at least itself, or it would be no number.
        allowed = desk.real()[:, None, None] & self.sight.allows(place_S[:, None], place_S) | torch.eye(
            S, dtype=torch.bool, device=self.device
        )
        mask = torch.where(allowed, self.bias[S], self.bias[S].new_full((), -torch.inf))
        turn = turn_at(position_N, self.encoder[0].own.sizes[0], x_ND) if self.encoder[0].own.turns else None
        for layer in self.encoder:
            x_ND = layer.encode(x_ND, mask, turn)
        memory_ND = self.norms[0](x_ND)
        for layer in self.decoder:
            layer.keep(memory_ND, desk)
        desk.cover()
        return ()

    def _sit(self, shape: Shape, clock: int = 0) -> Going:
        """An empty search on a desk of this shape, which is free again when the search is forgotten."""
        fitting = [desk for desk in self.free if desk.shape == shape]
        if fitting:
            self.free.remove(fitting[-1])
        elif len(self.free) >= IDLE:
            del self.free[0]
        desk = fitting[-1] if fitting else Desk(shape, self.sizes, self.dtype, self.device)
        desk.clear(clock)
        state = Going(desk, [], [], clock)
        weakref.finalize(state, self.free.append, desk)
        return state

    def _prepare(self, shape: Shape) -> None:
        """Compute what does not change before a capture: it may bring nothing from the host."""
        for embed in (self.embed_source, self.embed_target):
            embed.prepare(max(shape.source, shape.steps))
        if shape.source not in self.bias:
            place_S = torch.arange(shape.source, device=self.device)
            self.bias[shape.source] = self.sight.bias(place_S, place_S).to(self.dtype)

    def _with_room(self, state: Going) -> Going:
        """The search with room for one more step."""
        return self._move([state]) if state.clock == state.desk.shape.steps else state

    def _sit_down(self, state: Going, other: Going) -> Going:
        """The search with the sentences of another, at places of its desk that are free, or at a larger desk."""
        shape, used = state.desk.shape, max(state.lines, default=-1) + 1
        reach = other.clock - min(other.starts, default=0)
        fits = shape.holds(Shape(used + len(other.lines), shape.beams, other.desk.shape.source, reach))
        if not fits or state.clock < reach:
            return self._move([state, other])
        there = slice(used, used + len(other.lines))
        self._copy(other, state.desk, there, state.clock)
        state.starts += [start + state.clock - other.clock for start in other.starts]
        state.lines += range(there.start, there.stop)
        state.settle()
        return state

    def _move(self, states: Sequence[Going], more: int = 1) -> Going:
        """The sentences of searches at a desk with room for some more steps; those before all of them are forgotten."""
        many = sum(len(state.lines) for state in states)
        spans = [state.clock - min(state.starts, default=state.clock) for state in states]
        source = max(state.desk.shape.source for state in states)
        clock = max(spans)
        shape = Shape(_round(many, 1), states[0].desk.shape.beams, source, _round(clock + more, STEPS))
        moved = self._sit(shape, clock)
        self._prepare(shape)
        for state in states:
            there = slice(len(moved.lines), len(moved.lines) + len(state.lines))
            self._copy(state, moved.desk, there, clock)
            moved.lines += range(there.start, there.stop)
            moved.starts += [start + clock - state.clock for start in state.starts]
        return moved

    def _copy(self, state: Going, desk: Desk, there: slice, clock: int) -> None:
        """Copy a search's sentences to a desk where it is this late."""
        first = min(state.starts, default=state.clock)
        lines_B = torch.tensor(state.lines, dtype=torch.int64, device=self.device)
        desk.take_in(there, state.desk, lines_B, (first, state.clock, clock))


def _round(many: int, least: int) -> int:
    """The next power of two times `least`."""
    rounded = least
    while rounded < many:
        rounded *= 2
    return rounded
