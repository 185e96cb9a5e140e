"""The command `regard tokens`."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from regard.cli.tokens import tokens
from regard.text import Tokenizers

app = typer.Typer()
app.command()(tokens)

PAIRS = [("I can go alone", "أستطيع الذهاب وحيداً"), ("I am a student", "أنا طالب")] * 3


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with word tokenizers for both sides."""
    folder = tmp_path_factory.mktemp("run")
    Tokenizers.learn(PAIRS, kind="word", size=30, joint=False, bytes=False).save(folder / "tokenizer")
    return folder


def call(*arguments: str, stdin: str | bytes | None = None) -> Result:
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    assert result.exit_code == 0, result.output
    return result


def test_a_line_is_a_table_of_tokens_and_ids(run: Path) -> None:
    tokenizer = Tokenizers.load(run)["source"]
    lines = call(str(run), "--no-one-hot", "I can go alone").stdout.splitlines()
    assert lines[0].split() == ["token", "id", "characters", "text", "word"]
    assert [line.split() for line in lines[1:]] == [
        ["▁I", str(tokenizer.id("I")), "0:1", "I", "0"],
        ["▁can", str(tokenizer.id("can")), "2:5", "can", "1"],
        ["▁go", str(tokenizer.id("go")), "6:8", "go", "2"],
        ["▁alone", str(tokenizer.id("alone")), "9:14", "alone", "3"],
    ]


def test_columns_are_aligned(run: Path) -> None:
    lines = call(str(run), "I can go alone").stdout.splitlines()
    assert {
        line.index(cell) for line, cell in zip(lines, ["characters", "0:1", "2:5", "6:8", "9:14"], strict=True)
    } == {lines[0].index("characters")}


def test_right_to_left_text_is_isolated_in_its_cell(run: Path) -> None:
    lines = call(str(run), "--side", "target", "أنا طالب").stdout.splitlines()
    for line, word in zip(lines[1:], ["أنا", "طالب"], strict=True):
        assert f"\u2068▁{word}\u2069" in line
        assert f"\u2068{word}\u2069" in line


def test_ids_are_printed_alone(run: Path) -> None:
    tokenizer = Tokenizers.load(run)["source"]
    output = call(str(run), "--ids", stdin="I am\n\nzebra\n").stdout
    assert output == f"{tokenizer.id('I')} {tokenizer.id('am')}\n\n1\n"


def test_json_is_one_object_per_line(run: Path) -> None:
    tokenizer = Tokenizers.load(run)["target"]
    records = [
        json.loads(line)
        for line in call(
            str(run), "-", "--side", "target", "--json", "--no-one-hot", stdin="أنا زرافة\n"
        ).stdout.splitlines()
    ]
    assert records == [
        {
            "line": "أنا زرافة",
            "tokens": [
                {"piece": "▁أنا", "id": tokenizer.id("أنا"), "start": 0, "end": 3, "text": "أنا", "word": 0},
                {"piece": "<unk>", "id": 1, "start": 4, "end": 9, "text": "زرافة", "word": 1},
            ],
        }
    ]


def test_a_one_hot_vector_has_a_1_at_the_id(run: Path) -> None:
    tokenizer = Tokenizers.load(run)["source"]
    row = call(str(run), "am").stdout.splitlines()[1]
    vector = ["1" if index == tokenizer.id("am") else "0" for index in range(len(tokenizer))]
    assert " ".join(vector) in row
    record = json.loads(call(str(run), "--json", "am").stdout)
    assert record["tokens"][0]["one_hot"] == {"index": tokenizer.id("am"), "size": len(tokenizer)}


def test_a_long_one_hot_vector_is_shown_by_its_index(tmp_path: Path) -> None:
    Tokenizers.learn(PAIRS, size=300).save(tmp_path)
    tokenizer = Tokenizers.load(tmp_path)["source"]
    assert f"1 at {tokenizer.id('▁I')} of 0..{len(tokenizer) - 1}" in call(str(tmp_path), "I").stdout


def test_invalid_and_unprintable_characters_are_shown(tmp_path: Path) -> None:
    Tokenizers.learn(PAIRS, size=300, normalise="identity").save(tmp_path)
    output = call(str(tmp_path), stdin=b"a\xff\0\n").stdout
    assert "\ufffd" in output
    assert "\\x00" in output


def test_a_path_without_a_tokenizer_is_an_error_that_names_it(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [str(tmp_path / "none"), "I"])
    assert isinstance(result.exception, ValueError)
    assert "none" in str(result.exception)
