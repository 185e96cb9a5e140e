"""Figures of a translator show the weights of its model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import regard
from regard.data.phrasebook import phrases
from regard.explore import Inspection, inspect
from regard.explore.attention import attention_layers
from regard.explore.figure_data import FigureOptions, LabelledWeights, select_weights
from regard.explore.figures import figure, python_code
from regard.models.build import build
from regard.plot import render, save
from regard.predict import AlignmentHead, Translator
from regard.predict.alignment import word_weights
from regard.predict.scoring import tokenize_pair
from regard.recipe import load as load_recipe
from regard.recipe import parse
from regard.tasks import load_translator
from regard.text import Tokenizers
from regard.train.events import Progress, Started
from regard.train.report.log import LogWriter

ROOT = Path(__file__).resolve().parents[2]
PHRASE = next(iter(phrases("de", "train", 20)))


@pytest.fixture(scope="module")
def translator(memorised: Path) -> Translator:
    return load_translator(memorised, "cpu")


@pytest.fixture(scope="module")
def inspection(translator: Translator) -> Inspection:
    return inspect(translator, PHRASE.source, PHRASE.target)


def weights_shown(translator: Translator, inspection: Inspection, **overrides: Any) -> LabelledWeights:
    options, layers = FigureOptions().updated(**overrides), attention_layers(translator.model)
    part = options.part or "cross"
    return select_weights(
        inspection, part, options, translator.alignment_head, [layer.weights for layer in layers[part]]
    )


def untrained(name: str) -> Translator:
    """Build an untrained translator of a family."""
    tokenizers = Tokenizers.learn([(phrase.source, phrase.target) for phrase in phrases("de", "train", 20)], size=400)
    recipe = load_recipe(ROOT / "recipes" / f"{name}.toml", [f"model.{key}=16" for key in ("width", "embedding")])
    return Translator(build(recipe.model, len(tokenizers["source"]), len(tokenizers["target"])), tokenizers)


def words_of(figure: Figure) -> tuple[list[str], list[str]]:
    axes = figure.axes[0]
    rows, columns = axes.get_yticklabels(), axes.get_xticklabels()
    return [label.get_text() for label in rows], [label.get_text() for label in columns]


def test_a_map_has_the_words_of_the_translation_and_of_the_sentence(translator: Translator) -> None:
    rows, columns = words_of(figure(translator, PHRASE.source))
    assert rows == translator(PHRASE.source).text.split()
    assert columns == PHRASE.source.split()


def test_a_given_translation_is_drawn_instead_of_a_found_one(translator: Translator) -> None:
    rows, _ = words_of(figure(translator, PHRASE.source, target="Ich sah die Katze"))
    assert rows == ["Ich", "sah", "die", "Katze"]
    ids = translator.tokenizers["target"].encode("Ich sah die Katze")
    assert words_of(figure(translator, PHRASE.source, target_ids=ids))[0] == rows


@pytest.mark.parametrize(
    "head", [AlignmentHead("decoder.layers.1.cross.weights", 1, True), AlignmentHead("decoder.layers.0.cross.weights")]
)
def test_by_default_a_figure_shows_the_weights_of_the_alignment_head(
    translator: Translator, inspection: Inspection, head: AlignmentHead
) -> None:
    tokens = tokenize_pair(translator, (PHRASE.source, PHRASE.target))
    (forced,) = translator.teacher_force([tokens.ids], attention=True)
    expected = word_weights(head.weights(forced.attention), *tokens.words)
    taps = [attention.weights for attention in attention_layers(translator.model)["cross"]]
    selected = select_weights(inspection, "cross", FigureOptions(), head, taps)
    np.testing.assert_allclose(selected.weights, expected / expected.sum(1, keepdims=True), atol=1e-5)


def test_rows_sum_to_one_with_symbols_and_without(translator: Translator, inspection: Inspection) -> None:
    for options in ({"specials": True}, {"specials": False}, {"words": False}, {"part": "decoder", "specials": True}):
        selected = weights_shown(translator, inspection, **{"layer": 0, **options})
        np.testing.assert_allclose(selected.weights.sum(1), 1.0, atol=1e-5)
        assert selected.weights.shape == (len(selected.rows), len(selected.columns))


def test_hidden_symbols_are_neither_row_nor_column(translator: Translator, inspection: Inspection) -> None:
    with_symbols = weights_shown(translator, inspection, specials=True, layer=0)
    without = weights_shown(translator, inspection, layer=0)
    assert with_symbols.columns == [*without.columns, "</s>"]
    assert with_symbols.rows == [*without.rows, "</s>"]


def test_a_decoder_attends_to_the_start_symbol_and_to_no_later_token(
    translator: Translator, inspection: Inspection
) -> None:
    selected = weights_shown(translator, inspection, part="decoder", layer=1, words=False, specials=True)
    assert selected.columns[0] == "<s>"
    assert selected.columns[1:] == selected.rows[:-1]
    assert np.triu(selected.weights, 1).max() == 0


def test_the_weight_of_a_word_is_the_sum_over_its_subwords(translator: Translator, inspection: Inspection) -> None:
    pieces = weights_shown(translator, inspection, part="encoder", layer=0, words=False, specials=True)
    words = weights_shown(translator, inspection, part="encoder", layer=0, specials=True)
    source = inspection.source
    members = [at for at, token in enumerate(source.tokens) if token.word == 0]
    assert words.columns[0] == source.words[0]
    assert words.weights[0, 0] == pytest.approx(pieces.weights[members][:, members].sum(1).mean())


def test_heads_are_combined_by_their_mean_or_their_maximum(translator: Translator, inspection: Inspection) -> None:
    table = inspection.weights["cross", 1]
    options = {"layer": 1, "words": False, "specials": True}
    assert np.allclose(weights_shown(translator, inspection, **options).weights, table.mean(0))
    assert np.allclose(weights_shown(translator, inspection, **options, heads=[1]).weights, table[1])
    assert np.allclose(weights_shown(translator, inspection, **options, aggregate="max").weights, table.max(0))


def test_attention_rollout_multiplies_layers_mixed_equally_with_the_identity(
    translator: Translator, inspection: Inspection
) -> None:
    options: dict[str, Any] = {"words": False, "specials": True, "aggregate": "rollout"}
    first, second = (inspection.weights["decoder", layer].mean(0) for layer in (0, 1))
    unit = np.eye(len(first))
    expected = (0.5 * second + 0.5 * unit) @ (0.5 * first + 0.5 * unit)
    assert np.allclose(weights_shown(translator, inspection, part="decoder", layer=1, **options).weights, expected)
    encoder = 0.5 * inspection.weights["encoder", 0].mean(0) + 0.5 * np.eye(len(inspection.source.tokens))
    cross = inspection.weights["cross", 1].mean(0) @ encoder
    assert np.allclose(weights_shown(translator, inspection, layer=1, **options).weights, cross, atol=1e-6)


def test_captions_count_layers_and_heads_from_one(translator: Translator, inspection: Inspection) -> None:
    assert (
        weights_shown(translator, inspection, layer=1, heads=[0]).caption
        == "attention weight\n(cross, layer 2, head 1)"
    )
    assert (
        weights_shown(translator, inspection, layer=0).caption == "attention weight\n(cross, layer 1, mean of 2 heads)"
    )


def test_a_grid_of_heads_names_the_chosen_ones(translator: Translator) -> None:
    drawn = figure(translator, PHRASE.source, "heads", layer=1, heads=[1])
    assert (drawn.axes[0].get_title(), drawn.axes[0].get_ylabel()) == ("head 2", "layer 2")
    all_heads = figure(translator, PHRASE.source, "heads")
    assert len(all_heads.axes) == 4 + 1  # two layers of two heads, and the colour bar


def test_the_best_path_of_a_beam_figure_is_the_translation(translator: Translator) -> None:
    drawn = figure(translator, PHRASE.source, "beam", beam=3)
    bold = [text.get_text() for axes in drawn.axes for text in axes.texts if text.get_fontweight() == "bold"]
    translation = translator(PHRASE.source, beam=3)
    assert bold == ["<s>", *(piece.replace("▁", "") or "▁" for piece in translation.tokens), "</s>"]


def test_positions_are_drawn_if_the_model_has_position_vectors(translator: Translator) -> None:
    assert figure(translator, kind="positions", count=20).axes[0].get_ylim() == (19.5, -0.5)
    with pytest.raises(ValueError, match="adds no position vectors"):
        figure(untrained("luong"), kind="positions")


def test_a_figure_of_attention_that_the_family_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match=r"this model has no 'cross' attention to draw; it passes one vector"):
        figure(untrained("sutskever"), "I can go")
    bahdanau = untrained("bahdanau")
    with pytest.raises(ValueError, match=r"this model has no 'encoder' attention to draw; it has: cross"):
        figure(bahdanau, "I can go", "heads", part="encoder")
    assert words_of(figure(bahdanau, "I can go", target="Ich kann gehen"))[0] == ["Ich", "kann", "gehen"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "xyz"}, "there is no figure 'xyz'; figures are alignment, lines, heads, positions, beam"),
        ({"kind": "aliment"}, "there is no figure 'aliment'; did you mean alignment"),
        ({"layer": 2}, "no layer 2 in 'cross' attention; layers are 0 to 1"),
        ({"layer": -1}, "no layer -1 in"),
        ({"heads": [0, 5]}, "no head 5 in 'cross' attention; heads are 0 to 1"),
        ({"heads": []}, "the list of heads is empty"),
        ({"hed": [1]}, "a figure has no option 'hed'; did you mean heads"),
        ({"scale": "cubic"}, "unknown colour scale 'cubic'; choose linear, sqrt or log"),
        ({"aggregate": "sum"}, "mean, max or rollout, not by 'sum'"),
        ({"target": ""}, "nothing to draw but symbols"),
    ],
)
def test_an_invalid_option_is_refused_with_the_valid_ones(
    translator: Translator, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        figure(translator, PHRASE.source, **options)


def test_an_empty_sentence_is_refused(translator: Translator) -> None:
    with pytest.raises(ValueError, match="the input text is empty; type some words"):
        figure(translator, "  ")


def test_the_copied_python_code_draws_the_same_figure(
    memorised: Path, translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"layer": 1, "heads": (0,), "words": False, "target": None, "scale": "linear"}
    lines = python_code(str(memorised), PHRASE.source, "lines", **options)
    assert "layer=1, heads=[0], words=False)" in lines
    monkeypatch.chdir(tmp_path)
    exec(lines, {})
    mine = render(figure(translator, PHRASE.source, "lines", **options), "pdf")
    assert Path("lines.pdf").read_bytes() == mine


def test_curves_are_drawn_from_a_log(tmp_path: Path, translator: Translator) -> None:
    recipe = parse('[data]\ntrain = [{ to = "de", pairs = 100 }]\n')
    with pytest.raises(ValueError, match=r"no log\.jsonl"):
        regard.figure(tmp_path, kind="curves")
    with LogWriter(tmp_path) as log:
        log.write(Started(recipe, tmp_path, 1000, "CPU", 1, {"source": 500, "target": 500}, 6e3, None, 0, 20))
        with pytest.raises(ValueError, match="has no training step yet"):
            regard.figure(tmp_path, kind="curves")
        log.write(Progress(10, 0, 4.0, 2.0, 1e-3, 1.0, 900, 9e3, None, 1.0, 0.0))
    drawn = regard.figure(tmp_path, kind="curves", title="A run")
    assert drawn.axes[0].get_title(loc="left") == "loss (nats per token)"
    assert save(drawn, tmp_path / "curves.svg").read_bytes().startswith(b"<?xml")
    with pytest.raises(ValueError, match="give the folder of the run"):
        regard.figure(translator, kind="curves")
