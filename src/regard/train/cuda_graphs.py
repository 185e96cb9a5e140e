"""Run forward and backward of a micro-batch as a CUDA graph.

A step launches some hundreds of kernels. For a small model the CPU needs longer to launch them than the GPU needs to
run them. A CUDA graph launches all of them with one call. A captured graph reads its inputs from fixed addresses and
writes the gradients to fixed addresses, so each batch is first copied to the graph's input tensors, and all batches
must have the same sizes (see `regard.train.stream.StaticShape`).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.batch import Batch
from regard.train.device import autocast

Launch = Callable[[], None]
"""Launches kernels on the device: the captured code, or the replay of its graph."""
WARMUP = 2  # eager runs of a size before its capture, in which kernels are compiled, tuned and cached
MEMORY_FACTOR = 2  # free memory for a capture, in batches: a graph keeps its memory, and validation needs some too


class PassResult(NamedTuple):
    """The result of a forward and backward pass."""

    loss: Float[Tensor, ""]
    """Summed over the units."""
    gradients: Sequence[Tensor | None]
    """One for each trainable weight; None if the loss does not depend on it."""


class GraphRunner:
    """Runs micro-batches through a module; captures a CUDA graph for the first size that occurs three times."""

    def __init__(
        self,
        module: nn.Module,
        device: torch.device,
        precision: str,
        capture: Callable[[Launch], Launch] | None = None,
    ) -> None:
        """Run `module`, the model with its loss, in the given precision.

        Args:
            module: Called with a batch, returns its summed loss.
            device: Device of the module.
            precision: Precision of matrix products.
            capture: Turns code that launches kernels into a function that replays them. Default: a CUDA graph.
        """
        self.module, self.device, self.precision = module, device, precision
        self.weights = [weight for weight in module.parameters() if weight.requires_grad]
        self.fits = True
        """Whether there is enough memory for a capture; True until measured."""
        self._capture = capture or _capture_cuda_graph
        self._occurrences: Counter[tuple[int, ...]] = Counter()
        self._graph: _CapturedGraph | None = None

    def run(self, batch: Batch, scale: float) -> PassResult:
        """Return the loss of a batch and the gradients of `scale` times the loss; valid until the next call."""
        if self._graph is not None:
            return self._graph.replay(batch, scale) if self._graph.fits(batch) else self.run_eagerly(batch, scale)
        size = batch.static_size
        self._occurrences[size] += 1
        if self._occurrences[size] < WARMUP or not self.fits:
            return self.run_eagerly(batch, scale)
        if self._occurrences[size] == WARMUP:
            return self._run_and_measure_memory(batch, scale)
        self._graph = _CapturedGraph(self, batch, self._capture)
        return self._graph.replay(batch, scale)

    def run_eagerly(self, batch: Batch, scale: float) -> PassResult:
        """Copy a batch to the device and run it without a graph."""
        return self.forward_backward(batch.to(self.device, non_blocking=True), scale)

    def forward_backward(self, batch: Batch, scale: float | Tensor) -> PassResult:
        """Run a batch that is on the device."""
        with autocast(self.device, self.precision):
            loss = self.module(batch)
        return PassResult(loss.detach(), torch.autograd.grad(loss * scale, self.weights, allow_unused=True))

    def _run_and_measure_memory(self, batch: Batch, scale: float) -> PassResult:
        """Run a batch without a graph, and find out whether there is enough memory to capture it."""
        if self.device.type != "cuda":
            return self.run_eagerly(batch, scale)
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        result = self.run_eagerly(batch, scale)
        needed = torch.cuda.max_memory_allocated(self.device) - before
        # Blocks that the caching allocator holds but no tensor uses count as free.
        cached = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        self.fits = torch.cuda.mem_get_info(self.device)[0] + cached >= MEMORY_FACTOR * needed
        return result


class _CapturedGraph:
    """A captured forward and backward pass, with the tensors that it reads."""

    def __init__(self, runner: GraphRunner, batch: Batch, capture: Callable[[Launch], Launch]) -> None:
        """Capture the pass of `runner` for batches of this batch's size."""
        self.size = batch.static_size
        self.inputs = [torch.empty_like(tensor, device=runner.device) for tensor in batch.tensors()]
        # A tensor rather than a number, because numbers become constants of the captured kernels.
        self.scale = torch.zeros((), device=runner.device)
        self._copy_inputs(batch)

        def launch() -> None:
            self.result = runner.forward_backward(batch.with_tensors(self.inputs), self.scale)

        self._replay = capture(launch)

    def fits(self, batch: Batch) -> bool:
        """Return whether a batch has the captured size."""
        return batch.static_size == self.size

    def replay(self, batch: Batch, scale: float) -> PassResult:
        """Run the graph on another batch. Does not synchronise with the device."""
        self._copy_inputs(batch)
        self.scale.fill_(scale)
        self._replay()
        return self.result

    def _copy_inputs(self, batch: Batch) -> None:
        """Copy a batch to the tensors that the graph reads."""
        for buffer, tensor in zip(self.inputs, batch.tensors(), strict=True):
            buffer.copy_(tensor, non_blocking=True)


def _capture_cuda_graph(launch: Launch) -> Launch:
    """Capture the kernels that `launch` launches, without running them; return the replay of the graph."""
    graph = torch.cuda.CUDAGraph()
    try:
        # The thread that prepares batches pins memory meanwhile, which a capture forbids; "thread_local" forbids it
        # to the capturing thread only.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            launch()
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"the kernels of this model cannot be captured as a CUDA graph ({reason}); "
            "repeat the command with train.record=false"
        ) from error
    return graph.replay
