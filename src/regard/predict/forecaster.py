"""Forecasts of series by a trained model: the next rows of a table, in its own units and with their dates."""

import csv
import io
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.bundle import Bundle
from regard.data.fields import SeriesField
from regard.data.series import TimeSeries, as_series, read_series
from regard.data.windows import FIELD
from regard.models.forecasting import ForecastingModel, LstmForecaster, PatchForecaster
from regard.predict.forecast_attention import PastAttention, attention_spans, forecast_with_attention
from regard.predict.forward_pass import plain_precision
from regard.recipe import Forecasting

_log = logging.getLogger("regard")

MOST_STEPS = 1_000_000
"""Maximum horizon of one call."""
SeriesData = str | Path | Mapping[str, Any] | NDArray[Any]
"""The path of a CSV file, columns by name, or an array of rows by columns."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """The next rows of a series."""

    columns: tuple[str, ...]
    date: str
    """Name of the column with the dates."""
    dates: tuple[str, ...]
    """The dates after the last row; `+1`, `+2`, … for an array, which has none."""
    values: NDArray[np.float64]
    """Rows by columns, in the units of the table."""
    quantiles: Mapping[float, NDArray[np.float64]]
    """Rows by columns of each quantile that the model has learned."""
    past_dates: tuple[str, ...] = field(repr=False)
    """The dates of the rows that the model has read."""
    past: NDArray[np.float64] = field(repr=False)
    """Those rows."""
    attention: PastAttention | None = field(default=None, repr=False)
    """Attention weights of the first steps, if they were asked for."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.dates)

    def __getitem__(self, column: str) -> NDArray[np.float64]:
        """Return the forecast of a column."""
        if column not in self.columns:
            raise KeyError(f"there is no column {column!r}; the forecast has {', '.join(self.columns)}")
        return self.values[:, self.columns.index(column)]

    @property
    def levels(self) -> dict[str, float]:
        """The quantiles, by the ending of their columns in a table: the outer two are `lower` and `upper`."""
        levels = list(self.quantiles)
        if len(levels) < 2:
            return {f"q{level:g}": level for level in levels}
        inner = {f"q{level:g}": level for level in levels[1:-1]}
        return {"lower": levels[0], **inner, "upper": levels[-1]}

    def table(self) -> dict[str, list[Any]]:
        """Return the forecast as columns, with those of quantiles beside each."""
        table: dict[str, list[Any]] = {self.date: list(self.dates)}
        for number, column in enumerate(self.columns):
            table[column] = self.values[:, number].tolist()
            for ending, level in self.levels.items():
                table[f"{column}_{ending}"] = self.quantiles[level][:, number].tolist()
        return table

    def to_csv(self) -> str:
        """Return the forecast as CSV, with seven significant digits."""
        text, table = io.StringIO(), self.table()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(table)
        for row in zip(*table.values(), strict=True):
            writer.writerow([row[0], *(f"{value:.7g}" for value in row[1:])])
        return text.getvalue()

    def to_json(self) -> dict[str, Any]:
        """Return the forecast as a JSON object."""
        result: dict[str, Any] = {"columns": list(self.columns), "forecast": self.table()}
        if self.attention is not None:
            result["attention"] = self.attention.to_json()
        return result


