"""The command `regard tag` prints tagged sentences in three formats; a tagger is evaluated on any tagged file."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import regard
from regard.bundle import save_bundle
from regard.cli import app
from regard.cli.evaluate_tags import evaluate_tags
from regard.cli.tag import conllu_lines
from regard.data.conll import read_conllu
from regard.data.fields import learn_fields
from regard.data.fields.lists import split_list
from regard.drawing import tags_figure
from regard.predict import TaggedSentence
from regard.recipe import TASK_FIELDS, parse
from regard.tasks.tagging import TaggingTask

SENTENCES = [
    ("I can go", "PRON AUX VERB"),
    ("the can rusts", "DET NOUN VERB"),
    ("New York\trusts", "PROPN\tVERB"),
    ("go", "VERB"),
]
RECIPE = """
task = "tagging"
[data]
train = [{ words = "train.words", tags = "train.tags" }]
test = { words = "test.words", tags = "test.tags" }
[text]
size = 300
[model]
kind = "rnn"
width = 16
embedding = 16
layers = 1
dropout = 0.0
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that has memorised the sentences, beside its data."""
    root = tmp_path_factory.mktemp("tagging")
    for side, index in (("words", 0), ("tags", 1)):
        for name, count in (("train", 4), ("test", 3)):
            text = "".join(f"{sentence[index]}\n" for sentence in SENTENCES[:count])
            (root / f"{name}.{side}").write_text(text, encoding="utf-8")
    recipe = parse(RECIPE, [f"data.root='{root}'"])
    fields, task = learn_fields(TASK_FIELDS["tagging"], SENTENCES, recipe), TaggingTask(recipe)
    torch.manual_seed(1)
    model = task.build(fields.sizes)
    columns = {"words": [words for words, _ in SENTENCES], "tags": [tags for _, tags in SENTENCES]}
    batch = task.collate(fields.encode(columns), np.arange(len(SENTENCES)))
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        optimiser.zero_grad()
        torch.autograd.backward(task.loss(model, batch))
        optimiser.step()
    save_bundle(root / "run", recipe, fields, model, {})
    return root / "run"


def tag(run: Path, text: str, *words: str) -> str:
    result = CliRunner().invoke(app, ["tag", str(run), "--device", "cpu", *words], input=text)
    assert result.exit_code == 0, result.exception
    return result.stdout


def test_each_line_is_printed_with_its_tags(run: Path) -> None:
    text = "the can rusts\n\nI  can go\nNew York\trusts\n"
    expected = "the_DET can_NOUN rusts_VERB\n\nI_PRON can_AUX go_VERB\nNew York_PROPN rusts_VERB\n"
    assert tag(run, text) == expected


def test_a_file_is_tagged_too(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("I can go", encoding="utf-8")
    assert tag(run, "", str(tmp_path / "in.txt"), "--quiet") == "I_PRON can_AUX go_VERB\n"


def test_json_has_the_probability_of_each_tag(run: Path) -> None:
    first, empty = map(json.loads, tag(run, "New York\trusts\n \n", "--json").splitlines())
    assert (first["words"], first["tags"]) == (["New York", "rusts"], ["PROPN", "VERB"])
    assert all(0.5 < value <= 1 for value in first["probabilities"])
    assert empty == {"words": [], "tags": [], "probabilities": []}


def test_the_conllu_that_is_printed_can_be_read(run: Path, tmp_path: Path) -> None:
    (tmp_path / "out.conllu").write_text(tag(run, "I can go\n\nNew York\trusts\n", "--conllu"), encoding="utf-8")
    ((words, tags, lines),) = read_conllu(tmp_path / "out.conllu")
    assert [split_list(line) for line in words] == [["I", "can", "go"], ["New York", "rusts"]]
    assert [split_list(line) for line in tags] == [["PRON", "AUX", "VERB"], ["PROPN", "VERB"]]
    assert lines == [3, 9]


@pytest.mark.parametrize("column", ["upos", "xpos", "deprel", "Number"])
def test_tags_are_printed_in_the_column_that_they_were_learned_from(column: str, tmp_path: Path) -> None:
    sentence = TaggedSentence(("cats", "see"), ("x", "_"), (1.0, 1.0))
    (tmp_path / "x.conllu").write_text(conllu_lines(sentence, 1, column) + "\n", encoding="utf-8")
    ((_, tags, _),) = read_conllu(tmp_path / "x.conllu", column)
    assert split_list(tags[0]) == ["x", "_"]


def test_two_formats_at_once_are_an_error(run: Path) -> None:
    result = CliRunner().invoke(app, ["tag", str(run), "--conllu", "--json"], input="")
    assert "choose one of them" in str(result.exception)


def test_a_run_of_another_task_is_refused(memorised: Path) -> None:
    result = CliRunner().invoke(app, ["tag", str(memorised)], input="I can go\n")
    assert "was trained with task = 'translation', but this needs a run with task = 'tagging'" in str(result.exception)


def test_the_test_set_is_evaluated_with_a_baseline_and_each_tag(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate_tags(str(run), device="cpu")
    output = capsys.readouterr().out
    assert "test.words and" in output
    assert "3 sentences, 8 words" in output
    assert "accuracy" in output
    assert "100.00" in output
    assert "most frequent tag" in output
    evaluate_tags(str(run), device="cpu", as_json=True)
    table = json.loads(capsys.readouterr().out)
    assert table["scores"][0]["value"] == 100
    assert table["most_frequent_tag"] == 7 / 8  # "can" is AUX as often as NOUN, and the first in the alphabet counts
    assert table["tags"]["VERB"] == {"precision": 1, "recall": 1, "f1": 1, "predicted": 3, "gold": 3, "correct": 3}
    assert table["spans"] is None


def test_other_files_are_evaluated_by_their_names_and_outputs_written(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.conll").write_text("I\tPRON\ngo\tNOUN\n\nOslo\tPROPN\n", encoding="utf-8")
    evaluate_tags(str(run), str(tmp_path / "x.conll"), output=str(tmp_path / "out.txt"), as_json=True, device="cpu")
    table = json.loads(capsys.readouterr().out)
    assert (table["sentences"], table["words"]) == (2, 3)
    assert ["NOUN", "VERB", 1] in table["confusion"]
    assert table["scores"][1]["signature"] == "words:1"  # Oslo is not in the training data
    assert (tmp_path / "out.txt").read_text(encoding="utf-8").startswith("I_PRON go_VERB\nOslo_")
    parent = run.parent
    files = str(parent / "train.words"), str(parent / "train.tags")
    evaluate_tags(str(run), files[0], files[1:], device="cpu", as_json=True)
    assert json.loads(capsys.readouterr().out)["words"] == 9
    with pytest.raises(ValueError, match="--source is missing"):
        evaluate_tags(str(run), None, files[1:], device="cpu")
    evaluate_tags(str(run), str(tmp_path / "x.conll"), device="cpu")
    assert "NOUN" in capsys.readouterr().out


def test_without_the_training_data_there_is_no_baseline(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.conll").write_text("I\tPRON\n", encoding="utf-8")
    words = run.parent / "train.words"
    text = words.read_text(encoding="utf-8")
    words.unlink()
    try:
        evaluate_tags(str(run), str(tmp_path / "x.conll"), device="cpu", as_json=True)
    finally:
        words.write_text(text, encoding="utf-8")
    captured = capsys.readouterr()
    assert json.loads(captured.out)["most_frequent_tag"] is None
    assert "does not exist" in captured.err
    assert "There is no baseline" in captured.err


def test_a_tagger_draws_its_confusion_matrix_and_tagged_sentences(run: Path, tmp_path: Path) -> None:
    for command in (
        ["evaluate", str(run), "--figure", str(tmp_path / "confusion.svg")],
        ["figure", str(run), "I can go\nthe can rusts", "--kind", "tags", "-o", str(tmp_path / "tags.svg")],
    ):
        result = CliRunner().invoke(app, [*command, "--device", "cpu"], catch_exceptions=False)
        assert result.exit_code == 0
        assert Path(command[-1]).read_bytes().startswith(b"<?xml")
    with pytest.raises(ValueError, match="a tagger has no figure of kind heads; draw one of kind tags or curves"):
        regard.figure(run, "I can go", "heads")


def test_a_wrong_tag_is_marked_beside_the_correct_one() -> None:
    sentence = TaggedSentence(("I", "can"), ("PRON", "VERB"), (0.9, 0.6))
    figure = tags_figure([sentence], [["PRON", "AUX"]])
    assert [text.get_text() for text in figure.axes[0].texts][:4] == ["I", "PRON", "can", "VERB (AUX)"]
    assert len(figure.axes[0].lines) == 1
    assert not tags_figure([sentence]).axes[0].lines
