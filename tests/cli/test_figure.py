"""The command `regard figure`."""

import sys
from pathlib import Path

import pytest
from tests.chat_turns import train_chatbot

from regard.cli import main

STARTS = {"pdf": b"%PDF-", "svg": b"<?xml", "png": b"\x89PNG\r"}


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command, and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["regard", "figure", *arguments])
    with pytest.raises(SystemExit) as exited:
        main()
    return int(exited.value.code or 0)


@pytest.mark.parametrize(
    ("kind", "suffix", "options"),
    [
        ("alignment", "pdf", ["--subwords", "--show-special", "--scale", "log"]),
        ("lines", "svg", ["--layer", "2", "--heads", "1,2", "--threshold", "0.2"]),
        ("heads", "png", ["--part", "encoder", "--dpi", "50"]),
        ("positions", "pdf", ["--count", "20"]),
        ("beam", "svg", ["--beam", "2", "--title", "Zwei"]),
    ],
)
def test_the_suffix_selects_the_format_of_a_figure(
    memorised: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, suffix: str, options: list[str]
) -> None:
    out = tmp_path / f"figure.{suffix}"
    assert run(monkeypatch, str(memorised), "I can go", "--kind", kind, "-o", str(out), *options) == 0
    assert out.read_bytes().startswith(STARTS[suffix])


@pytest.mark.parametrize("kind", ["alignment", "lines", "heads", "beam", "positions"])
def test_a_figure_of_a_language_model_needs_only_a_prompt(
    memorised_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    out = tmp_path / "figure.svg"
    assert run(monkeypatch, str(memorised_text), "I can go", "--kind", kind, "-o", str(out)) == 0
    assert out.read_bytes().startswith(STARTS["svg"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["I can go", "--kind", "heatmap"], "there is no figure 'heatmap'"),
        (
            ["I can go", "-o", "figure.jpg"],
            "figure.jpg: unknown format of a figure; use one of the suffixes .png, .svg, .pdf",
        ),
        (["I can go\nI can stay"], "a figure shows one sentence, and these are 2 lines; draw one at a time"),
        ([], "a figure of kind alignment needs a text"),
        (["I can go", "--layer", "3"], "there is no layer 3 in 'cross' attention; layers are 1 to 2"),
        (["I can go", "--layer", "0"], "there is no layer 0 in 'cross' attention; layers are 1 to 2"),
        (["I can go", "--heads", "1,3"], "there is no head 3 in 'cross' attention; heads are 1 to 2"),
        (["I can go", "--heads", "one"], "--heads is a list of numbers such as 1,3; found 'one'"),
        (["--kind", "curves"], "has no log.jsonl"),
    ],
)
def test_a_figure_that_cannot_be_drawn_is_an_error_of_one_line(
    memorised: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    arguments: list[str], message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, str(memorised), *arguments) == 1
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_figure_of_a_document_needs_a_classifier(
    memorised: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "figure.png"
    assert run(monkeypatch, str(memorised), "I can go", "--kind", "document", "-o", str(out)) == 1
    assert "shows what a classifier attends to; give a run that classifies" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("fixture", ["memorised_text", "masked_run"])
def test_language_models_of_both_kinds_show_the_surprisal_of_words(
    fixture: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "figure.svg"
    run_folder = str(request.getfixturevalue(fixture))
    assert run(monkeypatch, run_folder, "b s x", "--kind", "surprisal", "--scale", "sqrt", "-o", str(out)) == 0
    assert out.read_bytes().startswith(STARTS["svg"])


@pytest.mark.parametrize(
    ("fixture", "kind", "message"),
    [
        ("memorised", "surprisal", "shows the words of a language model"),
        ("memorised", "tags", "shows the words of a tagger"),
        ("masked_run", "heads", "a masked language model has no figure of kind heads; draw one of kind surprisal"),
    ],
)
def test_a_figure_of_another_task_is_refused(
    fixture: str, kind: str, message: str, request: pytest.FixtureRequest,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    out = tmp_path / "figure.png"
    assert run(monkeypatch, str(request.getfixturevalue(fixture)), "b s x", "--kind", kind, "-o", str(out)) == 1
    assert message in capsys.readouterr().err
    assert not out.exists()


@pytest.fixture(scope="module")
def chat_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_chatbot(tmp_path_factory.mktemp("runs") / "chat", "luong")


@pytest.mark.parametrize("options", [[], ["--reply", "Your name is Ben.", "--turns", "2", "--title", "Ben"]])
def test_a_figure_of_a_conversation_takes_each_turn_as_an_argument(
    chat_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    out = tmp_path / "dialogue.svg"
    turns = ["My name is Ben.", "Nice to meet you.", "What is my name?"]
    assert run(monkeypatch, str(chat_run), *turns, "--kind", "dialogue", "-o", str(out), *options) == 0
    assert out.read_bytes().startswith(STARTS["svg"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kind", "dialogue"], "a figure of kind dialogue needs a text"),
        (["Hi.", "--kind", "alignment"], "a chatbot has no figure of kind alignment; draw one of kind dialogue"),
        (["Hi.", "Hello.", "--kind", "document"], "a figure of kind document shows one text, and these are 2"),
    ],
)
def test_a_figure_that_a_chatbot_does_not_have_is_refused(
    chat_run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    assert run(monkeypatch, str(chat_run), *arguments) == 1
    assert message in capsys.readouterr().err


def test_a_figure_of_a_conversation_needs_a_chatbot(
    memorised: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, str(memorised), "I can go", "--kind", "dialogue") == 1
    assert "give a run with task = 'chat'" in capsys.readouterr().err
