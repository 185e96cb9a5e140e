"""Errors of forecasts: squared and absolute errors by step and column, and how often intervals hold."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from regard.score.metric import Score

BANDS = 4
"""Parts of the horizon whose errors are listed."""


@dataclass(frozen=True, eq=False)
class ForecastErrors:
    """Sums of errors over windows, for each step of the horizon and each column."""

    squared: NDArray[np.float64]
    """Squared errors; steps by columns."""
    absolute: NDArray[np.float64]
    windows: int
    covered: dict[str, int] = field(default_factory=dict)
    """How many values are inside of each interval, by its name."""

    @classmethod
    def of(
        cls,
        truth: NDArray[np.floating],
        forecast: NDArray[np.floating],
        intervals: dict[str, tuple[NDArray[np.floating], NDArray[np.floating]]] | None = None,
    ) -> "ForecastErrors":
        """Return the errors of forecasts of windows: arrays of windows, steps and columns.

        Args:
            truth: The true values.
            forecast: The forecasts.
            intervals: Lower and upper ends of intervals, by name.
        """
        error = forecast.astype(np.float64) - truth
        covered = {
            name: int(((low <= truth) & (truth <= high)).sum()) for name, (low, high) in (intervals or {}).items()
        }
        return cls((error**2).sum(0), np.abs(error).sum(0), len(truth), covered)

    def __add__(self, other: "ForecastErrors") -> "ForecastErrors":
        """Return the errors over the windows of both."""
        covered = {name: count + other.covered[name] for name, count in self.covered.items()}
        windows = self.windows + other.windows
        return ForecastErrors(self.squared + other.squared, self.absolute + other.absolute, windows, covered)

    @property
    def mse(self) -> float:
        """Mean squared error."""
        return float(self.squared.mean() / self.windows)

    @property
    def mae(self) -> float:
        """Mean absolute error."""
        return float(self.absolute.mean() / self.windows)

    @property
    def values(self) -> int:
        """The number of values that were forecast."""
        return self.windows * self.squared.size

    def coverage(self, name: str) -> float:
        """Return the share of values inside of an interval."""
        return self.covered[name] / self.values

    def by_column(self) -> list[tuple[float, float]]:
        """Return mean squared and mean absolute error of each column."""
        squared, absolute = self.squared.mean(0) / self.windows, self.absolute.mean(0) / self.windows
        return list(zip(squared.tolist(), absolute.tolist(), strict=True))

    def by_step(self, bands: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
        """Return mean squared and mean absolute error of ranges of steps, each given by its first step and its end."""
        parts = [(self.squared[first:last], self.absolute[first:last]) for first, last in bands]
        return [(float(s.mean() / self.windows), float(a.mean() / self.windows)) for s, a in parts]

    def scores(self, model: str = "", note: str = "") -> tuple[Score, Score]:
        """Return MSE and MAE as scores; `model` names a baseline."""
        steps, columns = self.squared.shape
        signature = f"windows:{self.windows}|horizon:{steps}|columns:{columns}|scale:training{note}"
        name = f"{model} " if model else ""
        return (
            Score(f"{name}MSE", self.mse, signature, higher_is_better=False),
            Score(f"{name}MAE", self.mae, signature, higher_is_better=False),
        )


def horizon_bands(horizon: int, count: int = BANDS) -> list[tuple[int, int]]:
    """Return ranges of steps that divide a horizon evenly: the first step of each, and its end."""
    edges = np.unique(np.linspace(0, horizon, min(count, horizon) + 1).round().astype(int)).tolist()
    return list(pairwise(edges))
