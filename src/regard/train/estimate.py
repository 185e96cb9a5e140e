"""Estimate the cost of a training before it starts: parameters, FLOPs, steps, memory, and time on this device."""

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.data.batching import longest_sequence
from regard.data.prepare import Prepared, ProgressCallback, prepare
from regard.data.rows import Numbers
from regard.data.store import Records
from regard.nn.cost import count_parameters
from regard.recipe import Recipe
from regard.tasks import Task, make_task
from regard.train.autotune import MAX_CPU_TOKENS, activation_bytes
from regard.train.device import choose_precision, device_name, find_training_device, peak_flops
from regard.train.report.formatting import format_count
from regard.train.schedule import default_steps, default_tokens, plan_in_time
from regard.train.start import inherit_model, inherit_text_settings, inherited_fields

ASSUMED_LENGTH = 28  # tokens of a sequence if there are no data to count, as in the sentences of WMT
ASSUMED_CUDA_TOKENS = 25_000  # batch size to which `auto` might resolve on CUDA
FILLED = 0.95  # fraction of the token budget that batches reach on average
UTILISATION = {("cuda", "bfloat16"): 0.45, ("cuda", "float32"): 0.3, ("cpu", "bfloat16"): 0.35, ("cpu", "float32"): 0.5}
"""Fraction of the peak FLOP/s that training reaches: measured compiled on an H200, and on two CPU cores."""
ACTIVATION_FACTOR = 1.3  # memory of all activations, relative to the inputs and outputs of matrices
MAX_CORPUS = 10**9  # tokens of an epoch if there are no data to count
_SAMPLE = 1000  # records whose lengths represent those of a corpus


