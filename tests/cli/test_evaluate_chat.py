"""`regard evaluate` for chatbots."""

import json
from pathlib import Path

import pytest
from tests.chats import DIALOGUES
from typer.testing import CliRunner

from regard.cli import app


@pytest.fixture
def dialogues(tmp_path: Path) -> Path:
    path = tmp_path / "talk.jsonl"
    path.write_text("".join(json.dumps({"turns": turns}) + "\n" for turns in DIALOGUES[:3]), encoding="utf-8")
    return path


def evaluate(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["evaluate", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_replies_to_a_file_of_dialogues_are_scored_with_and_without_context(
    memorised_chat_run: Path, dialogues: Path, tmp_path: Path
) -> None:
    written = tmp_path / "replies.txt"
    text = evaluate(memorised_chat_run, "--source", dialogues, "--output", written, "--beam", 1)
    assert "given the history with the turns before the last one in random order" in text
    assert "exact match" in text
    assert len(written.read_text().splitlines()) == 9
    table = json.loads(evaluate(memorised_chat_run, "--source", dialogues, "--json", "--against", written))
    assert table["replies"] == 9
    perplexity = {name: figures["perplexity"] for name, figures in table["perplexity"].items()}
    assert perplexity["full"] < perplexity["last"]
    assert [row["name"] for row in table["scores"]][:3] == ["BLEU", "distinct-1", "distinct-2"]
    assert len(table["comparisons"]) == 1


def test_options_of_other_tasks_and_files_of_another_length_are_refused(
    memorised_chat_run: Path, dialogues: Path, tmp_path: Path
) -> None:
    (tmp_path / "short.txt").write_text("one\n")
    for flags, message in (
        (["--metric", "ter"], "--metric means nothing for a chatbot"),
        (["--reference", str(dialogues)], "--reference means nothing for a chatbot"),
        (["--against", str(tmp_path / "short.txt")], "has 1 lines, but the test set has 9 replies"),
        (["--source", str(tmp_path / "none.jsonl")], "none.jsonl"),
    ):
        source = [] if flags[0] == "--source" else ["--source", str(dialogues)]
        with pytest.raises((ValueError, OSError), match=message):
            CliRunner().invoke(app, ["evaluate", str(memorised_chat_run), *source, *flags], catch_exceptions=False)
