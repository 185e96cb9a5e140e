"""The command `regard smalltalk`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.data.corpus import Reader
from regard.data.smalltalk import SPEAKERS, dialogues
from regard.recipe import DialogueCorpus, SmallTalkCorpus


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["smalltalk", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_prints_dialogues_and_marks_recalled_replies() -> None:
    shown = run("-n", "3", "--seed", "3", "--split", "test").split("\n\n")
    drawn = list(dialogues("test", 3, 3))
    assert len(shown) == 3
    for text, dialogue in zip(shown, drawn, strict=True):
        lines = text.splitlines()
        assert len(lines) == len(dialogue.turns)
        for number, (line, turn, evidence) in enumerate(zip(lines, dialogue.turns, dialogue.evidence, strict=True)):
            assert line.split()[:2] == [str(number + 1), SPEAKERS[number % 2]]
            assert turn in line
            assert (" * " in line) == (number in dialogue.recalled)
            if number in dialogue.recalled:
                assert evidence is not None
                assert f"<- {evidence.turn + 1}: " in line
                assert f"({evidence.kind}, {evidence.form})" in line


def test_json_has_the_evidence_and_is_a_corpus_of_dialogues(tmp_path: Path) -> None:
    file = tmp_path / "talk.jsonl"
    file.write_text(run("-n", "10", "--seed", "1", "--json"), encoding="utf-8")
    for line, dialogue in zip(file.read_text(encoding="utf-8").splitlines(), dialogues("train", 10, 1), strict=True):
        evidence = [
            None
            if item is None
            else {
                "kind": item.kind,
                "form": item.form,
                "turn": item.turn,
                "words": [list(span) for span in item.words],
                "reply_words": [list(span) for span in item.reply_words],
            }
            for item in dialogue.evidence
        ]
        assert json.loads(line)["evidence"] == evidence
    reader = Reader(("history", "reply"), tmp_path, seed=1)
    read = list(reader.records(DialogueCorpus(path="talk.jsonl", speaker="bot")))
    assert read == list(reader.records(SmallTalkCorpus(count=10)))


@pytest.mark.parametrize("arguments", [("--split", "novel"), ("-n", "-1")])
def test_a_wrong_value_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    assert CliRunner().invoke(app, ["smalltalk", *arguments]).exit_code == 2
