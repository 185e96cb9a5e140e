"""`regard fill`, and what other commands say about a masked language model."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import app


def run(*arguments: str, text: str | None = None) -> str:
    result = CliRunner().invoke(app, list(arguments), input=text, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_fill_prints_the_text_and_the_candidates_of_each_mask(masked_run: Path) -> None:
    first, *lines = run("fill", str(masked_run), "b [MASK] x", "--top", "2", "--device", "cpu").splitlines()
    assert first == "b s x"
    assert [line.split("\t")[0] for line in lines] == ["1", "1"]
    assert lines[0].endswith("\ts")


def test_fill_reads_lines_and_prints_json(masked_run: Path) -> None:
    output = run("fill", str(masked_run), "--json", "--joint", "--device", "cpu", text="b [MASK] x\n<mask> p <mask>\n")
    one, two = map(json.loads, output.splitlines())
    assert one["masks"][0][0]["word"] == "s"
    assert set(one["masks"][0][0]) == {"word", "token", "probability"}
    assert [len(two["masks"]), len(two["joint"][0]["words"])] == [2, 2]


def test_fill_prints_joint_candidates_as_texts(masked_run: Path) -> None:
    lines = run("fill", str(masked_run), "[MASK] [MASK] x", "--joint", "--top", "2", "--device", "cpu").splitlines()
    assert [line.count("\t") for line in lines] == [0, 1, 1]


def test_perplexity_is_a_pseudo_perplexity_and_says_so(masked_run: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("b s x\na p v\n", encoding="utf-8")
    result = CliRunner().invoke(app, ["perplexity", str(masked_run), str(tmp_path / "text.txt"), "--device", "cpu"])
    assert result.exit_code == 0
    assert result.stdout.startswith("pseudo perplexity")
    assert "each token was masked once and predicted from all others" in result.stderr
    table = json.loads(run("perplexity", str(masked_run), str(tmp_path / "text.txt"), "--json", "--device", "cpu"))
    assert table["tokens"] == 6
    assert 1 <= table["pseudo_perplexity"] < 2


def test_generate_refuses_a_masked_language_model(masked_run: Path) -> None:
    with pytest.raises(ValueError, match=r"language_model.objective = 'masked', but this needs .* `regard fill` uses"):
        run("generate", str(masked_run), "b", "--device", "cpu")


def test_fill_refuses_a_causal_language_model_and_a_translator(memorised_text: Path, memorised: Path) -> None:
    with pytest.raises(ValueError, match=r"objective = 'next', but this needs .*'masked'; `regard generate` uses"):
        run("fill", str(memorised_text), "b [MASK] x", "--device", "cpu")
    with pytest.raises(ValueError, match=r"task = 'translation', but this needs a run with task = 'language_model'"):
        run("fill", str(memorised), "b [MASK] x", "--device", "cpu")


def test_look_and_figure_refuse_a_masked_language_model(masked_run: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no figure of kind alignment; draw one of kind surprisal or curves"):
        run("figure", str(masked_run), "b s x", "-o", str(tmp_path / "map.svg"))
    message = r"classifiers and chatbots that write replies, but this is a MaskFiller.* predicts the next token"
    with pytest.raises(ValueError, match=message):
        run("look", str(masked_run), "--port", "0", "--no-browser")
