"""Figures of forecasts: lines, intervals, marks and shades of attention."""

import numpy as np
import pytest

from regard.plot import ForecastPanel, forecast, render

PAST, FUTURE = np.sin(np.arange(12)), np.sin(np.arange(12, 16))
DATES = [f"2024-01-{day:02} 00:00" for day in range(1, 17)]


def test_a_figure_has_a_panel_and_a_strip_for_each_column_with_weights() -> None:
    weights = np.full(12, 1 / 12)
    panel = ForecastPanel(
        "load", PAST, FUTURE, (FUTURE - 1, FUTURE + 1), FUTURE, weights, {"cause": [3], "effect": [13]}
    )
    figure = forecast([panel, ForecastPanel("price", PAST, FUTURE)], DATES, title="Forecast", note="shades: weights")
    assert len(figure.axes) == 4
    upper, strip, *_ = figure.axes
    assert upper.get_ylabel() == "load"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "past", "interval", "truth", "forecast", "cause", "effect",
    ]  # fmt: skip
    (line, *_) = (line for line in upper.lines if line.get_label() == "forecast")
    np.testing.assert_allclose(np.asarray(line.get_xdata(), float), np.arange(12, 16))
    (mesh,) = strip.collections
    shades: np.ndarray = np.ma.filled(np.ma.asarray(mesh.get_array(), float), np.nan).ravel()
    np.testing.assert_allclose(shades[:12], weights)
    assert np.isnan(shades[12:]).all()
    assert render(figure, "png").startswith(b"\x89PNG")


def test_a_figure_without_weights_has_one_panel_for_each_column() -> None:
    figure = forecast([ForecastPanel("load", PAST, FUTURE)], DATES)
    assert len(figure.axes) == 1
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels[0] == "2024-01-01\n00:00"


def test_wrong_input_is_refused() -> None:
    with pytest.raises(ValueError, match="no column to draw"):
        forecast([], DATES)
    with pytest.raises(ValueError, match="has 16 steps, but there are 3 dates"):
        forecast([ForecastPanel("load", PAST, FUTURE)], DATES[:3])
