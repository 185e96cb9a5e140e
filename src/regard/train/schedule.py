"""The learning rate of each step, from the settings alone."""

import math

from regard.recipe import Train


def rate(settings: Train, step: int, shrunk: float = 1.0) -> float:
    """The rate of an update, counted from 1; `shrunk` is what plateaus have left of it."""
    if step < settings.warmup:
        return settings.rate * step / settings.warmup
    return settings.rate * _after_warmup(settings, step) * (shrunk if settings.schedule == "plateau" else 1.0)


def _after_warmup(settings: Train, step: int) -> float:
    """What share of the highest rate is left once it has been reached."""
    match settings.schedule:
        case "inverse-root":
            # With the peak d^-0.5 warmup^-0.5 this is d^-0.5 min(step^-0.5, step warmup^-1.5) (§5.3).
            return math.sqrt(max(settings.warmup, 1) / step)
        case "cosine":
            through = (step - settings.warmup) / max(settings.steps - settings.warmup, 1)
            return (1 + math.cos(math.pi * min(through, 1.0))) / 2
        case "trapezoid":
            falling = max(settings.cooldown * settings.steps, 1.0)
            return min(1.0, max(settings.steps - step, 0) / falling)
        case "constant" | "plateau":
            return 1.0
