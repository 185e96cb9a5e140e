"""Judge the attention of forecasts: does the forecast of an effect attend to the hours of its known cause?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.seasonal import RESPONSE, RISE, RISE_HEIGHT, SIGNAL, SPIKE, SeasonalEvent
from regard.data.series import TimeSeries
from regard.predict.forecast_attention import attention_spans, forecast_with_attention
from regard.predict.forecaster import Forecaster

BATCH = 256
_PEAK = 1  # step of a rise at which it is highest


@dataclass(frozen=True)
class ForecastAttentionReport:
    """How often forecasts of effects attend to their causes, and whether they use them."""

    events: int
    """Windows in whose past an event has its cause, and in whose future its effect."""
    at_cause: float
    """Share of them in which the weight of the forecast of the effect is largest at the cause."""
    mass: float
    """Mean weight at the cause."""
    others: int
    """Windows without an effect at these steps."""
    at_place: float
    """Share of those in which the weight is largest at the same distance, where there is no cause."""
    keys: int
    """Number of keys that the weights are over."""
    rise: float
    """Mean height of the true rise at its second hour, in scaled units."""
    with_cause: float
    """Mean height of the forecast rise: the forecast less that of the same past without the cause."""
    mse: float
    """Mean squared error of the effects' hours, scaled."""
    mse_without: float
    """The same if the cause is removed from the past."""

    def lines(self) -> list[str]:
        """Return the report for people."""
        return [
            f"{self.events} forecasts of a rise of `response` whose cause, a spike of `signal`, is in the past",
            f"attention is largest at the cause in   {self.at_cause:.1%}   (by chance {1 / self.keys:.1%})",
            f"mean weight at the cause               {self.mass:.1%}",
            f"without an event, largest there in     {self.at_place:.1%}   of {self.others} forecasts",
            f"squared error at the hours of the rise {self.mse:.3f}   with the spike removed from the past "
            f"{self.mse_without:.3f}",
            f"height of the rise: true {self.rise:.2f}, forecast because of the spike {self.with_cause:.2f}",
        ]


def judge_forecast_attention(
    forecaster: Forecaster, series: TimeSeries, events: Sequence[SeasonalEvent], first: int, last: int
) -> ForecastAttentionReport:
    """Judge attention on all windows of a generated series whose forecast begins between two rows.

    A cause is where the key's steps overlap with the spike. Windows in which an event has its effect at the steps of a
    group are compared with windows that have none there.

    Raises:
        ValueError: If the model does not attend to the past, or no event is in these rows.
    """
    settings = forecaster.settings
    lookback, horizon = settings.lookback, settings.horizon
    futures, pasts = attention_spans(forecaster.model, lookback, horizon)
    if not pasts:
        raise ValueError("the attention of this model is over columns, so it cannot be at the time of a cause")
    group_of = np.searchsorted([end for _, end in futures], np.arange(horizon), side="right")
    cases = []  # row at which the forecast begins, event
    for begin in range(first, last - horizon + 1):
        cases += [
            (begin, event)
            for event in events
            if begin <= event.effect
            and event.effect + len(RISE) <= begin + horizon
            and begin - lookback <= event.cause < begin - len(SPIKE)
        ]
    if not cases:
        raise ValueError(f"no event has its cause and its effect in windows of rows {first:,} to {last:,}")
    scaled = forecaster.field.scaled(series.values)
    begins = np.array([begin for begin, _ in cases])
    outputs, weights = _run(forecaster, scaled, begins)
    causes = [_keys_of(pasts, event.cause - begin + lookback) for begin, event in cases]
    groups = [int(group_of[event.effect + _PEAK - begin]) for begin, event in cases]
    chosen = np.stack([weights[number, group, RESPONSE] for number, group in enumerate(groups)])
    hits = [int(row.argmax()) in keys for row, keys in zip(chosen, causes, strict=True)]
    mass = [float(row[list(keys)].sum()) for row, keys in zip(chosen, causes, strict=True)]
    erased = _run(forecaster, scaled, begins, [event for _, event in cases])[0]
    rows = np.array([event.effect - begin for begin, event in cases])[:, None] + np.arange(len(RISE))
    truth = np.stack([scaled[event.effect : event.effect + len(RISE), RESPONSE] for _, event in cases])
    seen, unseen = (np.take_along_axis(y[..., RESPONSE], rows, 1) for y in (outputs, erased))
    quiet = _quiet_peaks(forecaster, scaled, events, list(zip(begins.tolist(), groups, causes, strict=True)), futures)
    height = np.array(forecaster.field.scales)[RESPONSE]
    return ForecastAttentionReport(
        events=len(cases),
        at_cause=float(np.mean(hits)),
        mass=float(np.mean(mass)),
        others=len(quiet),
        at_place=float(np.mean(quiet)) if quiet else float("nan"),
        keys=len(pasts),
        rise=RISE_HEIGHT * RISE[_PEAK] / float(height),
        with_cause=float((seen - unseen)[:, _PEAK].mean()),
        mse=float(((seen - truth) ** 2).mean()),
        mse_without=float(((unseen - truth) ** 2).mean()),
    )


