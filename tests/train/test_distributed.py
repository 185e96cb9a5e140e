"""Several processes train like one, and read each other's checkpoints."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.fork_server import forked_python
from tests.train.conftest import weights

from regard.bundle import load_scores
from regard.data.phrasebook import phrases
from regard.recipe import Recipe, dump, parse
from regard.tasks import load_bundle
from regard.train.distributed import WorkerGroup
from regard.train.events import Event

TRAINING = [
    "train.steps=3", "train.tokens=512", "train.every=2", "train.warmup=2", "train.rate=1e-2",
    "train.precision=float32",
]  # fmt: skip
TASKS = {
    "han": """
task = "classification"
data.train = [{ kind = "documents", label = "topic", count = 150 }]
data.valid = { kind = "documents", label = "topic", count = 13, split = "valid" }
text.size = 400
classification.weights = "balanced"
model = { kind = "han", width = 8, embedding = 8, dropout = 0.0 }
train.choose = "macro_f1"
""",
    "classifier": """
task = "classification"
data.train = [{ kind = "documents", label = "sentiment", count = 150 }]
data.valid = { kind = "documents", label = "sentiment", count = 13, split = "valid" }
text.size = 400
classification.pooling = "first"
model = { width = 16, inner = 32, heads = 2, encoder_layers = 1, dropout = 0.0 }
train.rdrop = 1.0
""",
    "tagger": """
task = "tagging"
data.train = [{ to = "de", pairs = 150 }]
data.valid = { to = "de", pairs = 13, split = "valid" }
text = { size = 320, sampling = 0.1 }
model = { kind = "rnn", width = 8, embedding = 8, layers = 1, dropout = 0.0 }
train.choose = "accuracy"
""",
    "masked": """
task = "language_model"
language_model.objective = "masked"
data.train = [{ to = "de", pairs = 150 }]
data.valid = { to = "de", pairs = 13, split = "valid" }
text.size = 320
model = { width = 16, inner = 32, heads = 2, encoder_layers = 1, dropout = 0.0 }
""",
    "causal": """
task = "language_model"
data = { block = 24, train = [{ to = "de", pairs = 150 }], valid = { to = "de", pairs = 13, split = "valid" } }
text.size = 320
model = { width = 16, inner = 32, heads = 2, decoder_layers = 1, dropout = 0.0 }
""",
    "retrieval": """
