"""Whether to compile the model: a minute is spent once, and each step is quicker from then on."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from regard.train.events import Started
from regard.train.job import Job
from regard.train.standing import Standing

EAGER = 0.2  # of the device's limit that a model reaches without compiling
WORTH = 200.0  # seconds of learning without compiling from which on it is quicker with it: it saves about a third


def decide(job: Job, standing: Standing, started: Started) -> tuple[bool, str]:
    """Whether to compile, and why, in words."""
    settings, workers = job.recipe.train, job.workers
    if settings.compile != "auto":
        return settings.compile, ""
    if workers.device.type != "cuda":
        return False, ""
    if job.recipe.model.kind != "transformer":
        return False, f"not compiled: {job.recipe.model.kind} runs the kernels it has"
    if workers.count > 1 and settings.sharding == "fsdp":
        return False, "not compiled: the model is sharded (train.compile = true compiles it all the same)"
    left = (settings.steps - standing.step) * standing.parts * standing.budget * started.flops_per_token
    seconds = left / (EAGER * (started.limit or 1e15))
    if seconds < WORTH:
        return False, f"not compiled: about {seconds:.0f} s of learning do not pay for it"
    return True, f"compiled: about {seconds / 60:.0f} minutes of learning pay for a minute's work"


def compile_in_place(learner: nn.Module) -> None:
    """Compile the learner for batches of one size; the model by itself stays as it is, for validation."""
    inner = learner.module if isinstance(learner, DistributedDataParallel) else learner
    # Splitting the graph so that processes exchange gradients earlier does not know attention's kernels.
    torch._dynamo.config.optimize_ddp = False
    inner.compile(dynamic=False)
