"""`regard train` as a command: how it ends when it is asked to stop."""

import signal
import subprocess
import sys
from pathlib import Path

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


def test_a_training_that_is_asked_to_stop_saves_and_says_so_by_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(RECIPE, encoding="utf-8")
    command = [sys.executable, "-m", "regard", "train", str(tmp_path / "long.toml"), "--run", str(tmp_path / "run")]
    with subprocess.Popen([*command, "--plain"], stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        next(line for line in running.stderr if line.startswith("step 1/"))
        running.send_signal(signal.SIGTERM)
        said = running.stderr.read()
    assert running.returncode == 130
    assert "because it was asked to" in said
    assert "Traceback" not in said
    assert (tmp_path / "run" / "model.safetensors").is_file()
