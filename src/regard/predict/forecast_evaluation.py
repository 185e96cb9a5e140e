"""Errors of forecasters and baselines on all windows of a part of a series."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.build import build_store
from regard.data.cache import cache_folder
from regard.data.fields import Fields, SeriesField
from regard.data.prepare import corpus_name
from regard.data.windows import FIELD, Windows, corpus_part, corpus_windows
from regard.models.forecasting import ForecastingModel
from regard.predict.baselines import Baseline, Values, fit_baselines
from regard.recipe import Corpus, Recipe
from regard.score.forecasting import ForecastErrors

BATCH = 256
"""Windows that are forecast at a time."""


def window_errors(forecast: Callable[[Values], NDArray[np.floating]], windows: Windows) -> ForecastErrors:
    """Return the errors of forecasts of all windows, the last batch included."""
    total = None
    for past, future in _batches(windows):
        errors = ForecastErrors.of(future, forecast(past))
        total = errors if total is None else total + errors
    assert total is not None, "windows are never empty"
    return total


def model_errors(model: ForecastingModel, windows: Windows, quantiles: Sequence[float] = ()) -> ForecastErrors:
    """Return the errors of a model on all windows, and how often the intervals between outer quantiles hold."""
    device = next(model.parameters()).device
    was_training, total = model.training, None
    model.eval()
    for past, future in _batches(windows):
        with torch.no_grad():
            outputs = model(torch.from_numpy(past).to(device)).double().cpu().numpy()
        ranked = np.sort(outputs[..., 1:], -1)
        intervals = {
            name: (ranked[..., low], ranked[..., high]) for name, (low, high) in interval_pairs(quantiles).items()
        }
        errors = ForecastErrors.of(future, outputs[..., 0], intervals)
        total = errors if total is None else total + errors
    model.train(was_training)
    assert total is not None, "windows are never empty"
    return total


def interval_pairs(quantiles: Sequence[float]) -> dict[str, tuple[int, int]]:
    """Return the intervals between the first and the last quantile, the second and the last but one, and so on.

    Their names are the share of values that they should contain, such as `80 %`.
    """
    pairs = [(low, len(quantiles) - 1 - low) for low in range(len(quantiles) // 2)]
    return {f"{100 * (quantiles[high] - quantiles[low]):.4g} %": (low, high) for low, high in pairs}


def recipe_baselines(recipe: Recipe, field: SeriesField) -> tuple[Baseline, ...]:
    """Return the baselines fitted to the training data of a recipe, scaled as for a model."""
    settings, valid = recipe.forecasting, recipe.data.valid
    training = [_scaled_part(recipe, corpus, field, 0) for corpus in recipe.data.train]
    checked = None if valid is None else _scaled_part(recipe, valid, field, settings.lookback)
    return fit_baselines(training, settings.lookback, settings.horizon, field.step.seasons, checked)


def _scaled_part(recipe: Recipe, corpus: Corpus, field: SeriesField, before: int) -> NDArray[np.float32]:
    """Return the scaled rows of the part of a corpus, with some rows before them."""
    series, first, last = corpus_part(recipe, corpus)
    return field.scaled(series.values[max(first - before, 0) : last])


def _batches(windows: Windows) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Yield past and future of windows, `BATCH` at a time."""
    for start in range(0, len(windows), BATCH):
        rows = windows.gather(np.arange(start, min(start + BATCH, len(windows))))[FIELD]
        values = rows.ids.reshape(len(rows), -1, windows.columns)
        yield values[:, : windows.lookback], values[:, windows.lookback :]


def open_windows(recipe: Recipe, field: SeriesField) -> tuple[str, Windows]:
    """Return the name and the windows of a recipe's test part, or of its validation part if it has no other.

    Raises:
        ValueError: If the recipe has neither.
    """
    corpus = recipe.data.test or recipe.data.valid
    if corpus is None:
        raise ValueError("the recipe has neither data.test nor data.valid; train with one of them")
    store = build_store(corpus, recipe.data, Fields({FIELD: field}), cache=cache_folder(), drop=(), seed=recipe.seed)
    return corpus_name(corpus), corpus_windows(recipe, corpus, store)