def _keys_of(pasts: Sequence[tuple[int, int]], step: int) -> frozenset[int]:
    """Return the keys whose steps overlap with a spike that begins at a step of the past."""
    return frozenset(key for key, (begin, end) in enumerate(pasts) if begin < step + len(SPIKE) and step < end)


def _run(
    forecaster: Forecaster,
    scaled: NDArray[np.float32],
    begins: NDArray[np.int64],
    removed: Sequence[SeasonalEvent] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return forecasts and attention weights of windows whose future begins at these rows.

    Args:
        forecaster: The forecaster.
        scaled: Scaled rows of the whole series.
        begins: The first rows of the futures.
        removed: For each window, an event whose spike is interpolated away.
    """
    lookback = forecaster.settings.lookback
    pasts = scaled[begins[:, None] - lookback + np.arange(lookback)]
    for number, event in enumerate(removed or ()):
        start = event.cause - int(begins[number]) + lookback
        hours = np.arange(start, start + len(SPIKE))
        ends = [max(start - 1, 0), start + len(SPIKE)]
        pasts[number, hours, SIGNAL] = np.interp(hours, ends, pasts[number, ends, SIGNAL])
    outputs, weights = [], []
    for part in np.array_split(pasts, -(-len(pasts) // BATCH)):
        y, attention = forecast_with_attention(forecaster.model, torch.from_numpy(part).to(forecaster.device))
        outputs.append(y[..., 0].double().cpu().numpy())
        weights.append(attention.double().cpu().numpy())
    return np.concatenate(outputs), np.concatenate(weights)


def _quiet_peaks(
    forecaster: Forecaster,
    scaled: NDArray[np.float32],
    events: Sequence[SeasonalEvent],
    cases: list[tuple[int, int, frozenset[int]]],
    futures: Sequence[tuple[int, int]],
) -> list[bool]:
    """Return whether weights are largest at the place of a cause, in windows without any effect at those steps.

    Each case is moved to an earlier time, at which no effect is at the steps of its group.
    """
    effects = np.array([event.effect for event in events])
    moved = []
    for begin, group, keys in cases:
        first, last = futures[group]
        for shift in (-12, -18, -24, -30):
            away = (effects + len(RISE) <= begin + shift + first) | (effects >= begin + shift + last)
            if away.all() and begin + shift >= forecaster.settings.lookback:
                moved.append((begin + shift, group, keys))
                break
    if not moved:
        return []
    weights = _run(forecaster, scaled, np.array([begin for begin, _, _ in moved]))[1]
    return [int(weights[number, group, RESPONSE].argmax()) in keys for number, (_, group, keys) in enumerate(moved)]
