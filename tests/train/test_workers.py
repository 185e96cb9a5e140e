"""Several processes learn what one learns, and read each other's checkpoints."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tests.train.conftest import weights

from regard.bundle import load_bundle
from regard.recipe import Recipe, dump
from regard.train.events import Event
from regard.train.workers import Workers

Make = Callable[..., Recipe]
Train = Callable[[Recipe, Path], list[Event]]


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def agree(one: Path, other: Path) -> None:
    """Weights and what the optimiser remembers, to what double precision leaves of another order of sums."""
    left, right = weights(one), weights(other)
    for name in left:
        if not name.startswith("dice"):
            torch.testing.assert_close(left[name], right[name], rtol=1e-7, atol=1e-9)


def _with(recipe: Recipe, **settings: object) -> Recipe:
    return recipe.model_copy(update={"train": recipe.train.model_copy(update=settings)})


def test_two_processes_are_one_and_read_what_the_other_wrote(
    double: None, tiny: Make, trained: Train, tmp_path: Path
) -> None:
    """Two processes with a batch each a step, and one with two batches a step, learn from the same batches.

    One of the two is killed on the way, and both are started again.
    """
    recipe, step_of_two = tiny("model.dropout=0.0"), tiny("model.dropout=0.0", "train.accumulate=2")
    trained(step_of_two, tmp_path / "reference")
    by_muon = _with(step_of_two, optimiser="muon")
    trained(by_muon, tmp_path / "muon")
    trained(_with(step_of_two, steps=4), tmp_path / "alone")
    (tmp_path / "tiny.toml").write_text(dump(recipe), encoding="utf-8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "1"]
    script = [str(Path(__file__).with_name("together.py")), str(tmp_path / "tiny.toml"), str(tmp_path)]
    said = subprocess.run(
        [*launch, "--nproc-per-node", "2", *script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert said.returncode == 0, said.stderr
    assert "one of the 2 processes is gone" in said.stderr
    agree(tmp_path / "reference", tmp_path / "whole")
    # One process goes on from what two had begun, in halves; two have gone on from what one had begun.
    trained(step_of_two, tmp_path / "sharded")
    agree(tmp_path / "reference", tmp_path / "sharded")
    agree(tmp_path / "reference", tmp_path / "alone")
    # Matrices whose rows are in two processes are still orthogonalised as one.
    agree(tmp_path / "muon", tmp_path / "muon-whole")
    trained(by_muon, tmp_path / "muon-sharded")
    agree(tmp_path / "muon", tmp_path / "muon-sharded")
    assert load_bundle(tmp_path / "whole").scores["training"]["processes"] == 2


def test_what_only_the_first_process_finds_is_no_fault_of_the_others(begun: Path, tiny: Make, tmp_path: Path) -> None:
    run = Path(shutil.copytree(begun, tmp_path / "run"))
    for each in (run / "checkpoints").rglob("*.safetensors"):
        each.write_bytes(b"")
    (tmp_path / "tiny.toml").write_text(dump(tiny()), encoding="utf-8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--"]
    command = [*launch, "regard", "train", str(tmp_path / "tiny.toml"), "--run", str(run), "--device", "cpu"]
    said = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert said.returncode != 0
    assert "is whole: " in said.stderr
    assert "internal error" not in said.stderr


def test_one_process_alone_agrees_with_itself() -> None:
    alone = Workers(torch.device("cpu"))
    alone.same("a", "the word")
    alone.wait()
    assert alone.first
    assert (alone.least(3), alone.decided(2.0), alone.dealt(["a", "b"])) == (3, 2.0, ["a", "b"])
