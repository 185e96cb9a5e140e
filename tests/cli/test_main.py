"""The command line as a whole: help, errors, pipes, signals."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fork_server import forked_python

from regard.recipe import shipped_recipe, shipped_recipes

COMMANDS = [[], ["demo"], ["prepare"], ["tokens"], ["phrasebook"], ["score"], ["recipe"]]
COMMANDS += [["train"], ["translate"], ["evaluate"], ["align"], ["perplexity"], ["serve"], ["race"]]
COMMANDS += [["figure"], ["look"], ["tag"], ["smalltalk"]]
COMMANDS += [["recipe", name] for name in ("new", "show", "check", "explain", "schema")]


def regard(
    *arguments: str, cwd: Path | None = None, debug: bool = False, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    """Run a command in a new interpreter; one that imports torch starts sooner in a forked process."""
    environment = {**os.environ, **({"REGARD_DEBUG": "1"} if debug else {})}
    command = [python, "-m", "regard", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environment)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_help_page_opens_with_a_summary_and_then_examples(command: list[str]) -> None:
    done = regard(*command, "--help")
    assert done.returncode == 0
    lines = [line.strip() for line in done.stdout.partition("Usage")[2].splitlines()[1:] if line.strip()]
    summary = lines[: next(at for at, line in enumerate(lines) if line.startswith(" ".join(["regard", *command])))]
    assert len(summary) in (1, 2)
    assert summary[-1].endswith(".")


@pytest.mark.parametrize("command", [[], ["train"], ["prepare"], ["recipe"], ["recipe", "show"]], ids=" ".join)
def test_the_recipes_that_help_pages_name_are_part_of_the_package(command: list[str]) -> None:
    example = re.compile(r"regard (?:train|prepare|recipe show) ([a-z][\w-]*)(?=\s*$|\s\s|\s\S*=|\s--)", re.MULTILINE)
    named = example.findall(regard(*command, "--help").stdout)
    assert named
    assert set(named) <= set(shipped_recipes())


def test_the_help_of_train_shows_how_to_fine_tune() -> None:
    assert "train.start=runs/" in regard("train", "--help").stdout


def test_a_new_recipe_is_valid(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"{n} is a number\t{n} ist Zahl\n" for n in range(200)), encoding="utf-8")
    (tmp_path / "a.toml").write_text(
        regard("recipe", "new", "a.tsv", "--name", "a", cwd=tmp_path).stdout, encoding="utf-8"
    )
    assert regard("recipe", "check", "a.toml", cwd=tmp_path).stdout == "a.toml: valid; run 'a'\n"
    assert regard("recipe", "new", "--from", "phrasebook").stdout == shipped_recipe("phrasebook")
    done = regard("recipe", "new", "a.tsv", "--from", "phrasebook", cwd=tmp_path)
    assert (done.returncode, "--from prints a recipe with its own data" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["recipe", "show", "nowhere.toml"], "regard: error: nowhere.toml: no such recipe"),
        (["recipe", "explain", "train.warmpu"], "did you mean train.warmup?"),
        (["prepare", "nowhere.toml"], "no such recipe"),
        (["tokens", "nowhere", "I"], "no tokenizer at nowhere"),
        (["score", "--hypothesis", "nowhere", "--reference", "nowhere"], "nowhere does not exist"),
        (["phrasebook", "--to", "xx"], "xx"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_an_error_of_the_user_is_a_message_without_a_traceback(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    done = regard(*arguments, cwd=tmp_path)
    assert done.returncode not in (0, 70)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_corpus_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text('[data]\ntrain = [{ source = "a.en", target = "a.de" }]\n', encoding="utf-8")
    done = regard("prepare", "r.toml", cwd=tmp_path, python=forked_python())
    assert (done.returncode, "a.en does not exist" in done.stderr) == (1, True)


@pytest.mark.parametrize("trained", ["model.safetensors", "checkpoints"])
def test_prepare_does_not_change_a_trained_run(trained: str, tmp_path: Path) -> None:
    recipe = '[data]\ntrain = [{ to = "de", pairs = 200 }]\n[text]\nsize = 320\n'
    (tmp_path / "r.toml").write_text(recipe, encoding="utf-8")
    assert regard("prepare", "r.toml", cwd=tmp_path, python=forked_python()).returncode == 0
    run = tmp_path / "runs" / "r"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    (run / trained).mkdir()
    done = regard("prepare", "r.toml", "text.size=330", cwd=tmp_path, python=forked_python())
    assert (done.returncode, "330 pieces" in done.stdout) == (0, True)
    assert "has a trained model, so nothing was written" in done.stderr
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_the_debug_variable_shows_a_traceback(tmp_path: Path) -> None:
    done = regard("tokens", "nowhere", "I", cwd=tmp_path, debug=True)
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "redirection", "message"),
    [
        (["tokens", "RUN"], "<&-", "standard input is closed"),
        (["translate", "RUN"], "<&-", "standard input is closed"),
        (["translate", "RUN", "in.txt"], ">&-", "standard output is closed"),
        (["generate", "TEXT", "I"], ">&-", "standard output is closed"),
        (["generate", "TEXT"], "<&-", "standard input is closed"),
        (["generate", "TEXT", "I", "--stream"], ">&-", "standard output is closed"),
        (["recipe", "schema"], ">&-", "standard output is closed"),
        (["--version"], ">&-", "standard output is closed"),
        (["translate", "RUN", "in.txt"], "2>&-", ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_closed_standard_stream_is_an_error_of_the_user(
    arguments: list[str], redirection: str, message: str, memorised: Path, memorised_text: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("the dog\n", encoding="utf-8")
    runs = {"RUN": str(memorised), "TEXT": str(memorised_text)}
    python = forked_python() if arguments[0] in ("translate", "generate") else sys.executable
    words = shlex.join([python, "-m", "regard", *(runs.get(word, word) for word in arguments)])
    done = subprocess.run(
        ["bash", "-c", f"{words} {redirection}"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == (1 if message else 0)
    assert message in done.stderr
    assert "internal error" not in done.stderr
    # What belongs to a closed stderr is not printed anywhere else.
    assert message or len(done.stdout.splitlines()) == 1


def test_a_closed_pipe_ends_the_command_without_an_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m regard phrasebook --to de -n 3000 | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_ctrl_c_ends_with_exit_code_130(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "regard", "phrasebook", "--to", "de", "-n", "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as running:
        assert running.stdout is not None
        running.stdout.readline()  # wait until it is running
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate()
    assert running.returncode == 130
    assert "Traceback" not in errors


def test_version_prints_the_version() -> None:
    assert regard("--version").stdout.startswith("regard 0.")


@pytest.mark.parametrize(
    ("settings", "files", "message", "code"),
    [
        ('[text]\nsymbols = ["a b"]\n', {"a.en": b"x\n", "a.de": b"y\n"}, "contains white space", 1),
        ('[text]\nsymbols = ["<s>"]\n', {"a.en": b"x\n", "a.de": b"y\n"}, "text: symbol '<s>' is a reserved name", 1),
        ("", {"a.en": b"\xff\xfe\n", "a.de": b"y\n"}, "data.train.0: a.en, line 1: byte 1 (0xff) is not UTF-8", 1),
        ("", {"a.en": b"", "a.de": b""}, "data.train.0: The corpus is empty", 1),
        ("", {"a.en": b"x\n"}, "cannot start: missing files: a.de", 0),
        ("", {"a.en": b"x\n", "a.de": b"y\n"}, "r.toml: valid; run 'r'", 0),
    ],
)
def test_a_check_reads_corpora_and_symbols(
    settings: str, files: dict[str, bytes], message: str, code: int, tmp_path: Path
) -> None:
    recipe = f'[data]\ntrain = [{{ source = "a.en", target = "a.de" }}]\n{settings}'
    (tmp_path / "r.toml").write_text(recipe, encoding="utf-8")
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    done = regard("recipe", "check", "r.toml", cwd=tmp_path)
    assert (done.returncode, message in done.stdout) == (code, True), done
