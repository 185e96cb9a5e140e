"""The command `regard train`: what it prints, and how it ends after a signal."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.chats import RECIPE, chat_recipe
from tests.fork_server import forked_python
from typer.testing import CliRunner

from regard.cli import app

TRANSLATION = """
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
    (tmp_path / "long.toml").write_text(TRANSLATION, encoding="utf-8")
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
    (tmp_path / "short.toml").write_text(TRANSLATION, encoding="utf-8")
    command = [sys.executable, "-m", "regard", "train", str(tmp_path / "short.toml"), "train.steps=2", "--json"]
    done = subprocess.run([*command, "--run", str(tmp_path / "run")], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["training"]["steps"] == 2
    assert json.loads((tmp_path / "run" / "scores.json").read_text(encoding="utf-8")) == json.loads(done.stdout)


def test_a_recipe_of_chat_is_shown_prepared_estimated_and_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    chat_recipe(tmp_path)
    text = RECIPE.format(root=tmp_path).replace("[text]", 'valid = { path = "train.txt" }\n[text]')
    Path("chat.toml").write_text(f'name = "chat"\n{text}\n[train]\nsteps = 2\nevery = 2\n', encoding="utf-8")

    def output(*words: str) -> str:
        result = CliRunner().invoke(app, [*words])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert '{ kind = "dialogues", path = "train.txt" }' in output("recipe", "show", "chat.toml")
    assert "valid; run 'chat'" in output("recipe", "check", "chat.toml")
    prepared = output("prepare", "chat.toml")
    assert "history tokens" in prepared
    assert re.search(r"kept +13 100.0%", prepared)
    assert "vocabulary history 330, reply 330" in output("train", "chat.toml", "--dry-run", "--device", "cpu")
    table = json.loads(output("train", "chat.toml", "--device", "cpu", "--json"))
    assert [score["name"] for score in table["valid"]["scores"]] == ["BLEU", "distinct-1", "distinct-2", "exact match"]
    assert Path("runs/chat/report.html").is_file()
