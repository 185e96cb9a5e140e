"""`regard demo --task forecasting`: forecasts of a generated series, and attention judged by the known causes."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from regard.cli.demo import DemoOptions, print_heading, train_model
from regard.cli.demo_tasks import print_report
from regard.cli.score import print_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.data.seasonal import SeasonalEvent
    from regard.data.series import TimeSeries
    from regard.predict import Forecaster
    from regard.recipe import Recipe
    from regard.train.events import Finished

FIGURE, TABLE = "forecast.png", "seasonal.csv"


def demo_forecasting(recipe: "Recipe", folder: Path, options: DemoOptions) -> None:
    """Train a forecaster on a generated series; print its errors beside those of baselines, and judge its attention."""
    from regard.analysis.forecast_attention import judge_forecast_attention
    from regard.data.seasonal import DELAY, seasonal_events
    from regard.data.series import part_rows, seasonal_series
    from regard.plot import save
    from regard.recipe import SeasonalCorpus
    from regard.tasks import load_forecaster
    from regard.train.report.html_report import ReportNote, write_report

    corpus = recipe.data.test
    if not isinstance(corpus, SeasonalCorpus):
        raise ValueError("the demo judges attention on the generated series; leave data.test as it is")
    series, events = seasonal_series(corpus.rows, recipe.seed), seasonal_events(corpus.rows, recipe.seed)
    print_heading("1. Data: a generated hourly series with trend, seasons and events")
    typer.echo(f"  {len(series):,} hours of {', '.join(series.columns)} from {series.dates(0, 1)[0]}")
    typer.echo(
        f"  `response` rises {DELAY} hours after each of the {len(events)} spikes of `signal`; spikes of `other`"
    )
    typer.echo("  cause nothing")
    finished = train_model(recipe, folder, options.again, options.plain, "2. Training a forecaster with attention")
    print_heading("3. Errors on the last part of the series, beside baselines")
    _print_scores(finished)
    forecaster = load_forecaster(folder)
    notes = []
    first, last = part_rows(corpus.part, series)
    figure = _figure(forecaster, series, events, first, last)
    save(figure, folder / FIGURE, dpi=120)
    if forecaster.attends:
        print_heading("4. Attention, judged by the known causes")
        lines = judge_forecast_attention(forecaster, series, events, first, last).lines()
        typer.echo("\n".join(f"  {line}" for line in lines))
        notes.append(ReportNote("Attention, judged", "\n".join(lines), figure, "A forecast and its attention weights"))
    (folder / TABLE).write_text(_as_csv(series), encoding="utf-8")
    print_report(folder, *write_report(folder, notes=notes))
    typer.echo(f"  a figure of one forecast: {folder / FIGURE}")
    typer.echo(f"  regard forecast {folder} {folder / TABLE}")
    typer.echo(f"  regard evaluate {folder}")


def _print_scores(finished: "Finished") -> None:
    """Print MSE and MAE of the model and the baselines."""
    values = {score["name"]: score["value"] for score in finished.scores["test"]["scores"]}
    systems = [name.removesuffix(" MSE") for name in values if name.endswith(" MSE")]
    rows = [("the model", f"{values['MSE']:.3f}", f"{values['MAE']:.3f}")]
    rows += [(name, f"{values[f'{name} MSE']:.3f}", f"{values[f'{name} MAE']:.3f}") for name in systems]
    print_table(("", "MSE", "MAE"), rows)


def _figure(
    forecaster: "Forecaster", series: "TimeSeries", events: "tuple[SeasonalEvent, ...]", first: int, last: int
) -> "Figure":
    """Draw the forecast of the first event in the middle of a window, with its cause marked."""
    from bisect import bisect_right

    from regard.drawing import forecast_figure

    lookback, horizon = forecaster.settings.lookback, forecaster.settings.horizon
    inside = [event for event in events if first <= event.effect - horizon // 3 and event.effect + horizon <= last]
    begin = inside[0].effect - horizon // 3 if inside else last - horizon
    past = {series.date: series.dates(begin - lookback, begin)}
    past |= dict(zip(series.columns, series.values[begin - lookback : begin].T, strict=True))
    result = forecaster(past, attention=forecaster.attends)
    marks: dict[str, dict[str, list[int]]] = {}
    group = 0
    if inside:
        cause, effect = (row - begin + lookback for row in (inside[0].cause, inside[0].effect))
        marks = {"signal": {"cause": [cause]}, "response": {"cause": [cause], "effect": [effect]}}
        if result.attention is not None:
            ends = [end for _, end in result.attention.futures]
            group = min(bisect_right(ends, effect - lookback + 1), len(ends) - 1)
    truth = series.values[begin : begin + horizon]
    return forecast_figure(result, truth=truth, marks=marks, group=group)


def _as_csv(series: "TimeSeries") -> str:
    """Return the series as a table, to try commands with."""
    rows = [",".join([series.date, *series.columns])]
    rows += [
        f"{date},{','.join(f'{value:.4f}' for value in values)}"
        for date, values in zip(series.dates(), series.values.tolist(), strict=True)
    ]
    return "\n".join(rows) + "\n"
