"""A Transformer on CUDA: every shape is fixed, so that a step is one CUDA graph, launched as a whole.

For one sentence the arithmetic of a step takes microseconds, but launching its hundred kernels one by one takes
milliseconds. Captured, they follow each other without the host. Batches are padded to round sizes, so that few graphs
are captured; the padding is computed and ignored. On a CPU the same programs run uncaptured, which serves tests.
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

from regard.decode.stepper import StaticGreedy, StaticSearch
from regard.engines.engine import check_equal_beams
from regard.engines.layers import EngineEmbedding, Rotation, convert_norm, rotation_at
from regard.engines.linear import Precision
from regard.engines.parts import TransformerParts
from regard.engines.static_layers import StaticLayer, Target
from regard.engines.triton_decoder import TritonDecoder, can_serve
from regard.engines.workspace import CacheSizes, Workspace, WorkspaceShape, logprobs_or_top
from regard.models.hierarchical import HierarchicalTransformerEncoder
from regard.models.rows import check_rows
from regard.nn.ragged import Ragged

MIN_STEPS, MIN_INPUTS = 64, 16  # steps and input tokens are rounded up to powers of two times these
MAX_IDLE = 8  # workspaces kept for later batches, with all that was captured


@dataclass(eq=False)
class StaticState:
    """A batch in a workspace: the places of its sentences there, and when they began."""

    work: Workspace
    places: list[int]
    """The place of each sentence in the workspace."""
    starts: list[int]
    """The step at which each sentence began."""
    prompts: list[int]
    """Tokens of each sentence's prompt; 0 if the model has an encoder."""
    clock: int = 0
    """Steps the workspace has made."""
    places_B: Tensor | None = None
    """The places on the device; None if they are simply the first ones."""

    @property
    def longest(self) -> int:
        """Length of the longest row, its prompt included."""
        lengths = (prompt + self.clock - start for prompt, start in zip(self.prompts, self.starts, strict=True))
        return max(lengths, default=0)

    def send_places(self) -> None:
        """Copy the places to the device, if they are not simply the first ones."""
        simple = self.places == list(range(len(self.places)))
        self.places_B = None if simple else torch.tensor(self.places, device=self.work.device)

    def rows_of(self, x_R: Tensor) -> Tensor:
        """Return this batch's rows of a program's result."""
        beams = self.work.shape.beams
        if self.places_B is None:
            return x_R[: len(self.places) * beams]
        return x_R.view(-1, beams, *x_R.shape[1:]).index_select(0, self.places_B).flatten(0, 1)


