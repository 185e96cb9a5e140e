"""What training would cost, counted before it begins; the paper's recipes held to the paper."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.data.prepare import gather
from regard.recipe import Recipe, Transformer, load
from regard.train.outlook import look_ahead
from regard.train.schedule import rate

ROOT = Path(__file__).resolve().parents[2]
Make = Callable[..., Recipe]


def test_text_that_is_there_is_counted(tiny: Make) -> None:
    outlook = look_ahead(tiny(), "cpu")
    assert outlook.missing == ""
    assert outlook.vocabulary == (320, 320)
    (store,) = gather(tiny(), Path("unused")).stores
    tokens = sum(len(store.gather(np.array([pair]))[2]) + 1 for pair in range(len(store)))
    assert outlook.epochs == pytest.approx(6 * outlook.tokens_per_step / tokens)
    assert outlook.tokens_per_step <= 512
    assert outlook.flops == pytest.approx(outlook.flops_per_token * outlook.steps * outlook.tokens_per_step)


def test_text_that_is_missing_is_said_to_be(tiny: Make) -> None:
    outlook = look_ahead(tiny("data.train=[{source='no.en', target='no.de'}]"), "cpu")
    assert "no.en does not exist" in str(outlook)
    assert outlook.epochs is None


def test_small_numbers_are_told_in_small_units(tiny: Make) -> None:
    told = str(look_ahead(tiny(), "cpu"))
    assert "model       10.8 k parameters" in told
    assert " k" in told.partition("a checkpoint takes")[2]
    assert "0 MFLOP" not in told


def test_a_device_that_nothing_learns_on_is_refused(tiny: Make) -> None:
    with pytest.raises(ValueError, match="training does not run on 'meta'; say cpu"):
        look_ahead(tiny(), "meta")


@pytest.mark.parametrize(
    ("name", "millions", "steps", "width", "average"),
    [("wmt14-base", 63.1, 100_000, 512, 5), ("wmt14-big", 214.2, 300_000, 1024, 20)],
)
def test_the_papers_recipes_are_the_papers(name: str, millions: float, steps: int, width: int, average: int) -> None:
    recipe = load(ROOT / "recipes" / f"{name}.toml")
    outlook = look_ahead(recipe, "cpu")
    settings = recipe.train
    assert outlook.parameters / 1e6 == pytest.approx(millions, abs=0.05)
    assert outlook.steps == steps
    assert settings.tokens == 25_000
    assert settings.average == average
    # §5.3: d^-0.5 · min(step^-0.5, step · warmup^-1.5)
    for step in (1, 2000, 4000, steps):
        assert rate(settings, step) == pytest.approx(width**-0.5 * min(step**-0.5, step * 4000**-1.5), rel=1e-6)
    assert isinstance(recipe.model, Transformer)
    assert not recipe.model.norm_first


def test_the_operations_are_those_that_matrices_need() -> None:
    """Six for each weight a token meets, and a few for attention: Kaplan et al. 2020, §2.1."""
    outlook = look_ahead(load(ROOT / "recipes" / "wmt14-base.toml"), "cpu")
    assert outlook.flops_per_token == pytest.approx(6 * outlook.parameters, rel=0.05)


def test_the_command_prints_it_and_trains_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text('[data]\ntrain = [{ to = "de", pairs = 300 }]\n[text]\nsize = 320\n')
    said = CliRunner().invoke(app, ["train", "small.toml", "--dry-run", "--json", "--device", "cpu"])
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)["steps"] == 8000
    assert not (tmp_path / "runs").exists()
