"""Tensors of fixed shape in which a search takes place on CUDA, so that what is computed in them can be captured.

The keys of a sentence's W rows lie side by side, W for each step, and each row has a mask of those it descends from:
when beams change places only masks do, and all W rows read a sentence's keys together.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.models.fast.top import top_of

KERNELS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]  # cuDNN would compile one for each shape
WARM = 2  # runs before a capture, in which kernels choose and allocate what they need


@dataclass(frozen=True)
class Shape:
    """Room for so many sentences, rows of each, source places and steps."""

    sentences: int
    beams: int
    source: int
    steps: int

    def holds(self, other: "Shape") -> bool:
        """Whether another shape fits into this one."""
        fits = self.sentences >= other.sentences and self.source >= other.source and self.steps >= other.steps
        return fits and self.beams == other.beams


@dataclass(frozen=True)
class Sizes:
    """What a model needs kept: layers, and heads with their key and value sizes, own and of the memory."""

    layers: int
    own: tuple[int, int, int]
    memory: tuple[int, int, int]


class Desk:
    """One search's tensors, and the graphs captured over them."""

    def __init__(self, shape: Shape, sizes: Sizes, dtype: torch.dtype, device: torch.device) -> None:
        """Lay everything out, all zero: padding is computed on too, and must be numbers."""
        self.shape, self.device = shape, device
        B, W, S, T = shape.sentences, shape.beams, shape.source, shape.steps

        def tables(heads: int, places: int, size: int) -> list[Tensor]:
            return [torch.zeros(B, heads, places, size, dtype=dtype, device=device) for _ in range(sizes.layers)]

        self.own_keys, self.own_values = (tables(sizes.own[0], T * W, size) for size in sizes.own[1:])
        self.keys, self.values = (tables(sizes.memory[0], S, size) for size in sizes.memory[1:])
        self.shade_BWK = torch.full((B, W, T * W), -torch.inf, dtype=dtype, device=device)
        """What is added to a row's scores of own places: nothing where it descends from there."""
        self.shade_BS = torch.zeros(B, S, dtype=dtype, device=device)
        """What is added to scores of the source's places."""
        self.source_BS = torch.zeros(B, S, dtype=torch.int64, device=device)
        self.length_B = torch.zeros(B, dtype=torch.int64, device=device)
        self.new_W = torch.arange(W, device=device)
        """Own places of the tokens being read."""
        self.token_R = torch.zeros(B * W, dtype=torch.int64, device=device)
        self.position_R = torch.zeros(B * W, dtype=torch.int64, device=device)
        self.clock = torch.zeros((), dtype=torch.int64, device=device)
        self.boards: dict[Hashable, Any] = {}
        """Boards of searches that took place here, over which programs were captured."""
        self.said: dict[Hashable, tuple[Tensor, ...]] = {}
        """What the last run of each program left."""
        self.graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self.memory: Any = None
        """Where programs keep what they compute: all in one place, since no two run at a time."""

    def run(
        self, name: Hashable, program: Callable[["Desk"], tuple[Tensor, ...]], tables: Sequence[Tensor] = ()
    ) -> tuple[Tensor, ...]:
        """Run a program over these tensors: captured at its first time, played again from then on.

        What it gives is overwritten by the next run of any. It may change `tables` besides.
        """
        if self.device.type != "cuda":
            self.said[name] = program(self)
        else:
            if name not in self.graphs:
                self._capture(name, program, tables)
            self.graphs[name].replay()
        return self.said[name]

    def _capture(
        self, name: Hashable, program: Callable[["Desk"], tuple[Tensor, ...]], tables: Sequence[Tensor]
    ) -> None:
        """Record what a program does on the device; the runs before it leave no trace."""
        changed = (self.clock, self.position_R, self.new_W, self.shade_BWK, *tables)
        before = [(each, each.clone()) for each in changed]

        def restore() -> None:
            for tensor, was in before:
                tensor.copy_(was)

        aside: torch.cuda.Stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(aside):
            for _ in range(WARM):
                with sdpa_kernel(KERNELS):
                    program(self)
                restore()
        torch.cuda.current_stream(self.device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, self.memory, capture_error_mode="thread_local"), sdpa_kernel(KERNELS):
            self.said[name] = program(self)
        self.memory = self.memory or graph.pool()
        self.graphs[name] = graph

    def own_mask(self, places: int, slopes_H: Float[Tensor, " H"]) -> Float[Tensor, "B H2 W K"]:
        """What is added to scores of the first `places` own places, the new token's among them."""
        B, W = self.shape.sentences, self.shape.beams
        self.shade_BWK.scatter_(2, self.new_W.view(1, W, 1).expand(B, W, 1), 0.0)
        shade_BHWK = self.shade_BWK[:, None, :, :places]
        if not slopes_H.numel():
            return shade_BHWK
        ahead_K = (torch.arange(places, device=self.device) // W - self.clock).abs()
        return shade_BHWK + (-slopes_H[:, None, None] * ahead_K).to(shade_BHWK.dtype)

    def cover(self) -> None:
        """Shade the source's places that are no token; who has none looks at the first, which is zero."""
        seen_BS = self.real() | (torch.arange(self.shape.source, device=self.device) == 0)
        self.shade_BS.zero_().masked_fill_(~seen_BS, -torch.inf)

    def real(self) -> Bool[Tensor, "B S"]:
        """Which places of the source are tokens."""
        return torch.arange(self.shape.source, device=self.device) < self.length_B[:, None]

    def write(self, layer: int, k_BHWE: Float[Tensor, "B H W E"], v_BHWE: Float[Tensor, "B H W E2"]) -> None:
        """Keep the new tokens' keys and values of a layer."""
        self.own_keys[layer].index_copy_(2, self.new_W, k_BHWE)
        self.own_values[layer].index_copy_(2, self.new_W, v_BHWE)

    def tick(self) -> None:
        """One step further."""
        self.clock.add_(1)
        self.new_W.add_(self.shape.beams)
        self.position_R.add_(1)

    def reorder(self, lines_B: Int[Tensor, " B"] | None, parent_BW: Int[Tensor, "B W"]) -> None:
        """Let the rows of these sentences, the first ones unless told, go on from those parents."""
        many = parent_BW.shape[0]
        shade_BWK = self.shade_BWK[:many] if lines_B is None else self.shade_BWK.index_select(0, lines_B)
        chosen_BWK = shade_BWK.gather(1, parent_BW[:, :, None].expand(-1, -1, shade_BWK.shape[2]))
        if lines_B is None:
            self.shade_BWK[:many] = chosen_BWK
        else:
            self.shade_BWK.index_copy_(0, lines_B, chosen_BWK)

    def clear(self, clock: int = 0) -> None:
        """Forget every row, and be this late."""
        self.shade_BWK.fill_(-torch.inf)
        self.clock.fill_(clock)
        torch.arange(clock * self.shape.beams, (clock + 1) * self.shape.beams, out=self.new_W)
        self.position_R.zero_()
        self.length_B.zero_()

    def take_in(self, there: slice, other: "Desk", lines_B: Int[Tensor, " B"], span: tuple[int, int, int]) -> None:
        """Copy sentences of another desk to these places; `span` is their first and last step, and where the last goes.

        The other desk may be this one only where no place is both read and written.
        """
        W, (first, last, end) = self.shape.beams, span
        source, old = other.shape.source, slice(first * W, last * W)
        new = slice((end - last + first) * W, end * W)
        for layer in range(len(self.keys)):
            for mine, theirs in ((self.keys, other.keys), (self.values, other.values)):
                mine[layer][there, :, :source] = theirs[layer][lines_B]
            for mine, theirs in ((self.own_keys, other.own_keys), (self.own_values, other.own_values)):
                mine[layer][there, :, new] = theirs[layer][lines_B, :, old]
        self.source_BS[there, :source] = other.source_BS[lines_B]
        self.length_B[there] = other.length_B[lines_B]
        self.shade_BWK[there] = -torch.inf
        self.shade_BWK[there, :, new] = other.shade_BWK[lines_B, :, old]
        position_BW = self.position_R.view(-1, W)
        position_BW[there] = other.position_R.view(-1, W)[lines_B]
        self.cover()


def best(logits_RV: Float[Tensor, "R V"], k: int) -> tuple[Tensor, ...]:
    """All log-probabilities where k is 0, else the k best and their tokens."""
    if k == 0:
        return (logits_RV.to(torch.promote_types(logits_RV.dtype, torch.float32)).log_softmax(-1),)
    return top_of(logits_RV, k)
