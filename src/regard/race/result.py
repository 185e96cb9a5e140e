"""The result of one contender: what its training cost, and the scores of its predictions."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Self

from regard.bundle import load_scores
from regard.files import write_atomically
from regard.recipe import Recipe, dump
from regard.run_files import RECIPE
from regard.train.events import Validated
from regard.train.report.log import TrainingLog, read_log

RESULT = "result.json"


@dataclass(frozen=True)
class ValidationPoint:
    """A point of the learning curve."""

    tokens: int
    seconds: float
    loss: float
    """Validation loss in nats per token."""
    bleu: float | None


@dataclass(frozen=True, kw_only=True)
class RaceResult:
    """The evaluation of one contender; each task adds what is particular to it."""

    name: str
    kind: str
    seed: int
    device: str
    parameters: int
    steps: int
    tokens: int
    """Target tokens of training."""
    flops: float
    """FLOPs of training, forward and backward."""
    seconds: float
    """Time of training, including validation."""
    training_speed: float
    """Target tokens per second in training, median."""
    memory: float | None
    """Peak memory of training in bytes: of the GPU, or of the whole process on a CPU."""
    loss: float | None
    """Last validation loss, in nats per token."""
    points: list[ValidationPoint]
    scores: dict[str, float]
    """The scores of the predictions by name."""
    signatures: dict[str, str]
    recipe: str = field(default="", repr=False)
    """The recipe as TOML; a result of another recipe is not reused."""

    def score(self, name: str) -> float | None:
        """Return a score by name; None if this contender has none of that name."""
        return self.scores.get(name)

    def save(self, run: Path) -> None:
        """Save the result in the folder of its run."""
        write_atomically(run / RESULT, json.dumps(asdict(self), ensure_ascii=False, indent=1).encode())

    @classmethod
    def load(cls, run: Path, recipe: Recipe) -> Self | None:
        """Return the saved result of a run, or None if there is none of this recipe."""
        try:
            result = cls.from_json(json.loads((run / RESULT).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return result if result.recipe == dump(recipe) else None

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> Self:
        """Return the result that a JSON object describes."""
        return cls(**{**table, "points": [ValidationPoint(**point) for point in table["points"]]})


def training_figures(run: Path) -> dict[str, Any]:
    """Return the fields of a result that the training log of a run holds."""
    log: TrainingLog = read_log(run)
    started, finished = log.started, log.finished
    if started is None or finished is None:
        raise ValueError(f"{run} is not trained to its end; repeat the command to resume")
    last = log.validated[-1] if log.validated else None
    progress = {reading.step: reading for reading in log.progress}
    return {
        "kind": started.recipe.model.kind,
        "device": started.device,
        "parameters": started.parameters,
        "steps": finished.step,
        "tokens": finished.tokens,
        "flops": started.flops_per_token * finished.tokens,
        "seconds": finished.seconds,
        "training_speed": median([reading.tokens_per_second for reading in log.progress] or [0.0]),
        "memory": load_scores(run).get("memory"),
        "loss": None if last is None else last.loss,
        "points": [
            ValidationPoint(reading.tokens, reading.seconds, validated.loss, validation_bleu(validated))
            for validated in log.validated
            if (reading := progress.get(validated.step)) is not None
        ],
    }


def validation_bleu(validated: Validated) -> float | None:
    """Return the BLEU of a validation, cased or not, or None if nothing was predicted."""
    return next((score.value for score in validated.scores if score.name.startswith("BLEU")), None)


def is_trained(run: Path, recipe: Recipe) -> bool:
    """Return whether a folder holds a model of this recipe that was trained to the end of its budget."""
    path = run / RECIPE
    if not path.is_file() or path.read_text(encoding="utf-8") != dump(recipe) or not (run / "log.jsonl").is_file():
        return False
    finished = read_log(run).finished
    return finished is not None and finished.reason != "stopped"
