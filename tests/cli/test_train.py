"""The command `regard train`: what it prints, and how it ends after a signal."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from tests.fork_server import forked_python

RECIPE = """
[data]
train = [{ to = "de", pairs = 200 }]
[text]
size = 320
[model]
size = "tiny"
width = 16
inner = 32
heads = 2
encoder_layers = 1
decoder_layers = 1
[train]
steps = 1000000
tokens = 512
every = 1000000
"""


def test_a_stopped_training_saves_the_model_and_exits_with_130(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(RECIPE, encoding="utf-8")
    command = [forked_python(), "-m", "regard", "train", str(tmp_path / "long.toml"), "--run", str(tmp_path / "run")]
    with subprocess.Popen([*command, "--plain"], stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        next(line for line in running.stderr if line.startswith("step 1/"))
        running.send_signal(signal.SIGTERM)
        printed = running.stderr.read()
    assert running.returncode == 130
    assert "stopping: a checkpoint is saved first" in printed
    assert "Traceback" not in printed
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_json_prints_only_the_scores_of_a_finished_training(tmp_path: Path) -> None:
    (tmp_path / "short.toml").write_text(RECIPE, encoding="utf-8")
    command = [sys.executable, "-m", "regard", "train", str(tmp_path / "short.toml"), "train.steps=2", "--json"]
    done = subprocess.run([*command, "--run", str(tmp_path / "run")], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["training"]["steps"] == 2
    assert json.loads((tmp_path / "run" / "scores.json").read_text(encoding="utf-8")) == json.loads(done.stdout)
