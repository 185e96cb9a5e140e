"""The cost of a training, estimated before it starts; and the settings of the paper's recipes."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.data.prepare import prepare
from regard.recipe import Recipe, Transformer, load
from regard.tasks import make_task
from regard.train.estimate import estimate_cost
from regard.train.schedule import learning_rate, resolve

ROOT = Path(__file__).resolve().parents[2]
Make = Callable[..., Recipe]


def test_available_data_are_counted(tiny: Make) -> None:
    estimate = estimate_cost(tiny(), "cpu")
    assert estimate.missing == ""
    assert estimate.vocabulary == {"source": 320, "target": 320}
    (store,) = prepare(tiny(), make_task(tiny()), Path("unused")).stores
    tokens = sum(len(store.gather(np.array([pair]))["target"].ids) + 1 for pair in range(len(store)))
    assert estimate.epochs == pytest.approx(6 * estimate.tokens_per_step / tokens)
    assert estimate.tokens_per_step <= 512
    assert estimate.flops == pytest.approx(estimate.flops_per_token * estimate.steps * estimate.tokens_per_step)


def test_missing_data_are_reported(tiny: Make) -> None:
    estimate = estimate_cost(tiny("data.train=[{source='no.en', target='no.de'}]"), "cpu")
    assert "no.en does not exist" in str(estimate)
    assert estimate.epochs is None


def test_small_numbers_are_printed_in_small_units(tiny: Make) -> None:
    printed = str(estimate_cost(tiny(), "cpu"))
    assert "model       10.8 k parameters" in printed
    assert " k" in printed.partition("a checkpoint takes")[2]
    assert "0 MFLOP" not in printed


def test_an_estimate_has_as_many_steps_as_the_time_allows(tiny: Make) -> None:
    recipe = tiny("train.minutes=2.0").model_copy()
    unset = recipe.model_copy(update={"train": recipe.train.model_copy(update={"steps": None})})
    estimate = estimate_cost(unset, "cpu")
    assert estimate.steps > 1000
    assert estimate.seconds <= 120
    assert estimate_cost(recipe, "cpu").steps == 6


def test_a_device_that_cannot_train_is_refused(tiny: Make) -> None:
    with pytest.raises(ValueError, match="training does not run on 'meta'; use cpu"):
        estimate_cost(tiny(), "meta")


@pytest.mark.parametrize(
    ("name", "millions", "steps", "width", "average"),
    [("wmt14-base", 63.1, 100_000, 512, 5), ("wmt14-big", 214.2, 300_000, 1024, 20)],
)
def test_the_recipes_of_the_paper_have_its_settings(
    name: str, millions: float, steps: int, width: int, average: int
) -> None:
    recipe = load(ROOT / "recipes" / f"{name}.toml")
    estimate = estimate_cost(recipe, "cpu")
    settings = resolve(recipe, steps)
    assert estimate.parameters / 1e6 == pytest.approx(millions, abs=0.05)
    assert estimate.steps == steps
    assert settings.tokens == 25_000
    assert settings.average == average
    # §5.3: d^-0.5 · min(step^-0.5, step · warmup^-1.5)
    for step in (1, 2000, 4000, steps):
        assert learning_rate(settings, step) == pytest.approx(
            width**-0.5 * min(step**-0.5, step * 4000**-1.5), rel=1e-6
        )
    assert isinstance(recipe.model, Transformer)
    assert not recipe.model.norm_first


def test_flops_per_token_are_about_six_times_the_parameters() -> None:
    """Six operations for each parameter, and a few for attention (Kaplan et al. 2020, §2.1)."""
    estimate = estimate_cost(load(ROOT / "recipes" / "wmt14-base.toml"), "cpu")
    assert estimate.flops_per_token == pytest.approx(6 * estimate.parameters, rel=0.05)


def test_the_command_prints_the_estimate_and_trains_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text('[data]\ntrain = [{ to = "de", pairs = 300 }]\n[text]\nsize = 320\n')
    result = CliRunner().invoke(app, ["train", "small.toml", "--dry-run", "--json", "--device", "cpu"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["steps"] == 1000
    assert not (tmp_path / "runs").exists()
