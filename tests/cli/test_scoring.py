"""The commands `regard perplexity`, `regard align` and `regard evaluate`."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from regard.cli import app
from regard.data.phrasebook import phrases

KNOWN = list(phrases("de", "train", 20))


def regard(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, words), "--device", "cpu"])


def said(*words: str | Path) -> str:
    result = regard(*words)
    assert result.exit_code == 0, result.exception
    return result.stdout


@pytest.fixture
def folder(memorised: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the run, its training pairs, and their gold links."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(memorised, "run")
    Path("in.en").write_text("".join(f"{phrase.source}\n" for phrase in KNOWN), encoding="utf-8")
    Path("in.de").write_text("".join(f"{phrase.target}\n" for phrase in KNOWN), encoding="utf-8")
    Path("gold").write_text("".join(f"{phrase.pharaoh()}\n" for phrase in KNOWN), encoding="utf-8")
    return tmp_path


def test_perplexity_prints_totals_pairs_and_tokens(folder: Path) -> None:
    both = ("--source", "in.en", "--target", "in.de")
    whole = json.loads(said("perplexity", "run", *both, "--json"))
    each = [json.loads(line) for line in said("perplexity", "run", *both, "--each", "--json").splitlines()]
    assert whole["pairs"] == len(each) == 20
    assert whole["logprob"] == pytest.approx(sum(one["logprob"] for one in each))
    assert whole["tokens"] == sum(len(one["tokens"]) for one in each)
    assert 1 < whole["perplexity"] < 3
    first = said("perplexity", "run", *both, "--tokens").splitlines()[0].split("\t")
    assert float(first[0]) == pytest.approx(each[0]["logprob"], abs=1e-3)
    assert len(first[3].split(" ")) == int(first[2])
    assert "perplexity" in said("perplexity", "run", *both)


def test_translate_and_perplexity_print_the_same_log_probability(folder: Path) -> None:
    found = [json.loads(line) for line in said("translate", "run", "in.en", "--json").splitlines()]
    Path("out.de").write_text("".join(f"{one['text']}\n" for one in found), encoding="utf-8")
    lines = said("perplexity", "run", "--source", "in.en", "--target", "out.de", "--each", "--json").splitlines()
    given = [json.loads(line) for line in lines]
    same = [(one, two) for one, two in zip(found, given, strict=True) if one["tokens"] == two["tokens"][:-1]]
    assert len(same) > 15
    for one, two in same:
        assert one["logprob"] == pytest.approx(two["logprob"], abs=1e-4)


def test_align_prints_links_and_the_error_rate_agrees_with_score(folder: Path) -> None:
    both = ("--source", "in.en", "--target", "in.de")
    assert "chosen by gold links on 20 pairs" in said("align", "run", "--choose")
    assert json.loads(Path("run/scores.json").read_text())["alignment"]["reason"] == "gold links"
    Path("out.align").write_text(said("align", "run", *both), encoding="utf-8")
    rate = json.loads(said("align", "run", *both, "--gold", "gold", "--json"))
    assert rate["counts"]["pairs"] == 20
    scored = CliRunner().invoke(app, ["score", "--alignment", "out.align", "--gold", "gold", "--json"])
    assert json.loads(scored.stdout) == rate


def test_gold_links_may_have_the_target_first(folder: Path) -> None:
    both = ("--source", "in.en", "--target", "in.de", "--json")
    turned = [" ".join(f"{link.target}-{link.source}" for link in phrase.alignment if link.sure) for phrase in KNOWN]
    sure = [" ".join(f"{link.source}-{link.target}" for link in phrase.alignment if link.sure) for phrase in KNOWN]
    Path("turned").write_text("\n".join(turned) + "\n", encoding="utf-8")
    Path("sure").write_text("\n".join(sure) + "\n", encoding="utf-8")
    assert said("align", "run", *both, "--gold", "turned", "--reversed") == said(
        "align", "run", *both, "--gold", "sure"
    )


def test_evaluate_uses_the_test_set_or_files_and_compares_systems(folder: Path) -> None:
    both = ("--source", "in.en", "--reference", "in.de")
    found = json.loads(said("evaluate", "run", *both, "--against", "run", "--json"))
    assert found["scores"][0]["value"] > 90
    assert found["scores"][0]["signature"].startswith("nrefs:1")
    assert found["search"] == "beam:3|length:gnmt-1"
    assert found["comparisons"][0]["difference"] == 0
    text = said("evaluate", "run", "--output", "out.de", "--metric", "exact")
    assert "20 sentences, beam:3" in text
    assert len(Path("out.de").read_text(encoding="utf-8").splitlines()) == 20
    assert "baseline" in said("evaluate", "run", *both, "--against", "in.en")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["perplexity", "run", "--source", "in.en", "--target", "short"], "short has 1 lines, but in.en has more"),
        (["perplexity", "run", "--source", "none", "--target", "in.de"], "none does not exist"),
        (["perplexity", "run", "--source", "empty", "--target", "empty"], "empty is empty"),
        (["align", "run", "--source", "in.en"], "--target is missing"),
        (["align", "run"], "give --source and --target, or --choose"),
        (["evaluate", "run", "--source", "in.en"], "--reference is missing"),
        (["evaluate", "run", "--source", "in.en", "--reference", "short"], "in.en has 20 lines but short has 1"),
        (["evaluate", "run", "--source", "short", "--reference", "short", "--against", "in.en"], "in.en has 20 lines"),
        (["evaluate", "nowhere"], "nowhere"),
        (["evaluate", "run", "--metric", "beauty"], "unknown metric 'beauty'"),
        (["evaluate", "run", "--against", "nowhere"], "nowhere"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else None,
)
def test_a_user_error_is_one_sentence(words: list[str], sentence: str, folder: Path) -> None:
    Path("short").write_text("a cat\n", encoding="utf-8")
    Path("empty").write_text("", encoding="utf-8")
    result = regard(*words)
    assert isinstance(result.exception, ValueError | OSError)
    assert sentence in str(result.exception)