class Forecaster:
    """A trained model that forecasts all columns of a series.

    >>> forecaster = regard.load("runs/etth1")
    >>> forecast = forecaster("ETTh1.csv.gz")
    >>> forecast.dates[0], forecast["HUFL"][0]
    ('2018-06-26 20:00:00', 9.7)
    """

    def __init__(
        self, model: ForecastingModel, series: SeriesField, settings: Forecasting, precision: str = "float32"
    ) -> None:
        """Forecast with a model as it is now.

        Args:
            model: The model.
            series: The field of the series, which scales values.
            settings: The `[forecasting]` section of its recipe.
            precision: Precision of matrix products: `float32` or `bfloat16`.
        """
        self.model, self.field, self.settings, self.precision = model, series, settings, precision

    @classmethod
    def from_bundle(cls, bundle: Bundle, precision: str = "auto") -> "Forecaster":
        """Forecast with a trained run, on the device it was loaded to."""
        series, model = bundle.fields[FIELD], bundle.model
        assert isinstance(series, SeriesField)
        device = next(model.parameters()).device
        return cls(model, series, bundle.recipe.forecasting, plain_precision(precision, device))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that it forecasts."""
        return self.field.columns

    @property
    def attends(self) -> bool:
        """Whether the model has attention weights over the past."""
        return isinstance(self.model.family, PatchForecaster | LstmForecaster)

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return next(self.model.parameters()).device

    def __call__(self, data: SeriesData, *, horizon: int | None = None, attention: bool = False) -> Forecast:
        """Forecast the rows after the last one.

        Args:
            data: A CSV file with the columns of the training data, as a path; columns by name, dates among them; or an
                array of rows by columns, without dates.
            horizon: Number of rows; default: that of the training. Beyond it, the forecast is continued from itself,
                and intervals are too narrow there.
            attention: Whether to return attention weights, too.

        Raises:
            ValueError: If the data are wrong or too short, or the model has no attention.
        """
        steps = self.settings.horizon if horizon is None else horizon
        if not 1 <= steps <= MOST_STEPS:
            raise ValueError(f"a horizon is 1 to {MOST_STEPS:,} steps, not {steps}")
        if isinstance(data, np.ndarray):
            return self._from_array(data, steps, attention)
        series = self.read(data)
        past = self._last_rows(series.values, series.name)
        dates, past_dates = series.next_dates(steps), series.dates(len(series) - len(past))
        return self._forecast(past, series.date, dates, past_dates, attention)

    def read(self, data: str | Path | Mapping[str, Any]) -> TimeSeries:
        """Return a table as a series with the columns of the training data."""
        if isinstance(data, Mapping):
            series = as_series(data, self.field.date, self.columns)
        else:
            series = read_series(Path(data), self.field.date, self.columns)
        if series.step != self.field.step:
            _log.warning(
                "%s has steps of %s, and the model was trained on steps of %s",
                series.name,
                series.step,
                self.field.step,
            )
        return series

    def _from_array(self, values: NDArray[Any], steps: int, attention: bool) -> Forecast:
        if values.ndim != 2 or values.shape[1] != len(self.columns) or not np.isfinite(values).all():
            raise ValueError(
                f"an array of finite numbers with {len(self.columns)} columns is needed, {', '.join(self.columns)}; "
                f"got the shape {values.shape}"
            )
        past = self._last_rows(values.astype(np.float64), "the array")
        past_dates = [f"{number - len(past) + 1:+d}" for number in range(len(past))]
        return self._forecast(past, "step", [f"+{step}" for step in range(1, steps + 1)], past_dates, attention)

    def _last_rows(self, values: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        lookback = self.settings.lookback
        if len(values) < lookback:
            raise ValueError(f"{name} has {len(values):,} rows, and the model reads {lookback:,}; give a longer past")
        return values[-lookback:]

    def _forecast(
        self, past: NDArray[np.float64], date: str, dates: list[str], past_dates: list[str], attention: bool
    ) -> Forecast:
        """Forecast the rows after some rows, as often as it takes to reach all dates."""
        steps, lookback = len(dates), self.settings.lookback
        spans = attention_spans(self.model, lookback, self.settings.horizon) if attention else None
        weights = None
        if steps > self.settings.horizon and self.settings.quantiles:
            _log.warning("intervals beyond the %d steps of the training are too narrow", self.settings.horizon)
        rows = torch.from_numpy(self.field.scaled(past)).to(self.device)
        outputs: list[NDArray[np.float64]] = []
        half = torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16")
        for begin in range(0, steps, self.settings.horizon):
            with torch.no_grad(), half:
                if attention and begin == 0:
                    y_BHCO, weights = forecast_with_attention(self.model, rows[None, -lookback:])
                else:
                    y_BHCO = self.model(rows[None, -lookback:])
            rows = torch.cat([rows, y_BHCO[0, ..., 0]])[-lookback:]
            outputs.append(y_BHCO[0].double().cpu().numpy())
        y_HCO = np.concatenate(outputs)[:steps]
        ranked = np.sort(y_HCO[..., 1:], -1)
        levels: Sequence[float] = self.settings.quantiles
        quantiles = {level: self.field.unscaled(ranked[..., number]) for number, level in enumerate(levels)}
        seen = None
        if spans is not None and weights is not None:
            seen = PastAttention(weights[0].double().cpu().numpy(), *spans, self.columns)
        values = self.field.unscaled(y_HCO[..., 0])
        return Forecast(self.columns, date, tuple(dates), values, quantiles, tuple(past_dates), past, seen)
