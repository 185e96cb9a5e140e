"""The command line as a whole: help, errors, pipes, signals."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = [[], ["demo"], ["prepare"], ["tokens"], ["phrasebook"], ["score"], ["recipe"]]
COMMANDS += [["train"], ["translate"], ["evaluate"], ["align"], ["perplexity"], ["serve"], ["race"]]
COMMANDS += [["figure"], ["look"]]
COMMANDS += [["recipe", each] for each in ("show", "check", "explain", "schema")]


def regard(*words: str, cwd: Path | None = None, debug: bool = False) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"REGARD_DEBUG": "1"} if debug else {})}
    command = [sys.executable, "-m", "regard", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environment)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_help_opens_with_lines_that_can_be_pasted(command: list[str]) -> None:
    said = regard(*command, "--help")
    assert said.returncode == 0
    assert (
        f"regard {' '.join(command)}".strip()
        in said.stdout.partition("Options")[0].partition("Usage")[2].partition("\n")[2]
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["recipe", "show", "nowhere.toml"], "regard: error: nowhere.toml: no such recipe"),
        (["recipe", "explain", "train.warmpu"], "did you mean train.warmup?"),
        (["prepare", "nowhere.toml"], "no such recipe"),
        (["tokens", "nowhere", "I"], "no tokenizer at nowhere"),
        (["score", "--hypothesis", "nowhere", "--reference", "nowhere"], "nowhere does not exist"),
        (["phrasebook", "--to", "xx"], "xx"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else None,
)
def test_what_a_user_can_mend_is_a_sentence_and_never_a_traceback(
    words: list[str], sentence: str, tmp_path: Path
) -> None:
    said = regard(*words, cwd=tmp_path)
    assert said.returncode not in (0, 70)
    assert sentence in said.stderr
    assert "Traceback" not in said.stderr


def test_a_missing_corpus_is_named_with_where_it_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text('[data]\ntrain = [{ source = "a.en", target = "a.de" }]\n', encoding="utf-8")
    said = regard("prepare", "r.toml", cwd=tmp_path)
    assert (said.returncode, "a.en does not exist" in said.stderr) == (1, True)


@pytest.mark.parametrize("learnt", ["model.safetensors", "checkpoints"])
def test_preparing_leaves_a_trained_run_its_vocabulary(learnt: str, tmp_path: Path) -> None:
    recipe = '[data]\ntrain = [{ to = "de", pairs = 200 }]\n[text]\nsize = 320\n'
    (tmp_path / "r.toml").write_text(recipe, encoding="utf-8")
    assert regard("prepare", "r.toml", cwd=tmp_path).returncode == 0
    run = tmp_path / "runs" / "r"
    before = {each: each.read_bytes() for each in run.rglob("*") if each.is_file()}
    (run / learnt).mkdir()
    said = regard("prepare", "r.toml", "text.size=330", cwd=tmp_path)
    assert (said.returncode, "330 pieces" in said.stdout) == (0, True)
    assert "has a trained model, so nothing was written" in said.stderr
    assert before == {each: each.read_bytes() for each in run.rglob("*") if each.is_file()}


def test_debug_shows_where_an_error_comes_from(tmp_path: Path) -> None:
    said = regard("tokens", "nowhere", "I", cwd=tmp_path, debug=True)
    assert "Traceback" in said.stderr


def test_a_reader_that_leaves_early_ends_the_command_quietly(tmp_path: Path) -> None:
    command = f"{sys.executable} -m regard phrasebook --to de -n 3000 | head -n 1"
    said = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert said.stdout.count("\n") == 1
    assert said.stderr == ""


def test_ctrl_c_ends_with_a_word_and_its_own_code(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "regard", "phrasebook", "--to", "de", "-n", "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as running:
        assert running.stdout is not None
        running.stdout.readline()  # it is at work now
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate()
    assert running.returncode == 130
    assert "Traceback" not in errors


def test_the_version_is_told() -> None:
    assert regard("--version").stdout.startswith("regard 0.")
