"""`regard figure` as a person types it."""

import sys
from pathlib import Path

import pytest

from regard.cli import main

STARTS = {"pdf": b"%PDF-", "svg": b"<?xml", "png": b"\x89PNG\r"}


def typed(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """The exit code of a command."""
    monkeypatch.setattr(sys, "argv", ["regard", "figure", *words])
    with pytest.raises(SystemExit) as over:
        main()
    return int(over.value.code or 0)


@pytest.mark.parametrize(
    ("kind", "suffix", "more"),
    [
        ("alignment", "pdf", ["--subwords", "--show-special", "--scale", "log"]),
        ("lines", "svg", ["--layer", "2", "--heads", "1,2", "--threshold", "0.2"]),
        ("heads", "png", ["--part", "encoder", "--dpi", "50"]),
        ("positions", "pdf", ["--count", "20"]),
        ("beam", "svg", ["--beam", "2", "--title", "Zwei"]),
    ],
)
def test_a_figure_is_written_by_its_suffix(
    memorised: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, suffix: str, more: list[str]
) -> None:
    out = tmp_path / f"figure.{suffix}"
    assert typed(monkeypatch, str(memorised), "I can go", "--kind", kind, "-o", str(out), *more) == 0
    assert out.read_bytes().startswith(STARTS[suffix])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["I can go", "--kind", "heatmap"], "there is no figure 'heatmap'"),
        (["I can go", "-o", "figure.jpg"], "figure.jpg: a figure is written by its suffix; end it in .png, .svg, .pdf"),
        (["I can go\nI can stay"], "a figure shows one sentence, and these are 2 lines; draw each by itself"),
        ([], "alignment shows what becomes of a sentence; give one"),
        (["I can go", "--layer", "3"], "there is no layer 3 in 'cross' attention; layers are 1 to 2"),
        (["I can go", "--layer", "0"], "there is no layer 0 in 'cross' attention; layers are 1 to 2"),
        (["I can go", "--heads", "1,3"], "there is no head 3 in 'cross' attention; heads are 1 to 2"),
        (["I can go", "--heads", "one"], "--heads is a list of numbers such as 1,3; found 'one'"),
        (["--kind", "curves"], "has no log.jsonl"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(
    memorised: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    words: list[str], said: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert typed(monkeypatch, str(memorised), *words) == 1
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
