"""The events that the training loop yields. Views, the log and reports read these and nothing else."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from regard.recipe import Recipe
from regard.score import Score
from regard.tasks import Sample


@dataclass(frozen=True)
class Started:
    """Training starts, or resumes from a checkpoint."""

    recipe: Recipe
    run: Path
    parameters: int
    device: str
    workers: int
    """World size: the number of processes that share each step."""
    vocabulary: dict[str, int]
    """Size of the vocabulary of each field."""
    flops_per_token: float
    """Floating-point operations of a training step for each unit of the loss, forward and backward."""
    limit: float | None
    """FLOP/s of a large matrix product, over all processes; None if it was not measured."""
    step: int
    """Completed updates; more than 0 if the run resumes."""
    steps: int
    """The number of updates after which training ends; 0 if it is not known yet, because the time is limited."""
    unit: str = "tokens"
    """What the loss is averaged over, in the plural, as the task names it."""


@dataclass(frozen=True)
class Progress:
    """Training metrics since the previous event of this kind."""

    step: int
    epoch: int
    """Completed epochs."""
    loss: float
    """Mean training loss per unit, with label smoothing."""
    perplexity: float
    rate: float
    """Learning rate of the last update."""
    norm: float
    """Norm of the last gradient before clipping."""
    tokens: int
    """Units of the loss since the start of the run."""
    tokens_per_second: float
    share: float | None
    """Model FLOPs utilisation: achieved FLOP/s divided by `Started.limit`."""
    seconds: float
    """Time since the start of the run, validation included."""
    remaining: float
    """Estimated seconds until the end of training."""
    steps: int = 0
    """The number of updates after which training ends; 0 if it is not known yet."""


@dataclass(frozen=True)
class Validated:
    """The quality of the weights on the validation data."""

    step: int
    loss: float
    """Mean loss per unit in nats, without label smoothing."""
    perplexity: float | None
    accuracy: float | None
    """Fraction of units predicted correctly, teacher-forced."""
    scores: tuple[Score, ...]
    """Scores of predictions; empty if none were made."""
    samples: tuple[Sample, ...]
    seconds: float
    """Duration of this validation."""
    best: bool
    """Whether these weights are the best so far."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Further teacher-forced metrics of the task."""
    predicted: int = 0
    """Examples that `scores` are computed from; the same ones at every validation of a run."""


@dataclass(frozen=True)
class Saved:
    """A complete checkpoint is on disk."""

    step: int
    path: Path


@dataclass(frozen=True)
class Noticed:
    """A message for the user, such as a setting that was chosen automatically."""

    message: str


@dataclass(frozen=True)
class Finished:
    """Training has ended, and the run can be loaded."""

    step: int
    reason: Literal["steps", "patience", "stopped", "time"]
    seconds: float
    tokens: int
    best_step: int | None
    scores: dict[str, Any]
    """The contents of `scores.json`."""
    run: Path


Event = Started | Progress | Validated | Saved | Noticed | Finished
