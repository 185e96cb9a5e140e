"""How long a run trains, and with which learning rate; values for the settings that a recipe leaves unset.

Unset settings follow the model, the corpus, the device and the time: the first part of training shows how many steps
fit into `train.minutes` (`regard.train.speed`). The state of a run keeps that number, so a run that resumes follows the
same schedule. Settings that a recipe names are never changed.
"""

import math
from bisect import bisect_right
from typing import Any, Literal, NamedTuple

from regard.recipe import Recipe, SelfAttentive, Train
from regard.recipe.section import Positive

CPU_TOKENS, CUDA_TOKENS = 1024, 4096  # smaller batches are about as fast per token on a CPU, but not on CUDA
MIN_STEPS_PER_EPOCH = 50  # with fewer updates per epoch the model would learn less, however fast they are
EPOCHS, MIN_STEPS, MAX_STEPS = 20, 1000, 8000
WARMUP_FRACTION, MAX_WARMUP = 0.1, 1000
VALIDATIONS, MAX_EVERY = 10, 500
MUON_RATE, MUON_WIDTH = 4e-3, 256  # the rate for this width; wider models get less
TIME_FRACTION = 0.97  # of the time left that is planned for; steps may become slower
VALIDATION_FRACTION = 0.15  # of the time that validations may take, unless that would be fewer than two
COOLED = 0.1  # fraction of the peak learning rate below which a run counts as cooled down


class ResolvedTrain(Train):
    """The settings of training with a value for each that a recipe may leave unset."""

    steps: Positive = MAX_STEPS
    optimiser: Literal["adam", "adamw", "muon"] = "adamw"
    rate: float = 1e-3
    schedule: Literal["inverse-root", "cosine", "trapezoid", "constant", "plateau"] = "inverse-root"
    warmup: int = MAX_WARMUP
    every: Positive = MAX_EVERY


class TimePlan(NamedTuple):
    """The number of steps that fit into a time limit."""

    steps: int
    every: int
    """Steps between two validations."""


def resolve(recipe: Recipe, steps: int, every: int = 0) -> ResolvedTrain:
    """Return the settings of training, each as the recipe names it or else its default.

    Args:
        recipe: The recipe.
        steps: The number of steps.
        every: Steps between two validations, if the recipe does not name them. Default: a tenth of the steps.
    """
    named = recipe.train.model_dump(exclude_none=True)
    chosen: dict[str, Any] = {"warmup": min(int(WARMUP_FRACTION * steps), MAX_WARMUP)}
    if recipe.train.steps is None:
        chosen["every"] = every or min(max(steps // VALIDATIONS, 1), MAX_EVERY)
    if not named.keys() & {"optimiser", "rate", "schedule", "warmup"}:
        chosen |= _default_optimiser(recipe)
    return ResolvedTrain.model_validate({**chosen, **named, "steps": steps})


def _default_optimiser(recipe: Recipe) -> dict[str, Any]:
    """Return optimiser, peak learning rate and schedule, which depend on each other, of a recipe that names none."""
    if isinstance(recipe.model, SelfAttentive):
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


def plan_in_time(done: int, seconds: float, pace: float, validation: float, every: int | None = None) -> TimePlan:
    """Return how many steps fit into some seconds, the validations after them included.

    Args:
        done: Completed steps.
        seconds: Training time that is left.
        pace: Seconds of a step.
        validation: Seconds of a validation.
        every: Steps between two validations. Default: so many that there are about ten validations, or fewer if these
            would take too much of the time.
    """
    seconds *= TIME_FRACTION
    validation = min(validation, seconds / 4)  # training gets half of the time, even if a validation takes all of it
    if every is not None:
        return TimePlan(_steps_that_fit(done, seconds, pace, validation, every), every)
    steps = done + max(int(seconds / pace), 1)
    seldom = math.ceil(validation * (1 / VALIDATION_FRACTION - 1) / pace)
    for _ in range(2):  # with fewer steps, each tenth of them is shorter
        tenth = min(-(-steps // VALIDATIONS), MAX_EVERY)
        every = min(max(tenth, seldom), -(-steps // 2))
        steps = _steps_that_fit(done, seconds, pace, validation, every)
    assert every is not None
    # What is left may be too short for another validation: then those that fit are moved apart, for more steps.
    left = seconds - _seconds_of(steps, done, pace, validation, every)
    plan, validations = TimePlan(steps, every), -(-steps // every)
    # After the first validation, there may also be one fewer: two are enough, and the last one ends the run.
    for count in (validations, validations - 1) if done >= every else (validations,):
        wider = -(-(steps + int(left / pace)) // count)
        more = _steps_that_fit(done, seconds, pace, validation, wider)
        plan = TimePlan(more, wider) if more > plan.steps else plan
    return plan


def _steps_that_fit(done: int, seconds: float, pace: float, validation: float, every: int) -> int:
    """Return the largest number of steps, at least one more, that end in time with their validations."""

    def cost(steps: int) -> float:
        return _seconds_of(steps, done, pace, validation, every)

    return done + max(bisect_right(range(done, done + int(seconds / pace) + 1), seconds, key=cost) - 1, 1)


def _seconds_of(steps: int, done: int, pace: float, validation: float, every: int) -> float:
    """Return the time that is left of so many steps, `done` of which are completed, with their validations."""
    validations = steps // every - done // every + (steps % every > 0)  # and one at the end
    return (steps - done) * pace + validations * validation


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
