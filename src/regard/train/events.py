"""What training tells while it runs; whoever shows or keeps it takes these and nothing else."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from regard.recipe import Recipe
from regard.score import Score


@dataclass(frozen=True)
class Started:
    """Training begins, or goes on from where it was stopped."""

    recipe: Recipe
    run: Path
    parameters: int
    device: str
    workers: int
    """Processes that share each step."""
    vocabulary: tuple[int, int]
    """Entries on the source's and the target's side."""
    flops_per_token: float
    """Floating-point operations of training a target token needs, forward and backward."""
    limit: float | None
    """Operations a second of a large matrix product, over all workers; none where it was not measured."""
    step: int
    """Updates behind; more than 0 when resumed."""
    steps: int
    """Updates at which training ends."""


@dataclass(frozen=True)
class Progress:
    """How learning goes since the last event of this kind."""

    step: int
    epoch: int
    """Epochs wholly behind."""
    loss: float
    """Mean nats a target token, smoothed labels included."""
    perplexity: float
    rate: float
    """Learning rate of the last update."""
    norm: float
    """Norm of the last gradient before it was clipped."""
    tokens: int
    """Target tokens since the very beginning."""
    tokens_per_second: float
    share: float | None
    """Fraction of the device's limit that was reached."""
    seconds: float
    """Time spent training since the very beginning, validation included."""
    remaining: float
    """Seconds to go, as it looks now."""


@dataclass(frozen=True)
class Sample:
    """A sentence of the validation text, what people made of it and what the model makes of it now."""

    source: str
    reference: str
    translation: str


@dataclass(frozen=True)
class Validated:
    """How good the weights are on text they do not learn from."""

    step: int
    loss: float
    """Mean nats a target token, labels not smoothed."""
    perplexity: float
    accuracy: float
    """Share of target tokens that score highest, given those before them."""
    scores: tuple[Score, ...]
    """Scores of decoded text, where any was decoded."""
    samples: tuple[Sample, ...]
    seconds: float
    """What this validation took."""
    best: bool
    """Whether nothing before was as good."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint is on disk, whole."""

    step: int
    path: Path


@dataclass(frozen=True)
class Noticed:
    """Something a person may want to know, such as a choice that was made for them."""

    message: str


@dataclass(frozen=True)
class Finished:
    """Training is over; the run's folder can be loaded."""

    step: int
    reason: Literal["steps", "patience", "stopped", "time"]
    seconds: float
    tokens: int
    best_step: int | None
    scores: dict[str, Any]
    """What `scores.json` holds."""
    run: Path


Event = Started | Progress | Validated | Saved | Noticed | Finished