@dataclass(frozen=True)
class CostEstimate:
    """The cost of a training. Times and bytes are estimates, the rest is counted."""

    device: str
    workers: int
    """World size."""
    parameters: int
    vocabulary: dict[str, int]
    steps: int
    tokens_per_step: int
    """Tokens of each sequence attribute in an update, over all processes."""
    epochs: float | None
    """Passes over the data; None if the data are missing."""
    flops_per_token: float
    """Floating-point operations of each token of a batch, forward and backward."""
    flops: float
    limit: float
    """FLOP/s of a large matrix product, measured now, over all processes."""
    reached: float
    """Fraction of `limit` that training is expected to reach."""
    seconds: float
    memory: float
    """Bytes on each device: weights, gradients, optimiser state and activations."""
    checkpoint: float
    """Bytes of a checkpoint."""
    missing: str
    """Why the data could not be counted; empty if they were."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        """Return a table to print."""
        epochs = f", {self.epochs:,.1f} epochs" if self.epochs is not None else ""
        lines = [
            f"model       {format_count(self.parameters)} parameters, vocabulary "
            + ", ".join(f"{name} {size:,}" for name, size in self.vocabulary.items()),
            f"work        {self.steps:,} steps of about {self.tokens_per_step:,} tokens{epochs}",
            f"            {format_count(self.flops_per_token)}FLOP per token, {self.flops:.3g} FLOP in total",
            f"device      {self.device}, {self.workers} process{'es' if self.workers > 1 else ''}: a matrix product "
            f"runs at {self.limit / 1e12:,.2f} TFLOP/s",
            f"time        about {_format_duration(self.seconds)}, if training reaches {self.reached:.0%} of that",
            f"memory      about {format_count(self.memory)}B on each device; "
            f"a checkpoint takes {format_count(self.checkpoint)}B",
        ]
        if self.missing:
            lines.append(f"the data are missing, so sequences of {ASSUMED_LENGTH} tokens are assumed: {self.missing}")
        return "\n".join(lines)


def estimate_cost(recipe: Recipe, device: str = "auto", progress: ProgressCallback | None = None) -> CostEstimate:
    """Estimate the cost of training a recipe; nothing is trained, and no run is written.

    Args:
        recipe: What would be trained.
        device: Device to train on.
        progress: Called while the data are prepared, so that they can be counted.
    """
    recipe = inherit_text_settings(inherit_model(recipe))
    settings, training_device = recipe.train, find_training_device(device)
    precision = choose_precision(settings.precision, training_device)
    task = make_task(recipe)
    prepared, missing = _try_prepare(recipe, task, progress)
    sizes = dict.fromkeys(task.kinds, recipe.text.size) if prepared is None else prepared.fields.sizes
    with torch.device("meta"):  # shapes without memory
        model = task.build(sizes)
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    assumed = ASSUMED_CUDA_TOKENS if training_device.type == "cuda" else MAX_CPU_TOKENS
    epoch = 0 if prepared is None else _tokens_per_epoch(task, prepared)
    longest = max((longest_sequence(store, task) for store in prepared.stores), default=0) if prepared else 0
    tokens = settings.tokens or default_tokens(training_device.type, epoch or MAX_CORPUS, longest)
    budget = tokens if tokens != "auto" else assumed
    tokens_per_step = round(FILLED * budget * settings.accumulate * world_size)
    assumed_lengths = {name: np.array([ASSUMED_LENGTH]) for name in task.kinds}
    lengths = assumed_lengths if prepared is None else sample_lengths(prepared.stores)
    flops_per_token = _training_flops(task, model, lengths) / task.tokens(lengths)
    peak = peak_flops(training_device, precision) * world_size
    utilisation = UTILISATION[(training_device.type, precision)]
    pace = flops_per_token * tokens_per_step / (utilisation * peak)
    limit = math.inf if settings.minutes is None else 60 * settings.minutes
    by_corpus = default_steps(epoch or MAX_CORPUS, budget * settings.accumulate * world_size)
    in_time = by_corpus if limit == math.inf else plan_in_time(0, limit, pace, 0.0).steps
    steps = settings.steps or in_time
    # A checkpoint holds the weights, two numbers per weight for the optimiser, and the moving average.
    checkpoint = count_parameters(model) * 4.0 * (3 + bool(settings.ema))
    shards = world_size if settings.sharding == "fsdp" else 1
    state = (checkpoint + 4.0 * count_parameters(model)) / shards  # and the gradients
    return CostEstimate(
        device=device_name(training_device),
        workers=world_size,
        parameters=count_parameters(model),
        vocabulary=sizes,
        steps=steps,
        tokens_per_step=tokens_per_step,
        epochs=None if prepared is None else steps * tokens_per_step / epoch,
        flops_per_token=flops_per_token,
        flops=flops_per_token * tokens_per_step * steps,
        limit=peak,
        reached=utilisation,
        seconds=min(steps * pace, limit),
        memory=state + ACTIVATION_FACTOR * budget * activation_bytes(model, precision),
        checkpoint=checkpoint,
        missing=missing,
    )


def sample_lengths(stores: Sequence[Records]) -> dict[str, Numbers]:
    """Return the lengths, by field, of some records spread evenly over each corpus."""
    parts = [
        {name: counts[indices].astype(np.int64) for name, counts in store.lengths.items()}
        for store in stores
        for indices in [np.unique(np.linspace(0, len(store) - 1, _SAMPLE).astype(int))]
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def flops_per_unit(task: Task, model: nn.Module, stores: Sequence[Records]) -> float:
    """Return the floating-point operations of a training step, forward and backward, for each unit of these data."""
    lengths = sample_lengths(stores)
    return _training_flops(task, model, lengths) / task.units(lengths)


def _training_flops(task: Task, model: nn.Module, lengths: dict[str, Numbers]) -> float:
    return 3.0 * task.flops(model, lengths)  # the backward pass costs twice the forward pass


def _try_prepare(recipe: Recipe, task: Task, progress: ProgressCallback | None) -> tuple[Prepared | None, str]:
    """Return the prepared data, or why they cannot be prepared."""
    try:
        return prepare(recipe, task, Path(), progress, fields=inherited_fields(recipe, task)), ""
    except (ValueError, OSError) as error:
        return None, str(error)


def _tokens_per_epoch(task: Task, prepared: Prepared) -> int:
    """Return the tokens of an epoch, by the weights of the corpora."""
    return sum(
        round(corpus.weight * task.tokens(store.lengths))
        for corpus, store in zip(prepared.corpora, prepared.stores, strict=True)
    )


def _format_duration(seconds: float) -> str:
    """Return a duration in days, hours, minutes or seconds, rounded."""
    for size, name in ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes")):
        if seconds >= size:
            return f"{seconds / size:,.1f} {name}"
    return f"{seconds:,.0f} seconds"
