"""Tensors of fixed shape in which a batch is decoded on CUDA, so that programs over them can be captured.

The keys of a sentence's W rows are adjacent, W for each step, and each row has a mask of those it descends from.
To reorder beams, only masks change, and all W rows read the keys of their sentence together. The prompts of a language
model are stored before the first step; the W rows of a sentence share them.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.engines.topk import top_logprobs

KERNELS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]  # cuDNN would compile one for each shape
WARM_UP = 2  # runs before a capture, in which kernels choose and allocate what they need


@dataclass(frozen=True)
class WorkspaceShape:
    """Capacity of a workspace."""

    sentences: int
    beams: int
    inputs: int
    """Tokens of a source, or of a prompt."""
    steps: int

    def holds(self, other: "WorkspaceShape") -> bool:
        """Return whether a batch of another shape fits in."""
        fits = self.sentences >= other.sentences and self.inputs >= other.inputs and self.steps >= other.steps
        return fits and self.beams == other.beams


@dataclass(frozen=True)
class CacheSizes:
    """The sizes of a model's KV cache: layers, and heads with the sizes of their keys and values."""

    layers: int
    own: tuple[int, int, int]
    memory: tuple[int, int, int] | None
    """None for a language model."""


class Workspace:
    """The tensors of one batch, and the CUDA graphs captured over them."""

    def __init__(self, shape: WorkspaceShape, sizes: CacheSizes, dtype: torch.dtype, device: torch.device) -> None:
        """Allocate everything, all zero: padding is computed too, and must not be NaN."""
        self.shape, self.device = shape, device
        B, W, S, T = shape.sentences, shape.beams, shape.inputs, shape.steps
        self.prompt = S if sizes.memory is None else 0
        """Columns of the rows' own tables that hold prompts, before those of the steps."""

        def tables(heads: int, columns: int, size: int) -> list[Tensor]:
            return [torch.zeros(B, heads, columns, size, dtype=dtype, device=device) for _ in range(sizes.layers)]

        columns = self.prompt + T * W
        self.own_keys, self.own_values = (tables(sizes.own[0], columns, size) for size in sizes.own[1:])
        self.keys, self.values = list[Tensor](), list[Tensor]()
        if sizes.memory is not None:
            self.keys, self.values = (tables(sizes.memory[0], S, size) for size in sizes.memory[1:])
        self.own_bias_BWK = torch.full((B, W, columns), -torch.inf, dtype=dtype, device=device)
        """What is added to a row's scores of its own columns: 0 where it descends from there, else minus infinity."""
        self.bias_BS = torch.zeros(B, S, dtype=dtype, device=device)
        """What is added to scores of the memory."""
        self.input_BS = torch.zeros(B, S, dtype=torch.int64, device=device)
        """Tokens of the sources, or of the prompts, which end in the last column."""
        self.length_B = torch.zeros(B, dtype=torch.int64, device=device)
        """Tokens of each source or prompt."""
        self.new_W = torch.arange(self.prompt, self.prompt + W, device=device)
        """Own columns of the tokens being read."""
        self.token_R = torch.zeros(B * W, dtype=torch.int64, device=device)
        self.position_R = torch.zeros(B * W, dtype=torch.int64, device=device)
        self.clock = torch.zeros((), dtype=torch.int64, device=device)
        """Steps made."""
        self.searches: dict[Hashable, Any] = {}
        """The search tables of batches decoded here, over which programs were captured."""
        self.results: dict[Hashable, tuple[Tensor, ...]] = {}
        """What the last run of each program returned."""
        self.graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self.memory_pool: Any = None
        """The memory of captured programs: one for all, since no two run at a time."""

    def run(
        self, name: Hashable, program: Callable[["Workspace"], tuple[Tensor, ...]], tables: Sequence[Tensor] = ()
    ) -> tuple[Tensor, ...]:
        """Run a program over these tensors: capture it the first time, replay it from then on.

        The next run of any program overwrites what this one returns. The program may change `tables` besides.
        """
        if self.device.type != "cuda":
            self.results[name] = program(self)
        else:
            if name not in self.graphs:
                self._capture(name, program, tables)
            self.graphs[name].replay()
        return self.results[name]

    def _capture(
        self, name: Hashable, program: Callable[["Workspace"], tuple[Tensor, ...]], tables: Sequence[Tensor]
    ) -> None:
        """Capture a program in a CUDA graph. The warm-up runs leave no trace."""
        changed = (self.clock, self.position_R, self.new_W, self.own_bias_BWK, *tables)
        before = [(tensor, tensor.clone()) for tensor in changed]

        def restore() -> None:
            for tensor, value in before:
                tensor.copy_(value)

        stream: torch.cuda.Stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                with sdpa_kernel(KERNELS):
                    program(self)
                restore()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, self.memory_pool, capture_error_mode="thread_local"), sdpa_kernel(KERNELS):
            self.results[name] = program(self)
        self.memory_pool = self.memory_pool or graph.pool()
        self.graphs[name] = graph

    def own_mask(self, steps: int, slopes_H: Float[Tensor, " H"]) -> Float[Tensor, "B H2 W K"]:
        """Return what is added to scores of the prompts and the first steps, the new tokens' among them."""
        B, W = self.shape.sentences, self.shape.beams
        self.own_bias_BWK.scatter_(2, self.new_W.view(1, W, 1).expand(B, W, 1), 0.0)
        bias_BHWK = self.own_bias_BWK[:, None, :, : self.prompt + steps * W]
        if not slopes_H.numel():
            return bias_BHWK
        # Each step has W columns, one for each beam, at the same distance.
        distance_K = (torch.arange(steps * W, device=self.device) // W - self.clock).abs()
        alibi = -slopes_H[:, None, None] * distance_K
        if self.prompt:
            # A sentence that joined late has made fewer steps since its prompt, so its distances are its own.
            position_B1 = self.position_R.view(-1, W)[:, :1]
            distance_BS = (position_B1 - self.input_positions()).abs()
            prompt_BHWS = (-slopes_H[:, None] * distance_BS[:, None])[:, :, None]
            alibi = torch.cat([prompt_BHWS, alibi.expand(B, -1, -1, -1)], -1)
        return bias_BHWK + alibi.to(bias_BHWK.dtype)

    def input_positions(self) -> Int[Tensor, "B S"]:
        """Return the position of each column of the prompts; negative for padding."""
        return torch.arange(self.shape.inputs, device=self.device) - (self.shape.inputs - self.length_B[:, None])

    def is_token(self) -> Bool[Tensor, "B S"]:
        """Return which input columns hold tokens: prompts end in the last column, sources begin in the first."""
        if self.prompt:
            return self.input_positions() >= 0
        return torch.arange(self.shape.inputs, device=self.device) < self.length_B[:, None]

    def mask_inputs(self) -> None:
        """Mask padding of the inputs. A row with an empty source attends to its first column, whose value is zero."""
        if self.prompt:
            self.own_bias_BWK[:, :, : self.prompt] = 0.0
            self.own_bias_BWK[:, :, : self.prompt].masked_fill_(~self.is_token()[:, None], -torch.inf)
        else:
            mask_BS = self.is_token() | (torch.arange(self.shape.inputs, device=self.device) == 0)
            self.bias_BS.zero_().masked_fill_(~mask_BS, -torch.inf)

    def write(self, layer: int, k_BHWE: Float[Tensor, "B H W E"], v_BHWE: Float[Tensor, "B H W E2"]) -> None:
        """Write the new tokens' keys and values of a layer."""
        self.own_keys[layer].index_copy_(2, self.new_W, k_BHWE)
        self.own_values[layer].index_copy_(2, self.new_W, v_BHWE)

    def tick(self) -> None:
        """Go on to the next step."""
        self.clock.add_(1)
        self.new_W.add_(self.shape.beams)
        self.position_R.add_(1)

    def reorder(self, sentences_B: Int[Tensor, " B"] | None, parent_BW: Int[Tensor, "B W"]) -> None:
        """Let the rows of these sentences, or of the first ones, continue from those rows of their sentence."""
        many = parent_BW.shape[0]
        bias_BWK = self.own_bias_BWK[:many] if sentences_B is None else self.own_bias_BWK.index_select(0, sentences_B)
        selected_BWK = bias_BWK.gather(1, parent_BW[:, :, None].expand(-1, -1, bias_BWK.shape[2]))
        if sentences_B is None:
            self.own_bias_BWK[:many] = selected_BWK
        else:
            self.own_bias_BWK.index_copy_(0, sentences_B, selected_BWK)

    def clear(self, clock: int = 0) -> None:
        """Drop every row, and set the number of steps made."""
        self.own_bias_BWK.fill_(-torch.inf)
        self.clock.fill_(clock)
        first = self.prompt + clock * self.shape.beams
        torch.arange(first, first + self.shape.beams, out=self.new_W)
        self.position_R.zero_()
        self.length_B.zero_()

    def copy_from(
        self, target: slice, other: "Workspace", sentences_B: Int[Tensor, " B"], steps: tuple[int, int, int]
    ) -> None:
        """Copy sentences of another workspace to these places.

        The other workspace may be this one if no place is both read and written.

        Args:
            target: The places here.
            other: The other workspace.
            sentences_B: The places there.
            steps: Their first step, the step after their last, and where the latter goes here.
        """
        W, (first, last, end) = self.shape.beams, steps
        inputs, old = other.shape.inputs, slice(other.prompt + first * W, other.prompt + last * W)
        new = slice(self.prompt + (end - last + first) * W, self.prompt + end * W)
        # Sources begin in the first column, prompts end in the last one.
        columns = slice(self.prompt - other.prompt, self.prompt) if self.prompt else slice(0, inputs)
        for layer in range(len(self.own_keys)):
            for mine, theirs in ((self.own_keys, other.own_keys), (self.own_values, other.own_values)):
                mine[layer][target, :, new] = theirs[layer][sentences_B, :, old]
                if self.prompt:
                    mine[layer][target, :, columns] = theirs[layer][sentences_B, :, :inputs]
        for mine, theirs in ((self.keys, other.keys), (self.values, other.values)):
            for layer, table in enumerate(mine):
                table[target, :, columns] = theirs[layer][sentences_B]
        self.input_BS[target, columns] = other.input_BS[sentences_B]
        self.length_B[target] = other.length_B[sentences_B]
        self.own_bias_BWK[target] = -torch.inf
        self.own_bias_BWK[target, :, new] = other.own_bias_BWK[sentences_B, :, old]
        position_BW = self.position_R.view(-1, W)
        position_BW[target] = other.position_R.view(-1, W)[sentences_B]
        self.mask_inputs()


def logprobs_or_top(logits_RV: Float[Tensor, "R V"], k: int) -> tuple[Tensor, ...]:
    """Return all log-probabilities if k is 0, else the k greatest of each row and their tokens."""
    if k == 0:
        return (logits_RV.to(torch.promote_types(logits_RV.dtype, torch.float32)).log_softmax(-1),)
    logprob_RK, token_RK = top_logprobs(logits_RV, k)
    return logprob_RK, token_RK
