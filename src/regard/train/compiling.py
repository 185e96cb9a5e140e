"""Whether to compile the model: about a minute is spent once, and each step is quicker from then on."""

import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from regard.data.example import Batch
from regard.train.job import Job
from regard.train.precision import autocast
from regard.train.standing import Standing

WARM, TIMED = 3, 5  # batches passed through before the clock starts, and while it runs
OPTIONS: dict[str, str | int | bool | Callable[..., Any]] = {"comprehensive_padding": False}
"""For the compiler: rows of scores lie close, as the loss's kernel wants them, or they would be copied twice a step."""
RECURRENT = ("sutskever", "bahdanau", "luong")
WORTH = 100.0  # seconds of learning that pay for compiling: on an H200 it takes 50 and saves more than half of the rest


def decide(job: Job, standing: Standing) -> tuple[bool, str]:
    """Whether to compile, and why, in words; on CUDA some batches are tried to find out."""
    settings, workers = job.recipe.train, job.workers
    if settings.compile != "auto":
        return settings.compile, ""
    if workers.device.type != "cuda":
        return False, ""
    if job.recipe.model.kind in RECURRENT:
        return False, "not compiled: recurrences have kernels of their own, and each batch its own number of steps"
    if workers.count > 1 and settings.sharding == "fsdp":
        return False, "not compiled: the model is sharded (train.compile = true compiles it all the same)"
    batches = settings.accumulate * max(settings.steps - standing.step, 0)
    return verdict(workers.decided(batches * _seconds(job, standing.budget)))


def verdict(seconds: float) -> tuple[bool, str]:
    """What to do about so many seconds of learning, and why."""
    if seconds < WORTH:
        return False, f"not compiled: {seconds:.0f} s of learning do not pay for it"
    return True, f"compiled, which takes a minute: learning would take {seconds / 60:.0f} without it"


def compile_in_place(learner: nn.Module) -> None:
    """Compile the learner for batches of one size; the model by itself stays as it is, for validation."""
    # Splitting the graph so that processes exchange gradients earlier does not know attention's kernels.
    torch._dynamo.config.optimize_ddp = False
    _inner(learner).compile(dynamic=False, options=OPTIONS)


def _seconds(job: Job, tokens: int) -> float:
    """Time that a batch takes forward and backward; nothing is learnt from it, and no dice are thrown for good."""
    device = job.workers.device
    batches = (batch for step in job.feed(tokens).epoch(0) for batch in step)
    with torch.random.fork_rng([device]):
        for batch in islice(batches, WARM):
            _pass(job, batch)
        torch.cuda.synchronize(device)
        begin = time.perf_counter()
        passed = sum(_pass(job, batch) for batch in islice(batches, TIMED))
        torch.cuda.synchronize(device)
    job.model.zero_grad(set_to_none=True)
    return (time.perf_counter() - begin) / max(passed, 1)


def _pass(job: Job, batch: Batch) -> int:
    """One batch forward and backward."""
    placed = batch.to(job.workers.device, non_blocking=True)
    with autocast(job.workers.device, job.recipe.train.precision):
        loss = _inner(job.learner)(placed.source, placed.target, placed.labels_N)
    loss.backward()
    return 1


def _inner(learner: nn.Module) -> nn.Module:
    """The learner without what exchanges gradients."""
    return learner.module if isinstance(learner, DistributedDataParallel) else learner
