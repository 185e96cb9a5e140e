"""Forecasts without training by gradients, to compare models with: seasonal-naive, NLinear and DLinear.

NLinear and DLinear (Zeng et al. 2023) are linear in the past, so ridge regression fits them at once. One regression
serves all columns, as in the paper. The penalty is chosen on validation data from `PENALTIES`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.floating]
Numbers = NDArray[np.float64]

PENALTIES = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
"""Ridge penalties, relative to the mean square of the inputs times their number."""
KERNEL = 25  # steps of DLinear's moving average, as in the paper
MOST_SAMPLES = 200_000  # windows times columns that a regression is fitted to
_BLOCK = 4096  # samples of which products are added at a time
_PERIODIC = 0.1  # autocorrelation from which a season counts as one


class Baseline(Protocol):
    """Forecasts windows."""

    @property
    def name(self) -> str:
        """The name of the baseline."""

    def forecast(self, past: Values) -> Numbers:
        """Return the future (windows, horizon, columns) of the past (windows, look-back, columns)."""


@dataclass(frozen=True)
class SeasonalNaive:
    """Repeats the last season."""

    period: int
    horizon: int

    @property
    def name(self) -> str:
        """The name with the period."""
        return f"seasonal-naive({self.period})"

    def forecast(self, past: Values) -> Numbers:
        """Return the values one period before each step of the horizon, or several periods."""
        steps = past.shape[1] - self.period + np.arange(self.horizon) % self.period
        return past[:, steps].astype(np.float64)


@dataclass(frozen=True, eq=False)
class LinearBaseline:
    """A linear map from the past of a column to its future."""

    name: str
    weights: Numbers
    """Horizon by look-back."""
    bias: Numbers
    relative: bool
    """Whether values are relative to the last one, as in NLinear."""

    def forecast(self, past: Values) -> Numbers:
        """Return the future of each column."""
        last = past[:, -1:].astype(np.float64) if self.relative else np.zeros(())
        inputs = np.moveaxis(past - last, 1, 2)
        return np.moveaxis(inputs @ self.weights.T + self.bias, 2, 1) + last


def fit_baselines(
    training: Sequence[Values], lookback: int, horizon: int, seasons: Sequence[int] = (), valid: Values | None = None
) -> tuple[Baseline, ...]:
    """Return seasonal-naive, NLinear and DLinear, fitted to training data.

    Args:
        training: Rows by columns of each training part; windows lie within a part.
        lookback: Steps of the past.
        horizon: Steps of the future.
        seasons: Periods to consider first.
        valid: Validation data, with which the penalty of the regressions is chosen.
    """
    period = find_period(training[0], lookback, seasons)
    linear = [
        fit_linear(name, training, lookback, horizon, valid, relative=name == "NLinear", kernel=kernel)
        for name, kernel in (("NLinear", 0), ("DLinear", KERNEL))
    ]
    return SeasonalNaive(period, horizon), *linear


def find_period(values: Values, longest: int, seasons: Sequence[int] = ()) -> int:
    """Return the season with the highest autocorrelation; 1, which repeats the last value, if there is none.

    Args:
        values: Rows by columns.
        longest: Maximum period.
        seasons: Periods to choose from, if one of them is in the data.
    """
    longest = min(longest, len(values) // 2)
    known = [season for season in seasons if 1 < season <= longest]
    for candidates in (known, range(2, longest + 1)):
        correlations = {period: _autocorrelation(values, period) for period in candidates}
        if candidates is not known:  # next to a slow trend, only a local maximum is a season
            correlations = {
                period: value
                for period, value in correlations.items()
                if 2 < period < longest and value >= max(correlations[period - 1], correlations[period + 1])
            }
        best = max(correlations, key=lambda period: correlations[period], default=1)
        if correlations.get(best, 0.0) > _PERIODIC:
            return best
    return 1


def _autocorrelation(values: Values, lag: int) -> float:
    """Return the mean autocorrelation of all columns; 0 for constant ones."""
    centred = values - values.mean(0, keepdims=True)
    variance = (centred**2).sum(0)
    products = (centred[lag:] * centred[:-lag]).sum(0)
    return float(np.mean(np.divide(products, variance, out=np.zeros_like(products), where=variance > 0)))


def fit_linear(
    name: str,
    training: Sequence[Values],
    lookback: int,
    horizon: int,
    valid: Values | None = None,
    *,
    relative: bool,
    kernel: int = 0,
    penalties: Sequence[float] = PENALTIES,
) -> LinearBaseline:
    """Return a linear baseline, fitted by ridge regression with the penalty that is best on the validation data.

    Args:
        name: Its name.
        training: Rows by columns of each training part.
        lookback: Steps of the past.
        horizon: Steps of the future.
        valid: Validation data; without them, the smallest penalty is taken.
        relative: Whether values are relative to the last one, as in NLinear.
        kernel: Steps of the moving average whose coefficients are penalised by themselves, as in DLinear; 0 for none.
        penalties: Penalties to choose from, in rising order.
    """
    fitted = _Moments.of(training, lookback, horizon, relative)
    checked = None if valid is None else _Moments.of([valid], lookback, horizon, relative)
    features = (
        np.eye(lookback)
        if not kernel
        else np.vstack([average := _moving_average(lookback, kernel), np.eye(lookback) - average])
    )
    solutions = [_ridge(fitted, features, penalty) for penalty in penalties]
    best = 0 if checked is None else int(np.argmin([checked.squared_error(solution) for solution in solutions]))
    solution = solutions[best]
    return LinearBaseline(name, solution[:-1].T, solution[-1], relative)


@dataclass(frozen=True, eq=False)
class _Moments:
    """Sums of products over windows of inputs x, which end in a constant 1, and targets y."""

    xx: Numbers
    xy: Numbers
    yy: float
    samples: int

    @classmethod
    def of(cls, parts: Sequence[Values], lookback: int, horizon: int, relative: bool) -> "_Moments":
        """Return the sums over the windows of all parts, or evenly spread ones if there are too many."""
        xx, xy, yy, samples = np.zeros((lookback + 1,) * 2), np.zeros((lookback + 1, horizon)), 0.0, 0
        for block in _blocks(parts, lookback + horizon):
            values = block - block[:, lookback - 1 : lookback] if relative else block
            x = np.concatenate([values[:, :lookback], np.ones((len(values), 1))], 1)
            y = values[:, lookback:]
            xx += x.T @ x
            xy += x.T @ y
            yy += float((y * y).sum())
            samples += len(values)
        return cls(xx, xy, yy, samples)

    def squared_error(self, solution: Numbers) -> float:
        """Return the sum of squared errors of a linear map."""
        return float(self.yy - 2 * (solution * self.xy).sum() + (solution * (self.xx @ solution)).sum())


def _blocks(parts: Sequence[Values], size: int) -> Iterator[Numbers]:
    """Yield windows of single columns, as many at a time as `_BLOCK`."""
    total = sum(max(len(part) - size + 1, 0) * part.shape[1] for part in parts)
    stride = max(1, -(-total // MOST_SAMPLES))
    for part in parts:
        if len(part) < size:
            continue
        windows = np.lib.stride_tricks.sliding_window_view(part, size, 0)[::stride].reshape(-1, size)
        for start in range(0, len(windows), _BLOCK):
            yield windows[start : start + _BLOCK].astype(np.float64)


def _moving_average(lookback: int, kernel: int) -> Numbers:
    """Return the matrix that averages `kernel` neighbours, the ends repeated."""
    matrix = np.zeros((lookback, lookback))
    for offset in range(-(kernel // 2), kernel // 2 + 1):
        np.add.at(matrix, (np.arange(lookback), np.clip(np.arange(lookback) + offset, 0, lookback - 1)), 1 / kernel)
    return matrix


def _ridge(moments: _Moments, features: Numbers, penalty: float) -> Numbers:
    """Return the map of inputs, and of the constant 1 in the last row, that ridge regression on features finds."""
    extended = np.zeros((len(features) + 1, features.shape[1] + 1))
    extended[:-1, :-1], extended[-1, -1] = features, 1.0
    gram = extended @ moments.xx @ extended.T
    scale = np.trace(gram[:-1, :-1]) / len(features)
    ridge = np.full(len(gram), penalty * (scale or 1.0))
    ridge[-1] = 1e-12 * moments.samples  # the constant is not penalised
    solution: Numbers = extended.T @ np.linalg.solve(gram + np.diag(ridge), extended @ moments.xy)
    return solution
