"""A path names a run, other weights of it, or one of its checkpoints."""

import shutil
from pathlib import Path

import pytest
import torch
from tests.train.conftest import weights
from typer.testing import CliRunner

import regard
from regard.cli import app
from regard.run_path import find_run


@pytest.fixture
def interrupted(once: Path, tmp_path: Path) -> Path:
    """Return a copy of a run whose training was interrupted before its model was saved."""
    run = tmp_path / "run"
    shutil.copytree(once, run)
    (run / "model.safetensors").unlink()
    return run


def checkpoints(run: Path) -> list[Path]:
    return sorted((run / "checkpoints").glob("step-*"))


def test_the_weights_of_a_checkpoint_are_loaded(once: Path) -> None:
    stored, last = weights(once), checkpoints(once)[-1]
    short = last.with_name(f"step-{int(last.name[5:])}")  # without leading zeros
    for path in (last, short):
        for name, weight in regard.load(path, "cpu").model.named_parameters():
            torch.testing.assert_close(weight.detach(), stored[f"weights.{name}"])


def test_an_interrupted_run_names_the_weights_it_has_and_they_can_be_used(interrupted: Path) -> None:
    best, last = interrupted / "weights" / "best.safetensors", checkpoints(interrupted)[-1]
    with pytest.raises(ValueError, match=f"it is not trained yet; .* {best} or {last}"):
        regard.load(interrupted, "cpu")
    assert regard.load(best, "cpu")("a cat") is not None
    said = CliRunner().invoke(app, ["translate", str(best), "--with", str(last), "--quiet"], input="a cat\n")
    assert (said.exit_code, said.stdout.count("\n")) == (0, 1)


def test_a_damaged_checkpoint_is_refused(interrupted: Path) -> None:
    shard = next(checkpoints(interrupted)[-1].glob("*.safetensors"))
    content = bytearray(shard.read_bytes())
    content[-5] ^= 1
    shard.write_bytes(content)
    with pytest.raises(ValueError, match=f"is damaged: {shard.name} changed since it was written"):
        regard.load(shard.parent, "cpu")


def test_a_path_that_belongs_to_no_run_is_refused(interrupted: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no checkpoint .*step-99; the checkpoints of this run are: step-"):
        find_run(interrupted / "checkpoints" / "step-99")
    alone = tmp_path / "alone" / "model.safetensors"
    alone.parent.mkdir()
    alone.write_bytes(b"")
    with pytest.raises(ValueError, match=r"does not belong to a run: .* has no recipe.toml"):
        find_run(alone)


def test_a_moving_average_is_preferred(tmp_path: Path) -> None:
    from tests.train.conftest import TINY

    run = tmp_path / "run"
    regard.train(regard.load_recipe(write(tmp_path, TINY), ["train.steps=2", "train.ema=0.5"]), run, device="cpu")
    stored = weights(run)
    for name, weight in regard.load(checkpoints(run)[-1], "cpu").model.named_parameters():
        torch.testing.assert_close(weight.detach(), stored[f"average.{name}"])


def write(folder: Path, text: str) -> Path:
    (folder / "tiny.toml").write_text(text, encoding="utf-8")
    return folder / "tiny.toml"
