"""`regard evaluate` for forecasters: errors by step and column, beside those of baselines."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli.score import print_table

if TYPE_CHECKING:
    from regard.score.forecasting import ForecastErrors

MODEL = "model"


def evaluate_forecasts(run: str, output: str | None, as_json: bool, device: str, precision: str) -> None:
    """Forecast all windows of the test part with a run, and print its errors; see `regard evaluate`."""
    from regard.predict.forecast_evaluation import (
        interval_pairs,
        model_errors,
        open_windows,
        recipe_baselines,
        window_errors,
    )
    from regard.score.forecasting import horizon_bands
    from regard.tasks import load_bundle, load_forecaster

    forecaster = load_forecaster(run, device, precision)
    recipe = load_bundle(run).recipe
    name, windows = open_windows(recipe, forecaster.field)
    errors = {MODEL: model_errors(forecaster.model, windows, recipe.forecasting.quantiles)}
    for baseline in recipe_baselines(recipe, forecaster.field):
        errors[baseline.name] = window_errors(baseline.forecast, windows)
    bands = horizon_bands(recipe.forecasting.horizon)
    intervals = list(interval_pairs(recipe.forecasting.quantiles))
    text = _as_json(name, errors, forecaster.columns, bands, intervals)
    if output:
        Path(output).write_text(text + "\n", encoding="utf-8")
    if as_json:
        typer.echo(text)
        return
    first, last = windows.first, windows.last
    typer.echo(
        f"{len(windows):,} windows of rows {first:,} to {last:,} of {name}, values scaled by the training part\n"
    )
    print_table(("MSE, MAE", *errors), [("all", *map(_pair, errors.values()))])
    typer.echo()
    steps = {system: error.by_step(bands) for system, error in errors.items()}
    rows = [
        (f"{begin + 1}–{end}", *(f"{pairs[number][0]:.3f}, {pairs[number][1]:.3f}" for pairs in steps.values()))
        for number, (begin, end) in enumerate(bands)
    ]
    print_table(("steps", *errors), rows)
    typer.echo()
    columns = {system: error.by_column() for system, error in errors.items()}
    rows = [
        (column, *(f"{pairs[number][0]:.3f}, {pairs[number][1]:.3f}" for pairs in columns.values()))
        for number, column in enumerate(forecaster.columns)
    ]
    print_table(("column", *errors), rows)
    for interval in intervals:
        typer.echo(f"\nintervals for {interval} contain {errors[MODEL].coverage(interval):.1%} of the values")


def _pair(errors: "ForecastErrors") -> str:
    return f"{errors.mse:.4f}, {errors.mae:.4f}"


def _as_json(
    name: str,
    errors: "dict[str, ForecastErrors]",
    columns: tuple[str, ...],
    bands: list[tuple[int, int]],
    intervals: list[str],
) -> str:
    """Return all errors as JSON."""

    def named(pairs: list[tuple[float, float]], names: list[str]) -> dict[str, Any]:
        return {name: {"mse": mse, "mae": mae} for name, (mse, mae) in zip(names, pairs, strict=True)}

    table = {
        "data": name,
        "windows": errors[MODEL].windows,
        "systems": {
            system: {
                "scores": [asdict(score) for score in error.scores("" if system == MODEL else system)],
                "steps": named(error.by_step(bands), [f"{begin + 1}-{end}" for begin, end in bands]),
                "columns": named(error.by_column(), list(columns)),
            }
            for system, error in errors.items()
        },
        "coverage": {interval: errors[MODEL].coverage(interval) for interval in intervals},
    }
    return json.dumps(table, ensure_ascii=False, indent=2)