class StaticEngine:
    """Runs a trained Transformer in fixed shapes. It copies the weights: after more training, make a new engine."""

    max_top_k = math.inf

    def __init__(self, model: TransformerParts, device: torch.device | str, precision: Precision) -> None:
        """Copy a trained model to the device. int8 is for CPUs only, and becomes float32 here."""
        assert not isinstance(model.encoder, HierarchicalTransformerEncoder), (
            "the shapes of its pass depend on the data"
        )
        self.precision: Precision = "float32" if precision == "int8" else precision
        self.target = Target(torch.device(device), self.precision)
        self.device, self.dtype = self.target.device, self.target.dtype
        reader = model.decoder if model.encoder is None else model.encoder
        self.embed_input, self.embed = (
            EngineEmbedding(stack.embedding, self.dtype, self.device) for stack in (reader, model.decoder)
        )
        self.encoder: list[StaticLayer] | None = None
        if model.encoder is not None:
            self.encoder = [StaticLayer(block, i, self.target) for i, block in enumerate(model.encoder.blocks)]
            self.encoder_norm = convert_norm(model.encoder.norm, self.dtype, self.device)
        self.decoder = [StaticLayer(block, i, self.target) for i, block in enumerate(model.decoder.blocks)]
        self.norm = convert_norm(model.decoder.norm, self.dtype, self.device)
        self.triton = None
        if can_serve(model, self.decoder, self.target):
            self.triton = TritonDecoder(model, self.decoder, self.target)
        self.vocabulary = model.output.weight.shape[0]
        self.output = self.target.linear(*model.padded_output())
        queries = [self.decoder[0].query, *([] if self.decoder[0].cross is None else [self.decoder[0].cross.query])]
        sizes = [(query.heads, query.key_size, query.value_size) for query in queries]
        self.sizes = CacheSizes(len(self.decoder), sizes[0], sizes[1] if len(sizes) > 1 else None)
        self.mask = reader.mask
        self.slopes_H = torch.tensor(model.decoder.mask.slopes, dtype=torch.float64, device=self.device)
        self.empty = torch.empty(0, dtype=self.dtype, device=self.device)
        self.input_bias: dict[int, Tensor] = {}
        """What distance adds to scores among the inputs, by their number."""
        self.idle: list[Workspace] = []
        """Workspaces whose batches are finished, the longest idle first."""

    @torch.inference_mode()
    def start(self, inputs: Ragged, beams: int = 1) -> StaticState:
        """Encode sources, or prefill prompts, and return the decoding state with `beams` adjacent rows for each."""
        self.embed_input.check(inputs.values, inputs.longest)
        sentences, prompts = len(inputs), [0] * len(inputs)
        if self.encoder is None:
            prompts = inputs.lengths_B.tolist()
        inputs = inputs.to(self.device)
        state = self._seat(WorkspaceShape(_round(sentences, 1), beams, _round(inputs.longest, MIN_INPUTS), MIN_STEPS))
        work = state.work
        state.places, state.starts, state.prompts = list(range(sentences)), [0] * sentences, prompts
        work.length_B[:sentences] = inputs.lengths_B
        work.input_BS.zero_()
        column_N = inputs.position_N.long()
        if work.prompt:  # prompts end in the last column
            column_N += (work.prompt - work.length_B).index_select(0, inputs.sequence_N)
            work.position_R.view(-1, beams).copy_(work.length_B[:, None])
        work.input_BS[inputs.sequence_N.long(), column_N] = inputs.values.long()
        self._prepare(work.shape)
        work.run((0, 0), self._read_inputs)
        return state

    @torch.inference_mode()
    def step(self, tokens_R: Int[Tensor, " R"], state: StaticState) -> tuple[Float[Tensor, "R V"], StaticState]:
        """Append one token to each row; return the log-probabilities of the token after it, and the new state."""
        (logprobs_RV,), state = self._advance(tokens_R, state, 0)
        return state.rows_of(logprobs_RV)[:, : self.vocabulary].clone(), state

    @torch.inference_mode()
    def top_k(
        self, tokens_R: Int[Tensor, " R"], state: StaticState, k: int
    ) -> tuple[Float[Tensor, "R K"], Int[Tensor, "R K"], StaticState]:
        """Make a step; return the k greatest log-probabilities of each row, greatest first, their tokens, the state."""
        (logprob_RK, token_RK), state = self._advance(tokens_R, state, k)
        return state.rows_of(logprob_RK).clone(), state.rows_of(token_RK).clone(), state

    @torch.inference_mode()
    def select(self, state: StaticState, rows_R: Int[Tensor, " R"]) -> StaticState:
        """Return the state that continues from these rows: beams keep to their sentence, whole sentences may leave."""
        W = state.work.shape.beams
        check_rows(rows_R, W, len(state.places) * W)
        if rows_R.shape[0] < len(state.places) * W:
            stay = (rows_R[::W] // W).tolist()
            state.places, state.starts, state.prompts = (
                [values[i] for i in stay] for values in (state.places, state.starts, state.prompts)
            )
            state.send_places()
        if W > 1:
            state.work.reorder(state.places_B, (rows_R % W).view(-1, W))
        if 4 * len(state.places) <= state.work.shape.sentences:
            state = self._move([state])
        return state

    @torch.inference_mode()
    def join(self, states: Sequence[StaticState]) -> StaticState:
        """Return one state of the sentences of several, in order; each row continues from its own position."""
        check_equal_beams([state.work.shape.beams for state in states])
        first, *others = states
        for other in others:
            first = self._join_two(first, other)
        return first

    def static_search(self, state: StaticState, key: Hashable, make: Callable[[int, int], StaticSearch]) -> Any:
        """Return the search tables of this key in a batch's workspace; make them for its shape if there are none."""
        work = state.work
        if key not in work.searches:
            work.searches[key] = make(work.shape.sentences, work.shape.steps)
        return work.searches[key]

    @torch.inference_mode()
    def reserve(self, state: StaticState, steps: int) -> StaticState:
        """Return the state with capacity for so many more steps, its sentences at the first places."""
        fits = state.clock + steps <= state.work.shape.steps and state.places_B is None
        return state if fits else self._move([state], steps)

    @torch.inference_mode()
    def run_steps(self, state: StaticState, search: StaticSearch, steps: int) -> StaticState:
        """Make this many steps, for which there is capacity; the search chooses the tokens between them."""
        self.embed.check(search.token_R, state.clock + max(state.prompts, default=0) + steps)
        for _ in range(steps):
            reach = _round(state.clock + 1, MIN_INPUTS)
            program = partial(self._step_and_decide, reach=reach, search=search)
            state.work.run((reach, id(search)), program, search.buffers)
            state.clock += 1
        return state

    def _step_and_decide(self, work: Workspace, reach: int, search: StaticSearch) -> tuple[Tensor, ...]:
        """Run a step, after which the search chooses the token of each row."""
        logits_RV = self._logits(work, search.token_R, reach)
        if self.triton is not None and isinstance(search, StaticGreedy):
            search.append(*self.triton.pick(logits_RV, self.vocabulary, search.limits))
            return ()
        (logprobs_RV,) = logprobs_or_top(logits_RV, 0)
        parent_BW = search.advance(logprobs_RV[:, : self.vocabulary])
        if parent_BW is not None:
            work.reorder(None, parent_BW)
        return ()

    def _advance(self, tokens_R: Tensor, state: StaticState, k: int) -> tuple[tuple[Tensor, ...], StaticState]:
        """Make one step of every row of the workspace."""
        self.embed.check(tokens_R, state.longest + 1)
        state = self._move([state]) if state.clock == state.work.shape.steps else state
        work, W = state.work, state.work.shape.beams
        if state.places_B is None:
            work.token_R[: tokens_R.shape[0]] = tokens_R
        else:
            work.token_R.view(-1, W).index_copy_(0, state.places_B, tokens_R.view(-1, W))
        reach = _round(state.clock + 1, MIN_INPUTS)
        result = work.run((reach, -k), partial(self._step, reach=reach, k=k))
        state.clock += 1
        return result, state

    def _step(self, work: Workspace, reach: int, k: int) -> tuple[Tensor, ...]:
        """Run a step and return all log-probabilities or the k greatest."""
        return logprobs_or_top(self._logits(work, work.token_R, reach), k)

    def _logits(self, work: Workspace, token_R: Int[Tensor, " R"], reach: int) -> Float[Tensor, "R V"]:
        """Run a step that reads these tokens and attends to so many steps."""
        own_mask = work.own_mask(reach, self.slopes_H)
        x_RD = self.embed(token_R, work.position_R, work.prompt + work.shape.steps)
        if self.triton is not None:
            state_RD = self.triton(x_RD, work)
        else:
            rotation = self._rotation(self.decoder[0], work.position_R, x_RD)
            for layer in self.decoder:
                x_RD = layer.step(x_RD, work, own_mask, rotation)
            state_RD = self.norm(x_RD)
        work.tick()
        logits_RV: Tensor = self.output(state_RD)
        return logits_RV

    def _read_inputs(self, work: Workspace) -> tuple[Tensor, ...]:
        """Encode sources and write keys and values of the memory, or write those of prompts (prefill)."""
        B, S = work.shape.sentences, work.shape.inputs
        column_S = torch.arange(S, device=self.device)
        position_BS = work.input_positions().clamp(min=0) if work.prompt else column_S.expand(B, S)
        x_ND = self.embed_input(work.input_BS.flatten(), position_BS.flatten(), S)
        # Padding attends at least to itself, or it would be NaN.
        mask = work.is_token()[:, None, None] & self.mask.allows(column_S[:, None], column_S) | torch.eye(
            S, dtype=torch.bool, device=self.device
        )
        mask = torch.where(mask, self.input_bias[S], self.input_bias[S].new_full((), -torch.inf))
        layers = self.decoder if self.encoder is None else self.encoder
        rotation = self._rotation(layers[0], position_BS.flatten(), x_ND)
        for layer in layers:
            x_ND = layer.forward(x_ND, mask, rotation, work if work.prompt else None)
        if self.encoder is not None:
            memory_ND = self.encoder_norm(x_ND)
            for layer in self.decoder:
                assert layer.cross is not None, "a decoder with an encoder attends to it"
                layer.cross.keep(memory_ND, work)
        work.mask_inputs()
        return ()

    def _rotation(self, layer: StaticLayer, position_N: Int[Tensor, " N"], like: Tensor) -> Rotation:
        """Return cosine and sine for rotary positions; empty tensors where the layer has none."""
        query = layer.query
        return rotation_at(position_N, query.key_size, like) if query.rotary else (self.empty, self.empty)

    def _seat(self, shape: WorkspaceShape, clock: int = 0) -> StaticState:
        """Return an empty batch in a workspace of this shape, which is idle again when the batch is garbage."""
        fitting = [work for work in self.idle if work.shape == shape]
        if fitting:
            self.idle.remove(fitting[-1])
        elif len(self.idle) >= MAX_IDLE:
            del self.idle[0]
        work = fitting[-1] if fitting else Workspace(shape, self.sizes, self.dtype, self.device)
        work.clear(clock)
        state = StaticState(work, [], [], [], clock)
        weakref.finalize(state, self.idle.append, work)
        return state

    def _prepare(self, shape: WorkspaceShape) -> None:
        """Compute what does not change, before a capture: a captured program may bring nothing from the host."""
        prompt = 0 if self.encoder is not None else shape.inputs
        self.embed_input.prepare(max(shape.inputs, shape.steps))
        self.embed.prepare(max(shape.inputs, prompt + shape.steps))
        if shape.inputs not in self.input_bias:
            column_S = torch.arange(shape.inputs, device=self.device)
            self.input_bias[shape.inputs] = self.mask.bias(column_S, column_S).to(self.dtype)

    def _join_two(self, state: StaticState, other: StaticState) -> StaticState:
        """Return a state with the sentences of another, at free places of its workspace or in a larger one."""
        shape, used = state.work.shape, max(state.places, default=-1) + 1
        steps = other.clock - min(other.starts, default=0)
        fits = shape.holds(WorkspaceShape(used + len(other.places), shape.beams, other.work.shape.inputs, steps))
        if not fits or state.clock < steps:
            return self._move([state, other])
        target = slice(used, used + len(other.places))
        self._copy(other, state.work, target, state.clock)
        state.starts += [start + state.clock - other.clock for start in other.starts]
        state.prompts += other.prompts
        state.places += range(target.start, target.stop)
        state.send_places()
        return state

    def _move(self, states: Sequence[StaticState], more: int = 1) -> StaticState:
        """Return the sentences of several states in a workspace with capacity for more steps.

        Steps before the first one of every sentence are dropped.
        """
        sentences = sum(len(state.places) for state in states)
        clock = max(state.clock - min(state.starts, default=state.clock) for state in states)
        inputs = max(state.work.shape.inputs for state in states)
        beams = states[0].work.shape.beams
        shape = WorkspaceShape(_round(sentences, 1), beams, inputs, _round(clock + more, MIN_STEPS))
        moved = self._seat(shape, clock)
        self._prepare(shape)
        for state in states:
            target = slice(len(moved.places), len(moved.places) + len(state.places))
            self._copy(state, moved.work, target, clock)
            moved.places += range(target.start, target.stop)
            moved.starts += [start + clock - state.clock for start in state.starts]
            moved.prompts += state.prompts
        return moved

    def _copy(self, state: StaticState, work: Workspace, target: slice, clock: int) -> None:
        """Copy a batch's sentences to a workspace that has made this many steps."""
        first = min(state.starts, default=state.clock)
        places_B = torch.tensor(state.places, dtype=torch.int64, device=self.device)
        work.copy_from(target, state.work, places_B, (first, state.clock, clock))


def _round(number: int, least: int) -> int:
    """Round up to a power of two times `least`."""
    rounded = least
    while rounded < number:
        rounded *= 2
    return rounded
