"""The command `regard phrasebook`."""

import json

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.data.phrasebook import phrases


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["phrasebook", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_prints_pairs() -> None:
    lines = run("--to", "de", "-n", "2", "--seed", "3").splitlines()
    first, second = phrases("de", "train", 2, 3)
    assert lines == [f"en  {first.source}", f"de  {first.target}", "", f"en  {second.source}", f"de  {second.target}"]


def test_alignments_are_printed_with_their_words() -> None:
    output = run("--to", "it", "--split", "lectures", "-n", "2", "--alignments")
    assert "it  Ti amo molto" in output
    assert "0p1 1-1 2-0 3-2 4-2" in output
    assert "I~amo  love=amo  you=Ti  very=molto  much=molto" in output


def test_relations_of_both_sides_are_printed() -> None:
    output = run("--to", "de", "--split", "lectures", "-n", "5", "--relations")
    assert "en pronoun-antecedent: it (8) -> animal (1)" in output
    assert "de pronoun-antecedent: es (7) -> Tier (1)" in output


def test_tsv_has_source_and_target() -> None:
    rows = [line.split("\t") for line in run("--to", "ar", "-n", "4", "--tsv").splitlines()]
    assert rows == [[phrase.source, phrase.target] for phrase in phrases("ar", "train", 4)]


def test_json_has_one_object_per_line() -> None:
    rows = [json.loads(line) for line in run("--to", "fr", "-n", "3", "--split", "novel", "--json").splitlines()]
    drawn = list(phrases("fr", "novel", 3))
    assert [row["alignment"] for row in rows] == [phrase.pharaoh() for phrase in drawn]
    assert rows[0]["relations"] == [[r.kind, r.start, r.end] for r in drawn[0].relations]


@pytest.mark.parametrize("arguments", [("--to", "xx"), ("--split", "dev")])
def test_an_unknown_name_raises(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, ["phrasebook", *arguments])
    assert isinstance(result.exception, ValueError)
    assert "choose one of" in str(result.exception)


def test_two_formats_at_once_are_an_error() -> None:
    assert CliRunner().invoke(app, ["phrasebook", "--tsv", "--json"]).exit_code == 2
