"""Figures of a translator: what they show is what the model did."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import regard
from regard.analysis.figures import figure, python_lines
from regard.analysis.look.parts import parts_of
from regard.analysis.look.reading import Reading, read_pair
from regard.analysis.view import Shown, View, one
from regard.data.phrasebook import phrases
from regard.models.build import build
from regard.plot import render, save
from regard.recipe import load as load_recipe
from regard.recipe import parse
from regard.text import Tokenizers
from regard.train.events import Progress, Started
from regard.train.journal import Journal
from regard.translator import Look, Translator, load
from regard.translator.alignment import by_word
from regard.translator.assembling import read

ROOT = Path(__file__).resolve().parents[2]
PHRASE = next(iter(phrases("de", "train", 20)))


@pytest.fixture(scope="module")
def translator(memorised: Path) -> Translator:
    return load(memorised, "cpu")


@pytest.fixture(scope="module")
def reading(translator: Translator) -> Reading:
    return read_pair(translator, PHRASE.source, PHRASE.target)


def shown(translator: Translator, reading: Reading, **told: Any) -> Shown:
    view = View().told(**told)
    return one(reading, view, translator.aligned_by, [each.weights for each in parts_of(translator.model)[view.part]])


def of_family(name: str) -> Translator:
    """A translator of some family that has learned nothing."""
    tokenizers = Tokenizers.learn([(each.source, each.target) for each in phrases("de", "train", 20)], size=400)
    told = load_recipe(ROOT / "recipes" / f"{name}.toml", [f"model.{key}=16" for key in ("width", "embedding")])
    return Translator(build(told.model, len(tokenizers.source), len(tokenizers.target)), tokenizers)


def words_of(figure: Figure) -> tuple[list[str], list[str]]:
    axes = figure.axes[0]
    return [each.get_text() for each in axes.get_yticklabels()], [each.get_text() for each in axes.get_xticklabels()]


def test_a_map_has_the_words_of_the_translation_and_of_the_sentence(translator: Translator) -> None:
    rows, columns = words_of(figure(translator, PHRASE.source))
    assert rows == translator(PHRASE.source).text.split()
    assert columns == PHRASE.source.split()


def test_a_given_translation_is_drawn_instead_of_a_found_one(translator: Translator) -> None:
    rows, _ = words_of(figure(translator, PHRASE.source, target="Ich sah die Katze"))
    assert rows == ["Ich", "sah", "die", "Katze"]
    ids = translator.tokenizers.target.encode("Ich sah die Katze")
    assert words_of(figure(translator, PHRASE.source, target_ids=ids))[0] == rows


@pytest.mark.parametrize(
    "look", [Look("decoder.layers.1.cross.weights", 1, True), Look("decoder.layers.0.cross.weights")]
)
def test_without_a_choice_it_shows_what_alignments_are_read_from(
    translator: Translator, reading: Reading, look: Look
) -> None:
    source, target = (
        read(line, tokenizer, target=side)
        for line, tokenizer, side in (
            (PHRASE.source, translator.tokenizers.source, False),
            (PHRASE.target, translator.tokenizers.target, True),
        )
    )
    (forced,) = translator.force([(source[0], target[0])], looks=True)
    expected = by_word(look.weights(forced), source[1], target[1])
    taps = [each.weights for each in parts_of(translator.model)["cross"]]
    found = one(reading, View(), look, taps)
    np.testing.assert_allclose(found.weights, expected / expected.sum(1, keepdims=True), atol=1e-5)


def test_rows_sum_to_one_with_symbols_and_without(translator: Translator, reading: Reading) -> None:
    for told in ({"specials": True}, {"specials": False}, {"words": False}, {"part": "decoder", "specials": True}):
        made = shown(translator, reading, **{"layer": 0, **told})
        np.testing.assert_allclose(made.weights.sum(1), 1.0, atol=1e-5)
        assert made.weights.shape == (len(made.rows), len(made.columns))


def test_hidden_symbols_are_neither_row_nor_column(translator: Translator, reading: Reading) -> None:
    with_symbols = shown(translator, reading, specials=True, layer=0)
    without = shown(translator, reading, layer=0)
    assert with_symbols.columns == [*without.columns, "</s>"]
    assert with_symbols.rows == [*without.rows, "</s>"]


def test_a_decoder_looks_at_its_begin_and_at_nothing_later(translator: Translator, reading: Reading) -> None:
    made = shown(translator, reading, part="decoder", layer=1, words=False, specials=True)
    assert made.columns[0] == "<s>"
    assert made.columns[1:] == made.rows[:-1]
    assert np.triu(made.weights, 1).max() == 0


def test_a_word_is_looked_at_as_much_as_its_pieces_together(translator: Translator, reading: Reading) -> None:
    pieces = shown(translator, reading, part="encoder", layer=0, words=False, specials=True)
    words = shown(translator, reading, part="encoder", layer=0, specials=True)
    source = reading.source
    members = [at for at, each in enumerate(source.pieces) if each.word == 0]
    assert words.columns[0] == source.words[0]
    assert words.weights[0, 0] == pytest.approx(pieces.weights[members][:, members].sum(1).mean())


def test_heads_are_joined_by_their_mean_or_their_largest(translator: Translator, reading: Reading) -> None:
    table = reading.weights["cross", 1]
    told = {"layer": 1, "words": False, "specials": True}
    assert np.allclose(shown(translator, reading, **told).weights, table.mean(0))
    assert np.allclose(shown(translator, reading, **told, heads=[1]).weights, table[1])
    assert np.allclose(shown(translator, reading, **told, aggregate="max").weights, table.max(0))


def test_a_rollout_multiplies_layers_half_of_which_hand_on_what_came(translator: Translator, reading: Reading) -> None:
    told: dict[str, Any] = {"words": False, "specials": True, "aggregate": "rollout"}
    first, second = (reading.weights["decoder", layer].mean(0) for layer in (0, 1))
    unit = np.eye(len(first))
    expected = (0.5 * second + 0.5 * unit) @ (0.5 * first + 0.5 * unit)
    assert np.allclose(shown(translator, reading, part="decoder", layer=1, **told).weights, expected)
    encoder = 0.5 * reading.weights["encoder", 0].mean(0) + 0.5 * np.eye(len(reading.source.pieces))
    cross = reading.weights["cross", 1].mean(0) @ encoder
    assert np.allclose(shown(translator, reading, layer=1, **told).weights, cross, atol=1e-6)


def test_what_is_shown_is_said_in_words_that_count_from_one(translator: Translator, reading: Reading) -> None:
    assert shown(translator, reading, layer=1, heads=[0]).meaning == "attention weight\n(cross, layer 2, head 1)"
    assert shown(translator, reading, layer=0).meaning == "attention weight\n(cross, layer 1, mean of 2 heads)"


def test_a_sheet_of_heads_names_those_that_were_chosen(translator: Translator) -> None:
    drawn = figure(translator, PHRASE.source, "heads", layer=1, heads=[1])
    assert (drawn.axes[0].get_title(), drawn.axes[0].get_ylabel()) == ("head 2", "layer 2")
    every = figure(translator, PHRASE.source, "heads")
    assert len(every.axes) == 4 + 1  # two layers of two heads, and the colour bar


def test_the_best_way_through_a_beam_spells_the_translation(translator: Translator) -> None:
    drawn = figure(translator, PHRASE.source, "beam", beam=3)
    bold = [text.get_text() for axes in drawn.axes for text in axes.texts if text.get_fontweight() == "bold"]
    found = translator(PHRASE.source, beam=3)
    assert bold == ["<s>", *(piece.replace("▁", "") or "▁" for piece in found.tokens), "</s>"]


def test_positions_are_drawn_where_a_model_has_vectors_of_them(translator: Translator) -> None:
    assert figure(translator, kind="positions", count=20).axes[0].get_ylim() == (19.5, -0.5)
    with pytest.raises(ValueError, match="adds no vectors of positions"):
        figure(of_family("luong"), kind="positions")


def test_what_a_family_has_not_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"\(sutskever\) has no 'cross' attention to draw; its decoder sees one vector"
    ):
        figure(of_family("sutskever"), "I can go")
    bahdanau = of_family("bahdanau")
    with pytest.raises(ValueError, match=r"\(bahdanau\) has no 'encoder' attention to draw; it has: cross"):
        figure(bahdanau, "I can go", "heads", part="encoder")
    assert words_of(figure(bahdanau, "I can go", target="Ich kann gehen"))[0] == ["Ich", "kann", "gehen"]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"kind": "xyz"}, "there is no figure 'xyz'; there are alignment, lines, heads, positions, beam"),
        ({"kind": "aliment"}, "there is no figure 'aliment'; did you mean alignment"),
        ({"layer": 2}, "no layer 2 in 'cross' attention; layers are 0 to 1"),
        ({"layer": -1}, "no layer -1 in"),
        ({"heads": [0, 5]}, "no head 5 in 'cross' attention; heads are 0 to 1"),
        ({"heads": []}, "no head was chosen"),
        ({"hed": [1]}, "a figure has no option 'hed'; did you mean heads"),
        ({"scale": "cubic"}, "linear, sqrt or log, not 'cubic'"),
        ({"aggregate": "sum"}, "mean, max or rollout, not by 'sum'"),
        ({"target": ""}, "nothing to draw but symbols"),
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(
    translator: Translator, told: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        figure(translator, PHRASE.source, **told)


def test_an_empty_sentence_is_refused(translator: Translator) -> None:
    with pytest.raises(ValueError, match="nothing to read; write a sentence"):
        figure(translator, "  ")


def test_the_copied_python_makes_the_same_figure(
    memorised: Path, translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"layer": 1, "heads": (0,), "words": False, "target": None, "scale": "linear"}
    lines = python_lines(str(memorised), PHRASE.source, "lines", **told)
    assert "layer=1, heads=[0], words=False)" in lines
    monkeypatch.chdir(tmp_path)
    exec(lines, {})
    mine = render(figure(translator, PHRASE.source, "lines", **told), "pdf")
    assert Path("lines.pdf").read_bytes() == mine


def test_curves_are_drawn_from_a_log(tmp_path: Path, translator: Translator) -> None:
    recipe = parse('[data]\ntrain = [{ to = "de", pairs = 100 }]\n')
    with pytest.raises(ValueError, match=r"no log\.jsonl"):
        regard.figure(tmp_path, kind="curves")
    with Journal(tmp_path) as journal:
        journal.write(Started(recipe, tmp_path, 1000, "CPU", 1, (500, 500), 6e3, None, 0, 20))
        with pytest.raises(ValueError, match="tells of no step yet"):
            regard.figure(tmp_path, kind="curves")
        journal.write(Progress(10, 0, 4.0, 2.0, 1e-3, 1.0, 900, 9e3, None, 1.0, 0.0))
    drawn = regard.figure(tmp_path, kind="curves", title="A run")
    assert drawn.axes[0].get_title(loc="left") == "loss (nats a token)"
    assert save(drawn, tmp_path / "curves.svg").read_bytes().startswith(b"<?xml")
    with pytest.raises(ValueError, match="give the folder of the run"):
        regard.figure(translator, kind="curves")
