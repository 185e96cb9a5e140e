"""A generated hourly series with trend, seasons and events whose cause is known.

Three columns repeat by day and week. At random times, `signal` has a spike of a few hours. `DELAY` hours after each
spike, `response` rises and falls again. The column `other` has such spikes too, which cause nothing. So what decides a
forecast of `response` is known, and only a model that reads several columns can know it.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

COLUMNS = ("signal", "response", "other")
SIGNAL, RESPONSE, OTHER = range(3)
DELAY = 36
"""Hours from a spike of `signal` to the beginning of the rise of `response`."""
SPIKE = (1.0, 0.6)
"""Shape of a spike, hour by hour."""
RISE = (0.6, 1.0, 1.0, 0.8, 0.5, 0.25)
"""Shape of what it causes."""
SPIKE_HEIGHT, RISE_HEIGHT = 5.0, 4.0
_APART, _BETWEEN = 24, 36.0  # hours between two spikes: at least, and how many more on average
_NOISE = 0.2
_SPIKES, _NOISES, _LEVELS = range(3)  # keep random numbers apart


@dataclass(frozen=True)
class SeasonalEvent:
    """A spike, and what it causes."""

    cause: int
    """Row at which the spike of `signal` begins."""
    effect: int
    """Row at which the rise of `response` begins."""


@lru_cache(maxsize=2)
def seasonal_events(rows: int, seed: int = 0) -> tuple[SeasonalEvent, ...]:
    """Return the events of the series, in order; the last effects may be after its end."""
    return tuple(SeasonalEvent(row, row + DELAY) for row in _spikes(rows, seed, SIGNAL))


def seasonal_values(rows: int, seed: int = 0) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Return the names of the columns, and the values, one row an hour. A longer series begins with a shorter one."""
    hour = np.arange(rows)
    draw = np.random.default_rng((seed, _LEVELS))
    values = np.empty((rows, len(COLUMNS)))
    noise = np.random.default_rng((seed, _NOISES)).normal(0.0, _NOISE, (rows, len(COLUMNS)))
    for column in range(len(COLUMNS)):
        daily, weekly, phase = draw.uniform(0.8, 1.6), draw.uniform(0.3, 0.8), draw.uniform(0, 24)
        trend = draw.uniform(-1.0, 1.0) * hour / 4000
        day = daily * np.sin(2 * np.pi * (hour + phase) / 24) + 0.3 * daily * np.sin(4 * np.pi * (hour + phase) / 24)
        values[:, column] = 10 * (column + 1) + trend + day + weekly * np.cos(2 * np.pi * hour / 168) + noise[:, column]
    for row in _spikes(rows, seed, SIGNAL):
        _add(values[:, SIGNAL], row, SPIKE_HEIGHT * np.array(SPIKE))
        _add(values[:, RESPONSE], row + DELAY, RISE_HEIGHT * np.array(RISE))
    for row in _spikes(rows, seed, OTHER):
        _add(values[:, OTHER], row, SPIKE_HEIGHT * np.array(SPIKE))
    return COLUMNS, values


def _spikes(rows: int, seed: int, column: int) -> list[int]:
    """Return the rows at which spikes of a column begin."""
    draw = np.random.default_rng((seed, _SPIKES, column))
    spikes, row = list[int](), 0
    while (row := row + _APART + int(draw.exponential(_BETWEEN))) < rows:
        spikes.append(row)
    return spikes


def _add(column: NDArray[np.float64], row: int, shape: NDArray[np.float64]) -> None:
    """Add a shape to a column from a row on, as far as the column reaches."""
    part = shape[: max(len(column) - row, 0)]
    column[row : row + len(part)] += part
