"""What a training will cost, before it begins: size, operations, steps, memory, and time on this device."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from regard.data.prepare import Prepared, Watch, gather
from regard.models.build import build
from regard.models.cost import parameters, training_flops
from regard.models.seq2seq import Seq2Seq
from regard.recipe import Recipe
from regard.train.budget import CPU_LARGEST
from regard.train.cost import activation_bytes, device_name, find_learner, flops_per_token, limit
from regard.train.start import adopted, given_tokenizers
from regard.train.wording import amount

ASSUMED = 28  # tokens a sentence has where the text is not there to be counted, as WMT's sentences have on average
CUDA_ASSUMED = 25_000  # tokens of a batch that `auto` would look for
FULL = 0.95  # of the budget that batches fill, since sentences do not come in all sizes
REACHED = {("cuda", "bfloat16"): 0.45, ("cuda", "float32"): 0.3, ("cpu", "bfloat16"): 0.35, ("cpu", "float32"): 0.5}
"""Share of a large matrix product's speed that training reaches: compiled on an H200, and on two cores."""
OVERHEAD = 1.3  # activations besides what goes in and out of matrices: norms, dropout, attention


@dataclass(frozen=True)
class Outlook:
    """What a training will cost; times and bytes are estimates, the rest is counted."""

    device: str
    workers: int
    parameters: int
    vocabulary: tuple[int, int]
    steps: int
    tokens_per_step: int
    """Target tokens an update learns from, over all workers; as many source tokens besides."""
    epochs: float | None
    """Passes over the text; none where it is not there."""
    flops_per_token: float
    flops: float
    limit: float
    """Operations a second of a large matrix product, over all workers, measured now."""
    reached: float
    """Share of that which is expected."""
    seconds: float
    memory: float
    """Bytes on each device: weights, gradients, what the optimiser remembers, and a batch on its way."""
    checkpoint: float
    """Bytes of a checkpoint."""
    missing: str
    """Why the text could not be counted, where it could not."""

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """For a person."""
        epochs = f", {self.epochs:,.1f} epochs" if self.epochs is not None else ""
        lines = [
            f"model       {amount(self.parameters)} parameters, vocabulary {self.vocabulary[0]:,} and "
            f"{self.vocabulary[1]:,}",
            f"work        {self.steps:,} steps of about {self.tokens_per_step:,} target tokens{epochs}",
            f"            {amount(self.flops_per_token)}FLOP a target token, {self.flops:.3g} FLOP in all",
            f"device      {self.device}, {self.workers} process{'es' if self.workers > 1 else ''}: a matrix product "
            f"runs at {self.limit / 1e12:,.2f} TFLOP/s",
            f"time        about {_duration(self.seconds)}, if training reaches {self.reached:.0%} of that",
            f"memory      about {amount(self.memory)}B on each device; a checkpoint takes {amount(self.checkpoint)}B",
        ]
        if self.missing:
            lines.append(f"the text is not here, so sentences of {ASSUMED} tokens are assumed: {self.missing}")
        return "\n".join(lines)


def look_ahead(recipe: Recipe, device: str = "auto", watch: Watch | None = None) -> Outlook:
    """Count what can be counted of a recipe's training and estimate the rest; nothing is trained or written."""
    recipe = adopted(recipe)
    settings, where = recipe.train, find_learner(device)
    prepared, missing = _text(recipe, watch)
    sizes = _vocabulary(recipe, prepared)
    with torch.device("meta"):  # shapes are all that is asked of it
        model = build(recipe.model, *sizes)
    workers = int(os.environ.get("WORLD_SIZE", "1"))
    budget = settings.tokens if settings.tokens != "auto" else CUDA_ASSUMED if where.type == "cuda" else CPU_LARGEST
    a_step = round(FULL * budget * settings.accumulate * workers)
    each = _flops(model, prepared)
    flops = each * a_step * settings.steps
    speed = limit(where, settings.precision) * workers
    reached = REACHED[(where.type, settings.precision)]
    return Outlook(
        device=device_name(where),
        workers=workers,
        parameters=parameters(model),
        vocabulary=sizes,
        steps=settings.steps,
        tokens_per_step=a_step,
        epochs=None if prepared is None else settings.steps * a_step / _epoch(prepared),
        flops_per_token=each,
        flops=flops,
        limit=speed,
        reached=reached,
        seconds=flops / (reached * speed),
        memory=_state(recipe, model, workers) + OVERHEAD * budget * activation_bytes(model, settings.precision),
        checkpoint=_kept(recipe, model),
        missing=missing,
    )


def _text(recipe: Recipe, watch: Watch | None) -> tuple[Prepared | None, str]:
    """The recipe's text, or why it cannot be had."""
    try:
        return gather(recipe, Path(), watch, tokenizers=given_tokenizers(recipe)), ""
    except (ValueError, OSError) as error:
        return None, str(error)


def _vocabulary(recipe: Recipe, prepared: Prepared | None) -> tuple[int, int]:
    """Sizes of the vocabularies; without text, those asked for."""
    if prepared is None:
        return recipe.text.size, recipe.text.size
    return len(prepared.tokenizers.source), len(prepared.tokenizers.target)


def _flops(model: Seq2Seq, prepared: Prepared | None) -> float:
    """Operations for each target token."""
    if prepared is None:
        return training_flops(model, [ASSUMED], [ASSUMED]) / ASSUMED
    return flops_per_token(model, prepared.stores)


def _epoch(prepared: Prepared) -> int:
    """Target tokens of a pass over the text, its weights counted."""
    return sum(
        round(corpus.weight * (int(store.lengths[1].sum()) + len(store)))
        for corpus, store in zip(prepared.corpora, prepared.stores, strict=True)
    )


def _kept(recipe: Recipe, model: Seq2Seq) -> float:
    """Bytes a checkpoint keeps of the weights: themselves, two numbers each for the optimiser, their moving average."""
    return parameters(model) * 4.0 * (3 + bool(recipe.train.ema))


def _state(recipe: Recipe, model: Seq2Seq, workers: int) -> float:
    """Bytes of that and of the gradients on each device, which sharing out makes fewer."""
    shared = workers if recipe.train.sharding == "fsdp" else 1
    return (_kept(recipe, model) + 4.0 * parameters(model)) / shared


def _duration(seconds: float) -> str:
    """A time as a person says it."""
    for size, name in ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes")):
        if seconds >= size:
            return f"{seconds / size:,.1f} {name}"
    return f"{seconds:,.0f} seconds"
