"""Forecasting: batches, loss, training, resuming, evaluation of all windows, and forecasts beyond the end."""

import csv
import io
import json
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from regard.cli import app
from regard.data.batching import in_order
from regard.data.prepare import prepare
from regard.data.windows import Windows
from regard.predict import Forecaster
from regard.predict.forecast_evaluation import model_errors
from regard.recipe import Recipe, parse
from regard.tasks import load_forecaster, load_translator, make_task
from regard.tasks.forecasting import ForecastingTask, WindowBatch
from regard.train.cuda_graphs import GraphRunner, Launch
from regard.train.distributed import WorkerGroup
from regard.train.events import Finished, Validated
from regard.train.loop import train
from regard.train.setup import build_setup
from regard.train.stream import CpuParts, StaticShape

ROWS, LOOKBACK, HORIZON = 420, 24, 8
RECIPE = f"""
name = "waves"
task = "forecasting"
[data]
train = [{{ path = "waves.csv", part = [0, 300] }}]
valid = {{ path = "waves.csv", part = [300, 360] }}
test = {{ path = "waves.csv", part = [360, {ROWS}] }}
[model]
kind = "patch"
size = "tiny"
width = 8
inner = 16
heads = 2
layers = 1
patch = 8
stride = 4
dropout = 0.1
[forecasting]
lookback = {LOOKBACK}
horizon = {HORIZON}
[train]
steps = 8
tokens = 360
every = 4
rate = 5e-3
warmup = 2
schedule = "constant"
precision = "float32"
"""
LSTM = "model={ kind = 'lstm', size = 'tiny', width = 8, patch = 4 }"
Make = Callable[..., Recipe]


