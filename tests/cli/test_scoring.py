"""The commands `regard perplexity`, `regard align` and `regard evaluate`."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from tests.chats import DIALOGUES
from typer.testing import CliRunner, Result

from regard.cli import app
from regard.data.phrasebook import phrases
from regard.tasks import load_chatbot

KNOWN = list(phrases("de", "train", 20))


def regard(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, words), "--device", "cpu"])


def output(*words: str | Path) -> str:
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
    files = ("--source", "in.en", "--target", "in.de")
    whole = json.loads(output("perplexity", "run", *files, "--json"))
    scores = [json.loads(line) for line in output("perplexity", "run", *files, "--each", "--json").splitlines()]
    assert whole["pairs"] == len(scores) == 20
    assert whole["logprob"] == pytest.approx(sum(one["logprob"] for one in scores))
    assert whole["tokens"] == sum(len(one["tokens"]) for one in scores)
    assert 1 < whole["perplexity"] < 3
    first = output("perplexity", "run", *files, "--tokens").splitlines()[0].split("\t")
    assert float(first[0]) == pytest.approx(scores[0]["logprob"], abs=1e-3)
    assert len(first[3].split(" ")) == int(first[2])
    assert "perplexity" in output("perplexity", "run", *files)


def test_translate_and_perplexity_print_the_same_log_probability(folder: Path) -> None:
    translations = [json.loads(line) for line in output("translate", "run", "in.en", "--json").splitlines()]
    Path("out.de").write_text("".join(f"{one['text']}\n" for one in translations), encoding="utf-8")
    lines = output("perplexity", "run", "--source", "in.en", "--target", "out.de", "--each", "--json").splitlines()
    given = [json.loads(line) for line in lines]
    same = [(one, two) for one, two in zip(translations, given, strict=True) if one["tokens"] == two["tokens"][:-1]]
    assert len(same) > 15
    for one, two in same:
        assert one["logprob"] == pytest.approx(two["logprob"], abs=1e-4)


def test_align_prints_links_and_the_error_rate_agrees_with_score(folder: Path) -> None:
    files = ("--source", "in.en", "--target", "in.de")
    assert "chosen by gold links on 20 pairs" in output("align", "run", "--choose")
    assert json.loads(Path("run/scores.json").read_text())["alignment"]["reason"] == "gold links"
    Path("out.align").write_text(output("align", "run", *files), encoding="utf-8")
    rate = json.loads(output("align", "run", *files, "--gold", "gold", "--json"))
    assert rate["counts"]["pairs"] == 20
    scored = CliRunner().invoke(app, ["score", "--alignment", "out.align", "--gold", "gold", "--json"])
    assert json.loads(scored.stdout) == rate


def test_gold_links_may_have_the_target_first(folder: Path) -> None:
    files = ("--source", "in.en", "--target", "in.de", "--json")
    swapped = [" ".join(f"{link.target}-{link.source}" for link in phrase.alignment if link.sure) for phrase in KNOWN]
    sure = [" ".join(f"{link.source}-{link.target}" for link in phrase.alignment if link.sure) for phrase in KNOWN]
    Path("swapped").write_text("\n".join(swapped) + "\n", encoding="utf-8")
    Path("sure").write_text("\n".join(sure) + "\n", encoding="utf-8")
    assert output("align", "run", *files, "--gold", "swapped", "--reversed") == output(
        "align", "run", *files, "--gold", "sure"
    )


def test_evaluate_uses_the_test_set_or_files_and_compares_systems(folder: Path) -> None:
    files = ("--source", "in.en", "--reference", "in.de")
    report = json.loads(output("evaluate", "run", *files, "--against", "run", "--json"))
    assert report["scores"][0]["value"] > 90
    assert report["scores"][0]["signature"].startswith("nrefs:1")
    assert report["search"] == "beam:3|length:gnmt-1"
    assert report["comparisons"][0]["difference"] == 0
    text = output("evaluate", "run", "--output", "out.de", "--metric", "exact")
    assert "20 sentences, beam:3" in text
    assert len(Path("out.de").read_text(encoding="utf-8").splitlines()) == 20
    assert "baseline" in output("evaluate", "run", *files, "--against", "in.en")


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
    ids=lambda arguments: " ".join(arguments) if isinstance(arguments, list) else None,
)
def test_a_user_error_is_one_sentence(words: list[str], sentence: str, folder: Path) -> None:
    Path("short").write_text("a cat\n", encoding="utf-8")
    Path("empty").write_text("", encoding="utf-8")
    result = regard(*words)
    assert isinstance(result.exception, ValueError | OSError)
    assert sentence in str(result.exception)


def test_perplexity_of_a_chat_is_that_of_the_replies_of_dialogues(
    memorised_chat_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    turns = [{"text": text, "speaker": "ab"[at % 2]} for at, text in enumerate(DIALOGUES[0])]
    Path("talk.jsonl").write_text(json.dumps({"turns": turns}) + "\n", encoding="utf-8")
    Path("talk.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairwise(DIALOGUES[0])), encoding="utf-8")
    chatbot = load_chatbot(memorised_chat_run, "cpu", "float32")
    replies, histories = DIALOGUES[0][1:], [DIALOGUES[0][:number] for number in range(1, 4)]
    table = json.loads(output("perplexity", memorised_chat_run, "talk.jsonl", "--json"))
    assert table == pytest.approx(chatbot.perplexity(histories, replies).to_json())
    assert (table["words"], table["bytes"]) == (10, sum(map(len, replies)))
    pairs = json.loads(output("perplexity", memorised_chat_run, "talk.tsv", "--json"))
    assert pairs["tokens"] == table["tokens"]
    assert pairs["perplexity"] > table["perplexity"]
    assert "word perplexity" in output("perplexity", memorised_chat_run, "talk.jsonl")


def test_perplexity_of_a_chat_names_what_is_wrong_with_its_file(
    memorised_chat_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("talk.txt").write_text("Hi.\n\nHello.\n", encoding="utf-8")
    result = regard("perplexity", memorised_chat_run, "talk.txt")
    assert "talk.txt has no replies: its 2 dialogues have a single turn or none" in str(result.exception)
    result = regard("perplexity", memorised_chat_run, "no.txt")
    assert "no.txt does not exist" in str(result.exception)
    result = regard("perplexity", memorised_chat_run, "--source", "talk.txt", "--target", "talk.txt")
    assert "was trained with task = 'chat'" in str(result.exception)
