"""What every contender of a race may spend: target tokens, seconds or operations, turned into each one's own limits."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import torch

from regard.data.prepare import Watch, gather
from regard.models.build import build
from regard.recipe import Recipe
from regard.train.cost import flops_per_token, sample_lengths

UNITS = ("tokens", "seconds", "flops")
FULL = 0.95  # of a batch's room that sentences fill, since they do not come in all sizes
ENDLESS = 10_000_000  # steps nobody reaches before the time is up


@dataclass(frozen=True)
class Budget:
    """So much of one thing for everybody."""

    unit: Literal["tokens", "seconds", "flops"]
    amount: float

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """From `tokens=2e6`, `seconds=120` or `flops=1e13`."""
        unit, equals, amount = text.partition("=")
        try:
            value = float(amount.replace("_", ""))
        except ValueError:
            value = 0.0
        if unit not in UNITS or not equals or not 0 < value < float("inf"):
            raise ValueError(f"'{text}' is not a budget; write tokens=2e6, seconds=120 or flops=1e13")
        return cls(cast(Literal["tokens", "seconds", "flops"], unit), value)

    def __str__(self) -> str:
        """For a person."""
        word = {"tokens": "target tokens", "seconds": "seconds", "flops": "FLOPs"}[self.unit]
        return f"{self.amount:,.0f} {word}" if self.amount < 1e9 else f"{self.amount:.2e} {word}"

    def spent_by(self, recipe: Recipe, watch: Watch | None = None) -> Recipe:
        """The recipe as it trains under this budget.

        Tokens and operations become steps: batches hold the same sentences for everyone who shares text, seed and
        `train.tokens`, so the same steps are the same target tokens.
        """
        if self.unit == "seconds":
            if recipe.train.schedule in ("cosine", "trapezoid"):
                raise ValueError(
                    f"{recipe.name}: train.schedule={recipe.train.schedule} falls with the steps left, which a "
                    "budget of seconds does not know; give a budget of tokens or flops, or train.schedule=inverse-root"
                )
            return _told(recipe, {"steps": ENDLESS, "minutes": self.amount / 60})
        if recipe.train.tokens == "auto":
            raise ValueError(
                f"{recipe.name}: train.tokens=auto is known only once training runs; "
                "for a budget of tokens or flops, say a number such as train.tokens=4096"
            )
        prepared = gather(recipe, Path(), watch)
        source, target = (sum(side) for side in sample_lengths(prepared.stores))
        a_step = FULL * recipe.train.tokens * recipe.train.accumulate * target / max(source, target)
        each = 1.0
        if self.unit == "flops":
            with torch.device("meta"):  # shapes are all that is asked of it
                model = build(recipe.model, len(prepared.tokenizers.source), len(prepared.tokenizers.target))
            each = flops_per_token(model, prepared.stores)
        return _told(recipe, {"steps": max(1, round(self.amount / (each * a_step))), "minutes": None})


def _told(recipe: Recipe, limits: dict[str, object]) -> Recipe:
    """The recipe with other limits; nobody stops early, or budgets would not be equal."""
    return recipe.model_copy(update={"train": recipe.train.model_copy(update={**limits, "patience": 0})})
