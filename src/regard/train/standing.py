"""How far a run has come: all that a checkpoint keeps besides tensors."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from regard.data.batching import BEGINNING, Position


@dataclass
class Standing:
    """Where a run stands between two updates; what follows depends on this, the tensors and the recipe alone."""

    step: int = 0
    """Updates behind."""
    position: Position = field(default=BEGINNING)
    """Where the stream of batches goes on."""
    parts: int = 1
    """Batches of a step over all processes, by which the position counts."""
    budget: int = 0
    """Tokens of either side in one batch; what `auto` has found, if it was asked."""
    tokens: int = 0
    """Target tokens learnt from."""
    seconds: float = 0.0
    """Time spent."""
    shrunk: float = 1.0
    """What plateaus have left of the learning rate."""
    best: float | None = None
    """The best score on the validation text, where higher is better."""
    best_loss: float | None = None
    """What the loss on it was then."""
    best_step: int | None = None
    stale: int = 0
    """Validations since the best."""
    translated: int = 0
    """Sentences the last validation translated."""
    translating: float = 0.0
    """Seconds that took."""
    validated: float = 0.0
    """The run's time when the last validation was over."""

    def judged(self, score: float, loss: float, shrink: float) -> bool:
        """Take note of a validation, by a score where higher is better; whether it is the best.

        Of equal scores the lower loss is better: BLEU stays at 0 for long while a model begins to learn.
        """
        before = math.inf if self.best_loss is None else self.best_loss
        if self.best is None or (score, -loss) > (self.best, -before):
            self.best, self.best_loss, self.best_step, self.stale = score, loss, self.step, 0
            return True
        self.stale += 1
        self.shrunk *= shrink
        return False

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> "Standing":
        """Back from `to_json`."""
        return cls(**{**table, "position": Position(**table["position"])})
