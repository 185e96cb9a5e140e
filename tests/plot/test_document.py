"""The figure of a document with attention weights."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from regard.plot import dialogue, document, save
from regard.plot.document import MARGIN, WIDTH, place_words

SENTENCES = [["It", "rained."], ["The", "soup", "was", "good", "."]]
WORD_WEIGHTS = [[0.1, 0.0], [0.0, 0.2, 0.1, 0.6, 0.0]]


def texts(figure: Figure) -> list[Text]:
    return list(figure.axes[0].texts)


def shades(figure: Figure) -> list[float]:
    """Return the opacity of all rectangles: of sentences, then of words."""
    return [float(patch.get_alpha() or 0.0) for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]


def test_every_word_and_every_sentence_has_a_shade_in_the_order_of_the_weights() -> None:
    figure = document(SENTENCES, [0.2, 0.8], WORD_WEIGHTS, caption="positive, 0.97")
    assert [text.get_text() for text in texts(figure)] == [
        "0.20", "0.80", "It", "rained.", "The", "soup", "was", "good", ".", "positive, 0.97",
    ]  # fmt: skip
    drawn = shades(figure)
    assert drawn[:2] == pytest.approx([0.25, 1.0])
    weights = [weight for sentence in WORD_WEIGHTS for weight in sentence]
    assert drawn[2:] == pytest.approx([0.7 * weight / 0.6 for weight in weights])


def test_words_that_decide_are_underlined() -> None:
    assert len(document(SENTENCES, [0.2, 0.8], WORD_WEIGHTS).axes[0].lines) == 0
    assert len(document(SENTENCES, [0.2, 0.8], WORD_WEIGHTS, gold={(1, 3), (0, 1)}).axes[0].lines) == 2


def test_a_long_sentence_is_wrapped_and_a_sentence_begins_a_line() -> None:
    placed = place_words([["a"] * 3, ["b"]], [WIDTH / 2 + 1, WIDTH / 4, WIDTH / 2, 10.0])
    assert [word.line for word in placed] == [0, 0, 1, 2]
    assert [word.offset == 0 for word in placed] == [True, False, True, True]


def test_a_word_that_is_longer_than_a_line_has_a_line_of_its_own() -> None:
    placed = place_words([["a", "b", "c"]], [10.0, 2 * WIDTH, 10.0])
    assert [word.line for word in placed] == [0, 1, 2]


def test_arabic_runs_from_the_right_and_latin_from_the_left() -> None:
    arabic = document([["لم", "يعبر", "الشارع"]], [1.0], [[0.2, 0.3, 0.5]])
    latin = document([["the", "soup", "rained"]], [1.0], [[0.2, 0.3, 0.5]])
    for figure, inverted, alignment in ((arabic, True, "right"), (latin, False, "left")):
        axes = figure.axes[0]
        assert axes.xaxis_inverted() == inverted
        assert {text.get_horizontalalignment() for text in texts(figure)[1:]} == {alignment}
        places = [axes.transData.transform((text.get_position()[0], 0))[0] for text in texts(figure)[1:]]
        assert places == sorted(places, reverse=inverted)
    assert min(text.get_position()[0] for text in texts(latin)[1:]) == MARGIN


def test_a_document_can_be_saved_in_every_format_and_dollars_are_no_formula(tmp_path: Path) -> None:
    figure = document([["It", "costs", "$5", "or", "$6"]], [1.0], [[0.2] * 5], title="Price $")
    for suffix in ("png", "svg", "pdf"):
        assert save(figure, tmp_path / f"figure.{suffix}").stat().st_size > 1000


@pytest.mark.parametrize(
    ("sentence_weights", "word_weights", "message"),
    [
        ([1.0], WORD_WEIGHTS, "sentence_weights (sentences) must have shape (2,)"),
        ([0.2, 0.8], [[0.1], [0.1]], "word_weights (words) must have shape (7,)"),
        ([0.2, 0.8], [[0.1] * 3, [0.1] * 4], "one weight for each word of each sentence"),
        ([0.2, float("nan")], WORD_WEIGHTS, "not finite"),
    ],
)
def test_weights_of_another_document_are_an_error(
    sentence_weights: list[float], word_weights: list[list[float]], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        document(SENTENCES, sentence_weights, word_weights)


def test_a_conversation_has_the_shades_of_a_document_and_the_reply_below_a_line() -> None:
    figure = dialogue(SENTENCES, [0.2, 0.8], WORD_WEIGHTS, ["Good", "soup!"], title="Soup")
    drawn = [text.get_text() for text in texts(figure)]
    assert drawn[-3:] == ["reply", "Good", "soup!"]
    assert shades(figure) == shades(document(SENTENCES, [0.2, 0.8], WORD_WEIGHTS))
    (line,) = figure.axes[0].lines
    height = float(np.asarray(line.get_ydata())[0])
    lowest = max(text.get_position()[1] for text in texts(figure)[:-3])
    assert lowest < height < min(text.get_position()[1] for text in texts(figure)[-3:])


def test_a_long_reply_is_wrapped() -> None:
    figure = dialogue([["Hi."]], [1.0], [[1.0]], ["understandable"] * 30)
    lines = sorted({text.get_position()[1] for text in texts(figure)[-30:]})
    assert len(lines) > 3
    assert lines[-1] < figure.axes[0].get_ylim()[0]


def test_a_conversation_without_a_reply_is_refused() -> None:
    with pytest.raises(ValueError, match="the reply has no words"):
        dialogue([["Hi."]], [1.0], [[1.0]], [])