task = "chat"
chat.objective = "retrieve"
data.train = [{ path = "dialogues.txt" }]
data.valid = { path = "dialogues.txt" }
text.size = 320
model = { width = 16, inner = 32, heads = 2, encoder_layers = 1, dropout = 0.0 }
train.choose = "recall"
""",
}
"""Recipes of all tasks but translation, by the names of their runs."""
Make = Callable[..., Recipe]
Train = Callable[[Recipe, Path], list[Event]]


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def agree(one: Path, other: Path) -> None:
    """Compare weights and optimiser state, up to the rounding of sums in another order."""
    left, right = weights(one), weights(other)
    for name in left:
        if not name.startswith("dice"):
            torch.testing.assert_close(left[name], right[name], rtol=1e-7, atol=1e-9)


def _with(recipe: Recipe, **settings: object) -> Recipe:
    return recipe.model_copy(update={"train": recipe.train.model_copy(update=settings)})


def task_recipe(name: str, folder: Path) -> Recipe:
    """Return one of the recipes of tasks; a file of dialogues is in the folder."""
    return parse(TASKS[name], [*TRAINING, f"data.root='{folder}'"], name=name)


def without_times(scores: dict[str, Any]) -> dict[str, Any]:
    """Return numbers by name, without durations."""
    named = {score["name"]: score["value"] for score in scores["scores"]}
    return {name: value for name, value in scores.items() if name not in ("scores", "seconds")} | named


def test_two_processes_train_like_one_and_read_each_others_checkpoints(
    double: None, tiny: Make, trained: Train, tmp_path: Path
) -> None:
    """Two processes with one batch per step, and one process with two accumulated batches, see the same batches.

    The processes are new interpreters, with different seeds of hashes; only torchrun itself is forked.

    One of the two processes is killed on the way, and torchrun restarts both. The runs of other tasks follow in the
    same processes, because starting these takes longer than training.
    """
    recipe, step_of_two = tiny("model.dropout=0.0"), tiny("model.dropout=0.0", "train.accumulate=2")
    trained(step_of_two, tmp_path / "reference")
    by_muon = _with(step_of_two, optimiser="muon")
    trained(by_muon, tmp_path / "muon")
    trained(_with(step_of_two, steps=4), tmp_path / "alone")
    (tmp_path / "tiny.toml").write_text(dump(recipe), encoding="utf-8")
    (tmp_path / "tasks").mkdir()
    turns = [phrase.source for phrase in phrases("de", "train", 200)]
    (tmp_path / "dialogues.txt").write_text("\n".join(turns), encoding="utf-8")
    for name in TASKS:
        (tmp_path / "tasks" / f"{name}.toml").write_text(dump(task_recipe(name, tmp_path)), encoding="utf-8")
    launch = [forked_python(), "-m", "torch.distributed.run", "--standalone", "--max-restarts", "1"]
    script = [str(Path(__file__).with_name("together.py")), str(tmp_path / "tiny.toml"), str(tmp_path)]
    result = subprocess.run(
        [*launch, "--nproc-per-node", "2", *script],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    agree(tmp_path / "reference", tmp_path / "whole")
    # One process resumes what two have started with shards; two have resumed what one had started.
    trained(step_of_two, tmp_path / "sharded")
    agree(tmp_path / "reference", tmp_path / "sharded")
    agree(tmp_path / "reference", tmp_path / "alone")
    # Sharded matrices are orthogonalised as a whole.
    agree(tmp_path / "muon", tmp_path / "muon-whole")
    trained(by_muon, tmp_path / "muon-sharded")
    agree(tmp_path / "muon", tmp_path / "muon-sharded")
    assert load_bundle(tmp_path / "whole").scores["training"]["processes"] == 2
    for name in TASKS:
        alone = tmp_path / f"{name}-alone"
        trained(_with(task_recipe(name, tmp_path), accumulate=2), alone)
        agree(alone, tmp_path / name)
        scores, expected = load_scores(tmp_path / name), load_scores(alone)
        assert (scores["training"]["processes"], expected["training"]["processes"]) == (2, 1), name
        assert scores["weights"] == expected["weights"], name
        assert without_times(scores["valid"]) == pytest.approx(without_times(expected["valid"])), name


def test_a_process_that_loses_another_one_says_so(tiny: Make, tmp_path: Path) -> None:
    """Without torchrun, which may end the remaining process before it has seen the loss itself."""
    (tmp_path / "tiny.toml").write_text(dump(tiny()), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = [str(Path(__file__).with_name("together.py")), str(tmp_path / "tiny.toml"), str(tmp_path)]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(
            [forked_python(), *script],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "TORCHELASTIC_RESTART_COUNT": "0"},
        )
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=300)[1] for process in processes]
    assert processes[1].returncode == -signal.SIGKILL
    assert processes[0].returncode != 0
    assert "one of the 2 processes has exited" in errors[0]


def test_an_error_of_rank_0_is_not_reported_as_an_internal_error_of_others(
    begun: Path, tiny: Make, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(begun, tmp_path / "run"))
    for path in (run / "checkpoints").rglob("*.safetensors"):
        path.write_bytes(b"")
    (tmp_path / "tiny.toml").write_text(dump(tiny()), encoding="utf-8")
    launch = [forked_python(), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--"]
    command = [*launch, "regard", "train", str(tmp_path / "tiny.toml"), "--run", str(run), "--device", "cpu"]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHON_EXEC": forked_python()}
    )
    assert result.returncode != 0
    assert "is damaged: " in result.stderr
    assert "internal error" not in result.stderr


def test_collective_operations_of_a_single_process_return_their_arguments() -> None:
    alone = WorkerGroup(torch.device("cpu"))
    alone.check_equal("a", "the value")
    alone.barrier()
    assert alone.is_main
    assert (alone.minimum(3), alone.broadcast(2.0), alone.gather_strided(["a", "b"])) == (3, 2.0, ["a", "b"])
