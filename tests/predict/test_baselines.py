"""Baselines of forecasts against numpy, and the errors that they are compared by."""

import numpy as np
import pytest
from numpy.typing import NDArray

from regard.predict.baselines import SeasonalNaive, find_period, fit_baselines, fit_linear
from regard.score.forecasting import ForecastErrors, horizon_bands

LOOKBACK, HORIZON = 6, 3
DRAW = np.random.default_rng(1)


def walk(rows: int, columns: int = 2) -> NDArray[np.float64]:
    return np.cumsum(np.random.default_rng(rows).normal(size=(rows, columns)), 0)


def samples(parts: list[NDArray[np.float64]], relative: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return inputs and targets of all windows, one by one."""
    x, y = [], []
    for part in parts:
        for start in range(len(part) - LOOKBACK - HORIZON + 1):
            for column in range(part.shape[1]):
                window = part[start : start + LOOKBACK + HORIZON, column]
                window = window - window[LOOKBACK - 1] if relative else window
                x.append([*window[:LOOKBACK], 1.0])
                y.append(window[LOOKBACK:])
    return np.array(x), np.array(y)


@pytest.mark.parametrize(("relative", "kernel"), [(True, 0), (False, 0), (False, 3)])
def test_a_regression_with_hardly_any_penalty_is_that_of_numpy(relative: bool, kernel: int) -> None:
    parts = [walk(60), walk(45)]
    fitted = fit_linear("linear", parts, LOOKBACK, HORIZON, relative=relative, kernel=kernel, penalties=[1e-13])
    x, y = samples(parts, relative)
    expected = np.linalg.lstsq(x, y, rcond=None)[0]
    past = walk(30)[None, :LOOKBACK]
    last = past[:, -1:] if relative else 0.0
    forecast = np.moveaxis(np.moveaxis(past - last, 1, 2) @ expected[:-1] + expected[-1], 2, 1) + last
    np.testing.assert_allclose(fitted.forecast(past), forecast, rtol=1e-4, atol=1e-5)


def test_the_penalty_is_the_one_with_the_smallest_error_on_the_validation_data() -> None:
    training, valid = walk(40), walk(200)
    penalties = [1e-9, 1e-2, 1e2]

    def error(penalty: float) -> float:
        fitted = fit_linear("linear", [training], LOOKBACK, HORIZON, relative=True, penalties=[penalty])
        x, y = samples([valid], relative=True)
        return float(((x[:, :-1] @ fitted.weights.T + fitted.bias - y) ** 2).sum())

    best = min(penalties, key=error)
    chosen = fit_linear("linear", [training], LOOKBACK, HORIZON, valid, relative=True, penalties=penalties)
    alone = fit_linear("linear", [training], LOOKBACK, HORIZON, relative=True, penalties=[best])
    np.testing.assert_allclose(chosen.weights, alone.weights)


def test_seasonal_naive_repeats_the_last_season() -> None:
    past = np.arange(10.0)[None, :, None]
    assert SeasonalNaive(4, 7).forecast(past)[0, :, 0].tolist() == [6, 7, 8, 9, 6, 7, 8]
    assert SeasonalNaive(1, 3).forecast(past)[0, :, 0].tolist() == [9, 9, 9]


def test_the_season_is_found_by_autocorrelation() -> None:
    steps = np.arange(400)
    daily = np.sin(2 * np.pi * steps / 24)[:, None] + 0.1 * DRAW.normal(size=(400, 1))
    assert find_period(daily, 100, [24, 168]) == 24
    assert find_period(daily, 100) in (24, 48, 72, 96)
    assert find_period(daily, 20, [24]) == 1  # the season is longer than the look-back
    assert find_period(np.zeros((50, 2)), 10, [7]) == 1
    assert find_period(DRAW.normal(size=(5000, 1)), 30, [7]) == 1


def test_baselines_of_a_constant_series_forecast_the_constant() -> None:
    constant = np.full((60, 2), 3.0)
    for baseline in fit_baselines([constant], LOOKBACK, HORIZON, [4], constant):
        np.testing.assert_allclose(baseline.forecast(constant[None, :LOOKBACK]), 3.0, atol=1e-5)


def test_errors_are_the_means_of_numpy_and_add_up() -> None:
    truth, forecast = DRAW.normal(size=(2, 11, 5, 3))
    low, high = forecast - 1, forecast + 1
    parts = [
        ForecastErrors.of(truth[part], forecast[part], {"x": (low[part], high[part])})
        for part in (slice(0, 4), slice(4, 11))
    ]
    errors, error = parts[0] + parts[1], forecast - truth
    assert errors.mse == pytest.approx((error**2).mean())
    assert errors.mae == pytest.approx(np.abs(error).mean())
    assert errors.coverage("x") == pytest.approx((np.abs(error) <= 1).mean())
    np.testing.assert_allclose(errors.by_column(), np.stack([(error**2).mean((0, 1)), np.abs(error).mean((0, 1))], 1))
    bands = horizon_bands(5, 2)
    assert bands == [(0, 2), (2, 5)]
    np.testing.assert_allclose(errors.by_step(bands)[1], [(error[:, 2:] ** 2).mean(), np.abs(error[:, 2:]).mean()])
    mse, mae = errors.scores("NLinear")
    assert (mse.name, mae.value, mse.higher_is_better) == ("NLinear MSE", errors.mae, False)


def test_bands_divide_any_horizon() -> None:
    for horizon in range(1, 30):
        bands = horizon_bands(horizon)
        assert [first for first, _ in bands[1:]] == [end for _, end in bands[:-1]]
        assert (bands[0][0], bands[-1][1]) == (0, horizon)
