"""A run's checkpoint into a job, and a job into a checkpoint."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from regard.data.batching import BEGINNING, Position
from regard.train import checkpoint
from regard.train.job import Job
from regard.train.standing import Standing


def save(job: Job, standing: Standing) -> Path:
    """Write down everything that what comes next depends on."""
    notes = {"standing": standing.to_json(), "data": _data(job)}
    tensors = job.tensors() | _dice(job)
    return checkpoint.save(job.run, standing.step, tensors, notes, job.workers, job.recipe.train.keep)


def check_numbers(job: Job, standing: Standing) -> None:
    """Refuse to keep weights that an update has ruined; everybody must ask at once."""
    weights = [each.detach() for each in job.model.parameters()]
    norms = [(each.to_local() if isinstance(each, DTensor) else each).norm() for each in weights]
    if not math.isfinite(job.workers.total(torch.stack(norms).sum()).item()):
        raise FloatingPointError(f"nor are the weights after step {standing.step}")


def restore(job: Job) -> tuple[Standing, list[str]]:
    """Where the run stands, its tensors put back into the job; and what a person should know of it."""
    place, notices = _choose(job)
    if place is None:
        return _positioned(job, Standing(), notices), notices
    notes = checkpoint.read_notes(place)
    _check_data(job, notes["data"])
    standing = Standing.from_json(notes["standing"])
    dice = {name: each for name, each in _dice(job).items() if name in checkpoint.names_in(place)}
    checkpoint.read_into(place, job.tensors() | dice, job.workers)
    _throw(job, dice, standing.step)
    return _positioned(job, standing, notices), notices


def _choose(job: Job) -> tuple[Path | None, list[str]]:
    """The last whole checkpoint, which the first process finds for all."""
    place, faults = checkpoint.newest(job.run) if job.workers.first else (None, [])
    if faults and place is None:
        raise ValueError(
            f"no checkpoint of {job.run} is whole: {'; '.join(faults)}. Restore the folder from a copy, "
            "or begin anew in another folder with --run"
        )
    step = int(job.workers.decided(-1 if place is None else int(place.name.rpartition("-")[2])))
    if step < 0:
        return None, []
    return checkpoint.place_of(job.run, step), [f"{fault}; going on from step {step}" for fault in faults]


def _positioned(job: Job, standing: Standing, notices: list[str]) -> Standing:
    """The standing by today's batches: their size, and how many make a step."""
    settings = job.recipe.train
    # Where it is to be found by trying and has not been, it is 0 for now.
    budget = standing.budget if settings.tokens == "auto" else settings.tokens
    parts = job.workers.count * settings.accumulate
    position = standing.position
    if position != BEGINNING and budget != standing.budget:
        position = Position(position.epoch, position.pool)
        notices.append(f"train.tokens was {standing.budget} and is {budget}: some recent examples are shown once more")
    elif parts != standing.parts:
        # As many batches are behind; a few may be shown twice or not at all in this epoch.
        position = replace(position, step=position.step * standing.parts // parts)
        if position != BEGINNING:
            notices.append(f"a step had {standing.parts} batches and has {parts}: going on at about the same place")
    return replace(standing, budget=budget, parts=parts, position=position)


def _data(job: Job) -> dict[str, Any]:
    """What tells these data from others."""
    stores = [store.folder.name for store in job.prepared.stores]
    return {"tokenizers": job.prepared.tokenizers.fingerprint, "stores": stores}


def _check_data(job: Job, before: dict[str, Any]) -> None:
    """Refuse to go on with other text."""
    if before != _data(job):
        raise ValueError(
            f"the training text or the vocabulary has changed since {job.run} was begun, so it cannot go on as it was; "
            "restore the files, or begin anew in another folder with --run (train.start takes these weights along)"
        )


def _dice(job: Job) -> dict[str, Tensor]:
    """The state of this process's random numbers."""
    rank, device = job.workers.rank, job.workers.device
    states = {f"dice.{rank}.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states[f"dice.{rank}.cuda"] = torch.cuda.get_rng_state(device)
    return states


def _throw(job: Job, states: dict[str, Tensor], step: int) -> None:
    """Go on with these random numbers; a process that was not there before begins its own."""
    if len(states) != len(_dice(job)):
        torch.manual_seed((job.recipe.seed * 1_000_003 + job.workers.rank) * 1_000_003 + step)
        return
    for name, state in states.items():
        if name.endswith("cuda"):
            torch.cuda.set_rng_state(state, job.workers.device)
        else:
            torch.set_rng_state(state)
