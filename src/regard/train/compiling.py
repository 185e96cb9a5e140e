"""How batches go through the model on CUDA: compiled or not, recorded or not.

Compiling takes about a minute once, and each step is quicker from then on. A recording takes a second.
"""

import math
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from regard.data.example import Batch
from regard.train.job import Job
from regard.train.recording import WARM, Passed, Recorder
from regard.train.standing import Standing
from regard.train.stream import Shape

TIMED = 5  # batches passed through while the clock runs
OPTIONS: dict[str, str | int | bool | Callable[..., Any]] = {"comprehensive_padding": False}
"""For the compiler: rows of scores lie close, as the loss's kernel wants them, or they would be copied twice a step."""
RECURRENT = ("sutskever", "bahdanau", "luong")
WORTH, RECORDED_WORTH = 100.0, 150.0
"""Seconds of learning that pay for compiling: on an H200 it takes 50, and saves more than half of the rest, or of what
is recorded a third."""


class Way(NamedTuple):
    """How batches go through the model."""

    compiled: bool = False
    recorded: bool = False
    why: str = ""
    """In words, where there is something to say."""

    @property
    def one_size(self) -> bool:
        """Whether all batches must be of one size."""
        return self.compiled or self.recorded


def decide(job: Job, standing: Standing) -> Way:
    """How batches are to go; on CUDA some are tried to find out."""
    settings, workers = job.recipe.train, job.workers
    cuda, recurrent = workers.device.type == "cuda", job.recipe.model.kind in RECURRENT
    possible = bool(settings.record) and cuda and workers.count == 1 and not recurrent
    if settings.compile is True or not cuda:
        return Way(settings.compile is True, possible)
    if settings.compile is False and not (possible and settings.record == "auto"):
        return Way(recorded=possible)
    if recurrent:
        return Way(why="not compiled: recurrences have kernels of their own, and each batch its own number of steps")
    if workers.count > 1 and settings.sharding == "fsdp":
        return Way(why="not compiled: the model is sharded (train.compile = true compiles it all the same)")
    plain = _seconds(job, standing.budget, recorded=False)
    played = _seconds(job, standing.budget, recorded=True) if possible else math.inf
    recorded = possible and (settings.record is True or played < plain)
    if settings.compile is False:
        return Way(recorded=recorded)
    batches = settings.accumulate * max(settings.steps - standing.step, 0)
    seconds = workers.decided(batches * (played if recorded else plain))
    compiled, why = verdict(seconds, RECORDED_WORTH if recorded else WORTH)
    return Way(compiled, recorded or (compiled and possible), why)


def verdict(seconds: float, worth: float = WORTH) -> tuple[bool, str]:
    """What to do about so many seconds of learning, and why."""
    if seconds < worth:
        return False, f"not compiled: {seconds:.0f} s of learning do not pay for it"
    return True, f"compiled, which takes a minute: learning would take {seconds / 60:.0f} without it"


def compile_in_place(learner: nn.Module) -> None:
    """Compile the learner for batches of one size; the model by itself stays as it is, for validation."""
    # Splitting the graph so that processes exchange gradients earlier does not know attention's kernels.
    torch._dynamo.config.optimize_ddp = False
    _inner(learner).compile(dynamic=False, options=OPTIONS)


def _seconds(job: Job, tokens: int, recorded: bool) -> float:
    """Time that a batch takes forward and backward; nothing is learnt from it, and no dice are thrown for good."""
    feed = job.feed(tokens)
    some = [batch for step in islice(feed.epoch(0), WARM + 1 + TIMED) for batch in step]
    shape = Shape.of(feed)
    batches = cycle([shape.fill(batch) for batch in some] if recorded else some)
    recorder = Recorder(_inner(job.learner), job.workers.device, job.recipe.train.precision)
    take = recorder.passes if recorded else recorder.plain
    with torch.random.fork_rng([job.workers.device]):
        try:
            _pass(take, islice(batches, WARM + 1))
            return _pass(take, islice(batches, TIMED)) / TIMED
        except torch.OutOfMemoryError:
            if not recorded:
                raise
            return math.inf  # filled up, some models' attention needs more than there is


def _pass(take: Callable[[Batch, float], Passed], batches: Iterator[Batch]) -> float:
    """Take batches through; how long it took."""
    begin = time.perf_counter()
    for batch in batches:
        passed = take(batch, 1.0)
    passed.loss.item()  # waits for the device
    return time.perf_counter() - begin


def _inner(learner: nn.Module) -> nn.Module:
    """The learner without what exchanges gradients."""
    return learner.module if isinstance(learner, DistributedDataParallel) else learner
