"""`train.tokens = "auto"`: the largest batch that fits the device, found once by trying."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from regard.data.example import Batch
from regard.data.pool import Pairs
from regard.nn.cross_entropy import IGNORED
from regard.nn.ragged import Ragged
from regard.text import END
from regard.train.cost import activation_bytes
from regard.train.job import Job
from regard.train.optimiser import state_tensors
from regard.train.precision import autocast

SMALLEST, CPU_LARGEST = 1024, 4096  # larger batches do not learn quicker on a CPU
STEPS_IN_EPOCH = 50  # fewer updates for each pass over the data would learn less, however quick they are
SAFE = 0.9  # of what was found to fit: later batches fall a little differently into memory
_ROUND = 128


def find_budget(job: Job) -> int:
    """Tokens of either side that a batch may have; the same for all processes."""
    if job.workers.count > 1 and job.recipe.train.sharding == "fsdp":
        raise ValueError(
            "train.tokens = 'auto' cannot try out a sharded model; say a number, such as train.tokens=8192"
        )
    stores = job.prepared.stores
    least = max(SMALLEST, *(1 + longest for store in stores for longest in store.longest))
    most = max(least, _epoch(stores) // (STEPS_IN_EPOCH * job.workers.count * job.recipe.train.accumulate))
    if job.workers.device.type == "cpu":
        found = min(most, CPU_LARGEST, max(least, _memory() // 4 // activation_bytes(job.model, "float32")))
    else:
        found = _largest(job, least, most)
    return job.workers.least(max(least, found // _ROUND * _ROUND))


def _largest(job: Job, least: int, most: int) -> int:
    """Double until it does not fit, then narrow down."""
    state_tensors(job.model, job.optimisers)  # what the optimiser will need is taken from now on
    good, bad = 0, most + 1
    tokens = least
    with _same_dice(job.workers.device):
        while good < bad - max(_ROUND, good // 16):
            if _fits(job, tokens):
                good = tokens
            else:
                bad = tokens
            tokens = min(2 * good, most) if bad > most else (good + bad) // 2
            if good == most:
                return most
            if bad <= least:
                raise ValueError(
                    f"not even a batch of {least} tokens fits the memory of {job.workers.device}; "
                    "lower data.longest, or take a smaller model"
                )
    return int(SAFE * good)


def _fits(job: Job, tokens: int) -> bool:
    """Whether a batch of so many tokens, all of the longest sentences, goes through forward and backward."""
    learner = _inner(job.learner)
    try:
        batch = _longest_case(job.prepared.stores, tokens).to(job.workers.device)
        with autocast(job.workers.device, job.recipe.train.precision):
            loss = learner(batch.source, batch.target, batch.labels_N)
        loss.backward()
        torch.cuda.synchronize(job.workers.device)
    except torch.OutOfMemoryError:
        return False
    finally:
        job.model.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
    return True


def _longest_case(stores: "tuple[Pairs, ...]", tokens: int) -> Batch:
    """A batch of sentences as long as any, which is the dearest for kernels that pad."""
    longest = max(1 + each for store in stores for each in store.longest)
    ids = [torch.full((longest,), END)] * (tokens // longest) + [torch.full((max(1, tokens % longest),), END)]
    side = Ragged.from_list(ids)
    labels = side.values.clone()
    labels[-1] = IGNORED
    return Batch(side, side, labels, torch.arange(len(side)))


def _inner(learner: nn.Module) -> nn.Module:
    """The learner without what exchanges gradients."""
    return learner.module if isinstance(learner, nn.parallel.DistributedDataParallel) else learner


def _epoch(stores: "tuple[Pairs, ...]") -> int:
    """Target tokens of a pass over the data."""
    return sum(int(store.lengths[1].sum()) + len(store) for store in stores)


def _memory() -> int:
    """Bytes of memory that are free now."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def _same_dice(device: torch.device) -> Iterator[None]:
    """Leave the random numbers as they were."""
    with torch.random.fork_rng([device]):
        yield
