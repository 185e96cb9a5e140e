"""A batch's way forward and back, recorded once and then played (CUDA graphs).

A step is some hundreds of kernels. Launched one by one they keep the host as busy as a large model keeps the device,
and a small model's device waits for the host most of the time. What was recorded is launched at once. It reads the
batch from where the first one lay and leaves the gradients where the first ones were left, so batches of one size can
be played and no others.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.example import Batch
from regard.nn.ragged import Layout, Ragged
from regard.train.precision import autocast

Work = Callable[[], None]
WARM = 2  # batches of a size before its recording: in these it is compiled, and what is tried out is chosen
ROOM = 2  # times what a batch needs must be free: a recording keeps its memory to itself, and validation wants some


class Passed(NamedTuple):
    """What a batch leaves behind."""

    loss: Float[Tensor, ""]
    """Summed over the target tokens."""
    gradients: Sequence[Tensor | None]
    """One for each weight that learns; None where it had no part."""


class Recorder:
    """Takes batches through a learner, from the third of one size on by a recording where there is memory for one."""

    def __init__(
        self,
        learner: nn.Module,
        device: torch.device,
        precision: str,
        record: Callable[[Work], Work] | None = None,
    ) -> None:
        """`record` makes a player of some work; CUDA graphs unless told."""
        self.learner, self.device, self.precision = learner, device, precision
        self.weights = [each for each in learner.parameters() if each.requires_grad]
        self.fits = True
        """Whether the device's memory leaves room for a recording, as far as is known."""
        self._record = record or _on_cuda
        self._seen: Counter[tuple[int, ...]] = Counter()
        self._tape: _Tape | None = None

    def passes(self, batch: Batch, share: float) -> Passed:
        """The loss of a batch, and the gradients of `share` times it; good until the next batch."""
        if self._tape is not None:
            return self._tape.play(batch, share) if self._tape.holds(batch) else self.plain(batch, share)
        size = _size(batch)
        self._seen[size] += 1
        if self._seen[size] < WARM or not self.fits:
            return self.plain(batch, share)
        if self._seen[size] == WARM:
            return self._measured(batch, share)
        self._tape = _Tape(self, batch, self._record)
        return self._tape.play(batch, share)

    def way(self, source: Ragged, target: Ragged, labels_N: Tensor, share: float | Tensor) -> Passed:
        """Forward and back, with everything on the device."""
        with autocast(self.device, self.precision):
            loss = self.learner(source, target, labels_N)
        return Passed(loss.detach(), torch.autograd.grad(loss * share, self.weights, allow_unused=True))

    def plain(self, batch: Batch, share: float) -> Passed:
        """The same without a recording."""
        placed = batch.to(self.device, non_blocking=True)
        return self.way(placed.source, placed.target, placed.labels_N, share)

    def _measured(self, batch: Batch, share: float) -> Passed:
        """The same, and see whether there is room for a recording of it."""
        if self.device.type != "cuda":
            return self.plain(batch, share)
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        passed = self.plain(batch, share)
        need = torch.cuda.max_memory_allocated(self.device) - before
        kept = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        self.fits = torch.cuda.mem_get_info(self.device)[0] + kept >= ROOM * need
        return passed


class _Tape:
    """One recording, and the places it reads from."""

    def __init__(self, recorder: Recorder, batch: Batch, record: Callable[[Work], Work]) -> None:
        """Record batches of this one's size."""
        self.size = _size(batch)
        self.places = [torch.empty_like(each, device=recorder.device) for each in _tensors(batch)]
        self.share = torch.zeros((), device=recorder.device)
        self._put(batch)

        def work() -> None:
            source_values, source_offsets, target_values, target_offsets, labels_N = self.places
            source = Ragged(source_values, Layout.spread(source_offsets, batch.source.tokens, batch.source.longest))
            target = Ragged(target_values, Layout.spread(target_offsets, batch.target.tokens, batch.target.longest))
            self.passed = recorder.way(source, target, labels_N, self.share)

        self._again = record(work)

    def holds(self, batch: Batch) -> bool:
        """Whether it can be played for a batch."""
        return _size(batch) == self.size

    def play(self, batch: Batch, share: float) -> Passed:
        """Once more, for another batch; the device is not waited for."""
        self._put(batch)
        self.share.fill_(share)
        self._again()
        return self.passed

    def _put(self, batch: Batch) -> None:
        """Lay a batch where it is read."""
        for place, each in zip(self.places, _tensors(batch), strict=True):
            place.copy_(each, non_blocking=True)


def _tensors(batch: Batch) -> tuple[Tensor, ...]:
    """All that must travel of a batch."""
    source, target = batch.source, batch.target
    return source.values, source.offsets, target.values, target.offsets, batch.labels_N


def _size(batch: Batch) -> tuple[int, ...]:
    """What the kernels for a batch depend on."""
    source, target = batch.source, batch.target
    return len(source), source.tokens, source.longest, target.tokens, target.longest


def _on_cuda(work: Work) -> Work:
    """Record what some work launches, without doing it."""
    graph = torch.cuda.CUDAGraph()
    try:
        # The thread that makes batches goes on meanwhile, so only this one is kept from what a recording cannot hold.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            work()
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"this model's kernels cannot be recorded ({reason}); give the same command with train.record=false"
        ) from error
    return graph.replay