def waves() -> np.ndarray:
    """Return two noisy sines, of which the second is large and far from zero."""
    steps = np.arange(ROWS)
    noise = np.random.default_rng(1).normal(0, 0.05, (ROWS, 2))
    return np.stack([np.sin(2 * np.pi * steps / 12), 500 + 40 * np.cos(2 * np.pi * steps / 8)], 1) * (1 + noise * 0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table of hours."""
    folder = tmp_path_factory.mktemp("waves")
    dates = np.datetime64("2024-02-20T00:00") + np.arange(ROWS).astype("timedelta64[h]")
    rows = zip(dates, waves().tolist(), strict=True)
    text = "".join(f"{str(date).replace('T', ' ')},{low},{high}\n" for date, (low, high) in rows)
    (folder / "waves.csv").write_text(f"date,low,high\n{text}", encoding="utf-8")
    return folder


@pytest.fixture
def make(folder: Path, shared_cache: None) -> Make:
    return lambda *overrides: parse(RECIPE, [f"data.root='{folder}'", *overrides])


@pytest.fixture(scope="module")
def run(folder: Path, cache: str) -> Path:
    """The folder of a run with quantiles that has learned the waves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", cache)
        more = ["train.steps=150", "train.every=50", "forecasting.quantiles=[0.1, 0.9]", "model.dropout=0.0"]
        recipe = parse(RECIPE, [f"data.root='{folder}'", *more])
        for _ in train(recipe, folder / "run", "cpu"):
            pass
    return folder / "run"


def batch_of(recipe: Recipe, folder: Path, count: int = 5) -> tuple[ForecastingTask, WindowBatch]:
    task = make_task(recipe)
    assert isinstance(task, ForecastingTask)
    store = prepare(recipe, task, folder).stores[0]
    batch = task.collate(store.gather(np.arange(count)), np.arange(count))
    return task, batch


def test_a_batch_has_past_and_future_of_each_window(make: Make, tmp_path: Path) -> None:
    task, batch = batch_of(make(), tmp_path)
    assert batch.past_BTC.shape == (5, LOOKBACK, 2)
    assert batch.units == 5 * HORIZON * 2
    values = waves()
    scaled = (values - values[:300].mean(0)) / values[:300].std(0)
    np.testing.assert_allclose(batch.past_BTC[3], scaled[3 : 3 + LOOKBACK], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(batch.future_BHC[3], scaled[3 + LOOKBACK : 3 + LOOKBACK + HORIZON], rtol=1e-4, atol=1e-5)
    store = prepare(make(), task, tmp_path).stores[0]
    assert task.units(store.lengths) == len(store) * HORIZON * 2
    assert task.tokens(store.lengths) == len(store) * 12  # six patches of two columns


def test_the_loss_is_that_of_the_formulas(make: Make, tmp_path: Path) -> None:
    for overrides in ((), ("forecasting.loss=mae",), ("forecasting.quantiles=[0.2, 0.7]",)):
        recipe = make(*overrides)
        task, batch = batch_of(recipe, tmp_path)
        torch.manual_seed(1)
        model = task.build({"series": 2}).eval()
        y, truth = model(batch.past_BTC).double(), batch.future_BHC.double()
        error = y[..., 0] - truth
        expected = error.abs().sum() if recipe.forecasting.loss == "mae" else error.square().sum()
        for number, level in enumerate(recipe.forecasting.quantiles):
            below = truth - y[..., 1 + number]
            pinball = torch.where(below >= 0, level * below, (level - 1) * below)
            expected = expected + pinball.sum() / len(recipe.forecasting.quantiles)
        torch.testing.assert_close(task.loss(model, batch).double(), expected, rtol=1e-5, atol=1e-5)
        sums = task.evaluate(model, batch)
        torch.testing.assert_close(
            sums, torch.stack([expected, error.square().sum(), error.abs().sum()]), rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("model", ["model.layers=1", LSTM])
def test_a_resumed_run_ends_with_the_same_bits(make: Make, tmp_path: Path, model: str) -> None:
    list(train(make(model), tmp_path / "one", "cpu"))
    for steps in (3, 8):
        list(train(make(model, f"train.steps={steps}"), tmp_path / "other", "cpu"))
    left, right = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "other"))
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_batches_can_be_split_filled_and_captured(make: Make, tmp_path: Path) -> None:
    recipe = make("forecasting.quantiles=[0.1, 0.9]")
    task = make_task(recipe)
    setup = build_setup(recipe, task, tmp_path, WorkerGroup(torch.device("cpu")), prepare(recipe, task, tmp_path))
    setup.model.eval()
    feed = setup.feed(360)
    batch = next(feed.epoch(0))[0]
    assert len(batch) <= 30
    filled = StaticShape.from_feed(feed).fill(batch)
    assert len(filled) > len(batch)
    torch.testing.assert_close(setup.module(filled), setup.module(batch))
    parts = CpuParts(2, 64).split(batch)
    assert [part.units for part in parts] == [part.batch.units for part in parts]
    assert sum(part.units for part in parts) == batch.units
    torch.testing.assert_close(sum(setup.module(part.batch) for part in parts), setup.module(batch))

    def capture(work: Launch) -> Launch:
        work()
        return work

    graphs = GraphRunner(setup.module, torch.device("cpu"), "float32", capture)
    losses = {float(graphs.run(filled, 1.0).loss) for _ in range(4)}
    assert losses == {float(setup.module(filled).detach())}


def test_evaluation_is_that_of_a_loop_over_every_window(run: Path, make: Make, tmp_path: Path) -> None:
    recipe = make("forecasting.quantiles=[0.1, 0.9]")
    forecaster, task = load_forecaster(run), make_task(recipe)
    data = prepare(recipe, task, tmp_path).test
    assert data is not None
    assert isinstance(data.store, Windows)
    assert len(data.store) == ROWS - 360 - HORIZON + 1
    values = forecaster.field.scaled(waves())
    squared, absolute = [], []
    for begin in range(360, ROWS - HORIZON + 1):
        with torch.no_grad():
            y = forecaster.model(torch.from_numpy(values[None, begin - LOOKBACK : begin]))[0, ..., 0].double().numpy()
        error = y - values[begin : begin + HORIZON]
        squared.append(error**2)
        absolute.append(np.abs(error))
    errors = model_errors(forecaster.model, data.store, (0.1, 0.9))
    assert errors.windows == len(squared)
    assert errors.mse == pytest.approx(np.mean(squared), rel=1e-5)
    assert errors.mae == pytest.approx(np.mean(absolute), rel=1e-5)
    sums = sum(task.evaluate(forecaster.model, batch) for batch in in_order(data.store, task, 360))
    assert float(sums[1]) == pytest.approx(np.sum(squared), rel=1e-5)  # type: ignore[index]
    saved = json.loads((run / "scores.json").read_text())["test"]
    assert saved["mse"] == pytest.approx(errors.mse, rel=1e-4)
    names = [score["name"] for score in saved["scores"]]
    assert names[:3] == ["MSE", "MAE", "seasonal-naive(24) MSE"]
    assert "NLinear MSE" in names
    assert "DLinear MAE" in names


def test_a_model_learns_waves(run: Path, make: Make) -> None:
    scores = json.loads((run / "scores.json").read_text())["test"]
    assert scores["mse"] < 0.1
    forecast = load_forecaster(run)(waves())
    steps = np.arange(ROWS, ROWS + HORIZON)
    np.testing.assert_allclose(forecast["high"], 500 + 40 * np.cos(2 * np.pi * steps / 8), atol=16)


def test_the_validations_report_squared_and_absolute_errors(make: Make, tmp_path: Path) -> None:
    events = list(train(make(), tmp_path / "run", "cpu"))
    validated = [event for event in events if isinstance(event, Validated)]
    assert [sorted(event.metrics) for event in validated] == [["mae", "mse"]] * 2
    assert all(event.perplexity is None for event in validated)
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.scores["valid"]["examples"] == 60 - HORIZON + 1


def test_a_forecast_continues_the_dates_in_the_units_of_the_table(run: Path, folder: Path) -> None:
    forecaster = load_forecaster(run)
    assert isinstance(forecaster, Forecaster)
    forecast = forecaster(folder / "waves.csv", attention=True)
    assert forecast.dates[0] == "2024-03-08 12:00"
    assert len(forecast) == HORIZON
    assert forecast.past.shape == (LOOKBACK, 2)
    assert 400 < forecast["high"].mean() < 600
    lower, upper = forecast.quantiles[0.1], forecast.quantiles[0.9]
    assert (lower <= upper).all()
    assert forecast.attention is not None
    np.testing.assert_allclose(forecast.attention.weights.sum(-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(forecast.attention.over_time(LOOKBACK, 0, 1).sum(), 1.0, rtol=1e-5)
    table = list(csv.reader(io.StringIO(forecast.to_csv())))
    assert table[0] == ["date", "low", "low_lower", "low_upper", "high", "high_lower", "high_upper"]
    assert float(table[1][4]) == pytest.approx(forecast["high"][0], rel=1e-6)
    with pytest.raises(KeyError, match="there is no column 'top'"):
        forecast["top"]


def test_columns_and_arrays_are_forecast_as_a_file(run: Path, folder: Path) -> None:
    forecaster, values = load_forecaster(run), waves()
    from_file = forecaster(folder / "waves.csv")
    dates = [f"2024-03-0{1 + hour // 24} {hour % 24:02}:00" for hour in range(LOOKBACK)]
    columns = {"date": dates, "low": values[-LOOKBACK:, 0], "high": values[-LOOKBACK:, 1]}
    from_columns, from_array = forecaster(columns), forecaster(values)
    for other in (from_columns, from_array):
        np.testing.assert_allclose(other.values, from_file.values, rtol=1e-5)
    assert from_columns.dates[0] == "2024-03-02 00:00"
    assert from_array.dates[:2] == ("+1", "+2")


def test_a_longer_horizon_continues_from_the_forecast_itself(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    forecaster, values = load_forecaster(run), waves()
    first = forecaster(values)
    with caplog.at_level(logging.WARNING, "regard"):
        longer = forecaster(values, horizon=20)
    assert "intervals beyond the 8 steps" in caplog.text
    np.testing.assert_allclose(longer.values[:HORIZON], first.values)
    second = forecaster(np.concatenate([values, first.values]))
    np.testing.assert_allclose(longer.values[HORIZON : 2 * HORIZON], second.values, rtol=1e-4, atol=1e-3)
    assert len(longer) == 20
    np.testing.assert_array_equal(forecaster(values, horizon=3).values, first.values[:3])


def test_wrong_tables_are_refused(run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    forecaster = load_forecaster(run)
    with pytest.raises(ValueError, match="has 10 rows, and the model reads 24"):
        forecaster(waves()[:10])
    with pytest.raises(ValueError, match="2 columns is needed, low, high; got the shape"):
        forecaster(waves()[:, :1])
    with pytest.raises(ValueError, match="a horizon is 1 to"):
        forecaster(waves(), horizon=0)
    (tmp_path / "other.csv").write_text("date,low\n2024-01-01,1\n2024-01-02,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="has no column 'high'; its columns are date, low"):
        forecaster(tmp_path / "other.csv")
    with pytest.raises(ValueError, match="task = 'translation'"):
        load_translator(run)
    days = {"date": [str(np.datetime64("2024-01-01") + day) for day in range(30)]}
    with caplog.at_level(logging.WARNING, "regard"):
        forecaster({**days, "low": waves()[:30, 0], "high": waves()[:30, 1]})
    assert "steps of 1 day, and the model was trained on steps of 1 hour" in caplog.text


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model={ kind = 'transformer' }", "not a model for task = 'forecasting'; choose patch or inverted or lstm"),
        (
            "data.test={ kind = 'tsv', path = 'a.tsv' }",
            "data.test.kind = 'tsv' has no numbers over time; choose series",
        ),
        ("data.train.0.part=[0, 0.5]", "mixes rows, fractions and dates"),
        ("data.train.0.part=[0.5, 0.2]", "fractions rise between 0.0 and 1.0"),
        ("data.train.0.part=[9, 2]", "the second row must come after the first"),
        ("data.block=5", "data.block is for task = 'language_model'"),
        ("forecasting.quantiles=[0.9, 0.1]", "must rise"),
        ("model.heads=3", "does not divide into heads = 3"),
        ("model.stride=9", "leaves steps between patches of 8 unread"),
        ("model={ kind = 'dlinear', kernel = 4 }", "must be odd"),
    ],
)
def test_wrong_recipes_are_refused(make: Make, override: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(override)


def test_a_part_without_room_for_a_window_is_refused(make: Make, tmp_path: Path) -> None:
    recipe = make("data.test.part=[415, 420]")
    with pytest.raises(ValueError, match=r"waves.csv: rows 415 to 420 are too few"):
        list(train(recipe, tmp_path / "run", "cpu"))


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_the_command_prints_csv_or_json(run: Path, folder: Path, tmp_path: Path) -> None:
    text = invoke("forecast", str(run), str(folder / "waves.csv"), "--horizon", "3")
    rows = list(csv.reader(io.StringIO(text)))
    assert [row[0] for row in rows] == ["date", "2024-03-08 12:00", "2024-03-08 13:00", "2024-03-08 14:00"]
    invoke("forecast", str(run), str(folder / "waves.csv"), "--horizon", "3", "-o", str(tmp_path / "out.csv"))
    assert (tmp_path / "out.csv").read_text(encoding="utf-8") == text
    table = json.loads(invoke("forecast", str(run), str(folder / "waves.csv"), "--json", "--attention"))
    assert len(table["forecast"]["low"]) == HORIZON
    assert len(table["attention"]["keys"]) == 6
    with pytest.raises(ValueError, match="--attention prints weights as JSON"):
        invoke("forecast", str(run), str(folder / "waves.csv"), "--attention")


def test_evaluate_prints_errors_by_step_and_column_beside_baselines(
    run: Path, shared_cache: None, tmp_path: Path
) -> None:
    text = invoke("evaluate", str(run), "--output", str(tmp_path / "errors.json"))
    assert "53 windows of rows 360 to 420" in text
    for part in ("seasonal-naive(24)", "NLinear", "DLinear", "1–2", "7–8", "low", "high", "intervals for 80 %"):
        assert part in text
    table = json.loads((tmp_path / "errors.json").read_text(encoding="utf-8"))
    assert set(table["systems"]) == {"model", "seasonal-naive(24)", "NLinear", "DLinear"}
    assert table == json.loads(invoke("evaluate", str(run), "--json"))
    with pytest.raises(ValueError, match="--metric means nothing for a forecaster"):
        invoke("evaluate", str(run), "--metric", "bleu")


def test_a_forecast_is_drawn_with_its_attention(run: Path, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "forecast.png"
    invoke("figure", str(run), str(folder / "waves.csv"), "--kind", "forecast", "-o", str(out))
    assert out.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="a forecaster has no figure of kind alignment; draw one of kind forecast"):
        invoke("figure", str(run), "text", "-o", str(out))
