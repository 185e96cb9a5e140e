"""Attention of forecasts, judged by the known causes of a generated series."""

import numpy as np
import pytest
import torch

from regard import recipe
from regard.analysis.forecast_attention import judge_forecast_attention
from regard.data.fields import SeriesField
from regard.data.seasonal import DELAY, RESPONSE, RISE, SIGNAL, SPIKE, seasonal_events
from regard.data.series import seasonal_series
from regard.models.forecasting import LstmForecaster, build_forecasting_model
from regard.predict.forecast_attention import forecast_with_attention
from regard.predict.forecaster import Forecaster

ROWS, FIRST, LAST, LOOKBACK, HORIZON, PATCH = 700, 500, 640, 48, 16, 4
TASK = recipe.Forecasting(lookback=LOOKBACK, horizon=HORIZON)


def make_forecaster(kind: str = "lstm") -> Forecaster:
    torch.manual_seed(1)
    settings = recipe.LstmAttention(width=8, patch=PATCH) if kind == "lstm" else recipe.InvertedTransformer(width=8)
    model = build_forecasting_model(settings, TASK, 3).eval()
    return Forecaster(model, SeriesField.learn([(seasonal_series(ROWS), 0, FIRST)]), TASK)


def test_the_report_is_that_of_a_loop_over_windows_and_events() -> None:
    forecaster, series, events = make_forecaster(), seasonal_series(ROWS), seasonal_events(ROWS)
    family = forecaster.model.family
    assert isinstance(family, LstmForecaster)
    with torch.no_grad():  # sharp weights, so that some are at a cause
        family.positions_PD.normal_(std=6.0)
    scaled, hits, mass = forecaster.field.scaled(series.values), [], []
    for begin in range(FIRST, LAST - HORIZON + 1):
        for event in events:
            inside = begin <= event.effect and event.effect + len(RISE) <= begin + HORIZON
            if not inside or not begin - LOOKBACK <= event.cause < begin - len(SPIKE):
                continue
            past = torch.from_numpy(scaled[None, begin - LOOKBACK : begin])
            weights = forecast_with_attention(forecaster.model, past)[1]
            row = weights[0, (event.effect + 1 - begin) // PATCH, RESPONSE].numpy()
            steps = {(event.cause + hour - begin + LOOKBACK) // PATCH for hour in range(len(SPIKE))}
            hits.append(int(row.argmax()) in steps)
            mass.append(sum(row[step] for step in steps))
    report = judge_forecast_attention(forecaster, series, events, FIRST, LAST)
    assert report.events == len(hits) > 0
    assert report.at_cause == pytest.approx(np.mean(hits))
    assert report.mass == pytest.approx(np.mean(mass), rel=1e-5)
    assert report.keys == LOOKBACK // PATCH
    assert report.mse != report.mse_without
    assert len(report.lines()) == 6


def test_a_model_that_attends_to_the_delay_is_at_the_cause_with_and_without_an_event() -> None:
    forecaster, series, events = make_forecaster(), seasonal_series(ROWS), seasonal_events(ROWS)
    family = forecaster.model.family
    assert isinstance(family, LstmForecaster)
    with torch.no_grad():
        for weight in (family.query.weight, family.query.bias, family.key.weight, family.key.bias):
            weight.zero_()
        family.positions_PD.copy_(8 * torch.randn(family.patches, 8).sign())
        for group in range(family.groups):  # the middle of the group, `DELAY` hours before
            family.targets_GCD[group] = 8 * family.positions_PD[(LOOKBACK + PATCH * group - DELAY) // PATCH]
    report = judge_forecast_attention(forecaster, series, events, FIRST, LAST)
    assert report.at_cause > 0.7
    assert report.mass > 0.7
    assert report.others > 0
    assert report.at_place > 0.7


def test_attention_over_columns_or_rows_without_events_cannot_be_judged() -> None:
    series, events = seasonal_series(ROWS), seasonal_events(ROWS)
    with pytest.raises(ValueError, match="is over columns"):
        judge_forecast_attention(make_forecaster("inverted"), series, events, FIRST, LAST)
    with pytest.raises(ValueError, match="no event has its cause"):
        judge_forecast_attention(make_forecaster(), series, (), FIRST, LAST)


def test_a_spike_of_the_signal_is_what_a_cause_is() -> None:
    values, events = seasonal_series(ROWS).values, seasonal_events(ROWS)
    rises = [values[event.cause, SIGNAL] - values[event.cause - 1, SIGNAL] for event in events]
    assert min(rises) > 2.5
