"""How long a run trains, and with which learning rate; values for the settings that a recipe leaves unset.

Unset settings follow the model, the corpus, the device and the time: the first seconds of training show how many steps
fit into `train.minutes`. The state of a run keeps that number, so a run that resumes follows the same schedule.
Settings that a recipe names are never changed.
"""

import math
from typing import Any, Literal

from regard.recipe import Recipe, Train, Transformer
from regard.recipe.section import Positive

CPU_TOKENS, CUDA_TOKENS = 1024, 4096  # smaller batches are about as fast per token on a CPU, but not on CUDA
MIN_STEPS_PER_EPOCH = 50  # with fewer updates per epoch the model would learn less, however fast they are
EPOCHS, MIN_STEPS, MAX_STEPS = 20, 1000, 8000
WARMUP_FRACTION, MAX_WARMUP = 0.1, 1000
VALIDATIONS, MAX_EVERY = 10, 500
MUON_RATE, MUON_WIDTH = 4e-3, 256  # the rate for this width; wider models get less
TIME_FRACTION = 0.95  # of the time left that is planned for; steps may become slower
VALIDATION_COST = 1 / 3  # of a training step with as many tokens: there is no backward pass
COOLED = 0.1  # fraction of the peak learning rate below which a run counts as cooled down


class ResolvedTrain(Train):
    """The settings of training with a value for each that a recipe may leave unset."""

    steps: Positive = MAX_STEPS
    optimiser: Literal["adam", "adamw", "muon"] = "adamw"
    rate: float = 1e-3
    schedule: Literal["inverse-root", "cosine", "trapezoid", "constant", "plateau"] = "inverse-root"
    warmup: int = MAX_WARMUP
    every: Positive = MAX_EVERY


def resolve(recipe: Recipe, steps: int) -> ResolvedTrain:
    """Return the settings of training for a number of steps, each as the recipe names it or else its default."""
    named = recipe.train.model_dump(exclude_none=True)
    chosen: dict[str, Any] = {"warmup": min(int(WARMUP_FRACTION * steps), MAX_WARMUP)}
    if recipe.train.steps is None:
        chosen["every"] = min(max(steps // VALIDATIONS, 1), MAX_EVERY)
    if not named.keys() & {"optimiser", "rate", "schedule", "warmup"}:
        chosen |= _default_optimiser(recipe)
    return ResolvedTrain.model_validate({**chosen, **named, "steps": steps})


def _default_optimiser(recipe: Recipe) -> dict[str, Any]:
    """Return optimiser, peak learning rate and schedule, which depend on each other, of a recipe that names none."""
    if isinstance(recipe.model, Transformer):
        rate = MUON_RATE * math.sqrt(MUON_WIDTH / max(recipe.model.width, MUON_WIDTH))
        return {"optimiser": "muon", "rate": rate, "schedule": "cosine"}
    return {"optimiser": "adamw", "rate": 2e-3, "schedule": "cosine"}


def default_tokens(device: str, epoch: int, longest: int) -> int:
    """Return the tokens of a batch of a recipe that does not name them.

    Args:
        device: Type of the device, such as `cpu`.
        epoch: Tokens of an epoch.
        longest: Tokens of the longest sequence, which must fit.
    """
    tokens = CPU_TOKENS if device == "cpu" else min(CUDA_TOKENS, max(CPU_TOKENS, epoch // MIN_STEPS_PER_EPOCH))
    return max(tokens, longest)


def default_steps(epoch: int, tokens_per_step: int) -> int:
    """Return the steps of a recipe that names neither steps nor minutes: epochs of so many tokens, within limits."""
    return min(max(EPOCHS * epoch // tokens_per_step, MIN_STEPS), MAX_STEPS)


def steps_in_time(seconds: float, pace: float, validation_steps: float) -> int:
    """Return how many steps fit into some seconds.

    Args:
        seconds: Training time that is left.
        pace: Seconds of a step.
        validation_steps: Steps that a pass over the validation data would take.
    """
    validations = min(VALIDATIONS * VALIDATION_COST * validation_steps * pace, seconds / 2)
    return max(int(TIME_FRACTION * (seconds - validations) / pace), 1)


def learning_rate(settings: ResolvedTrain, step: int, shrunk: float = 1.0) -> float:
    """Return the learning rate of a step.

    Args:
        settings: The settings of the schedule.
        step: Number of the update, from 1.
        shrunk: The factor to which the `plateau` schedule has reduced the rate.
    """
    if step < settings.warmup:
        return settings.rate * step / settings.warmup
    return settings.rate * _decay_factor(settings, step) * (shrunk if settings.schedule == "plateau" else 1.0)


def _decay_factor(settings: ResolvedTrain, step: int) -> float:
    """Return the fraction of the peak learning rate at a step after the warm-up."""
    match settings.schedule:
        case "inverse-root":
            # With the peak d^-0.5 warmup^-0.5 this is d^-0.5 min(step^-0.5, step warmup^-1.5) (Vaswani et al., §5.3).
            return math.sqrt(max(settings.warmup, 1) / step)
        case "cosine":
            fraction = (step - settings.warmup) / max(settings.steps - settings.warmup, 1)
            return (1 + math.cos(math.pi * min(fraction, 1.0))) / 2
        case "trapezoid":
            cooldown_steps = max(settings.cooldown * settings.steps, 1.0)
            return min(1.0, max(settings.steps - step, 0) / cooldown_steps)
        case "constant" | "plateau":
            return 1.0


def describe_cut(settings: ResolvedTrain, step: int) -> str:
    """Return what a schedule misses if training ends at a step, and what to do; empty if it misses nothing."""
    if step < settings.warmup:
        missed = f"within the warm-up of {settings.warmup:,} steps"
    elif settings.schedule in ("cosine", "trapezoid") and _decay_factor(settings, step) > COOLED:
        missed = f"before step {settings.steps:,}, at which the learning rate has decreased to zero"
    else:
        return ""
    fraction = learning_rate(settings, step) / settings.rate
    names = "train.warmup" if settings.minutes is None else "train.steps and train.warmup"
    followed = "train.steps" if settings.minutes is None else "train.minutes"
    return (
        f"{missed}: the learning rate is at {fraction:.0%} of its peak there. Train longer, or remove {names} from the "
        f"recipe, so that the schedule follows {followed}"
    )
