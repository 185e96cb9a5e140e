"""The figure of sentences with a value and a note for each word."""

import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from regard.plot import save, words
from regard.plot.words import DARKEST, STEPS

SENTENCES = [["I", "can", "go"], ["never"]]
VALUES = [[1.0, 2.0, 4.0], [0.0]]
NOTES = [["PRON", "AUX", "VERB"], ["ADV"]]


def shades(figure: Figure) -> list[float]:
    """Return the opacity of the words, without the scale."""
    patches = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    return [float(patch.get_alpha() or 0.0) for patch in patches[:-STEPS]]


def texts(figure: Figure) -> list[Text]:
    return list(figure.axes[0].texts)


def test_every_word_has_its_note_and_a_shade_in_the_order_of_the_values() -> None:
    figure = words(SENTENCES, VALUES, NOTES, label="bits", margins=["7 bits", "0 bits"])
    assert [text.get_text() for text in texts(figure)] == [
        "I", "PRON", "can", "AUX", "go", "VERB", "never", "ADV", "7 bits", "0 bits", "0", "4   bits",
    ]  # fmt: skip
    assert shades(figure) == pytest.approx([DARKEST / 4, DARKEST / 2, DARKEST, 0.0])
    assert shades(words(SENTENCES, VALUES, NOTES, largest=8.0)) == pytest.approx([DARKEST / 8, 0.1875, 0.375, 0.0])


def test_marked_words_are_underlined_and_their_notes_bold() -> None:
    assert not words(SENTENCES, VALUES, NOTES).axes[0].lines
    figure = words(SENTENCES, VALUES, NOTES, marked={(0, 2)})
    assert len(figure.axes[0].lines) == 1
    assert [text.get_text() for text in texts(figure) if text.get_fontweight() == "bold"] == ["VERB"]


def test_arabic_runs_from_the_right(tmp_path: Path) -> None:
    figure = words([["ذهب", "الطالب"]], [[0.2, 0.4]], [["VERB", "NOUN"]], margins=["1"], title="$")
    assert figure.axes[0].xaxis_inverted()
    assert {text.get_horizontalalignment() for text in texts(figure)} == {"right"}
    for suffix in ("png", "svg", "pdf"):
        assert save(figure, tmp_path / f"figure.{suffix}").stat().st_size > 1000


@pytest.mark.parametrize(
    ("values", "notes", "message"),
    [
        ([[1.0], [0.0]], NOTES, "one entry for each word of each sentence"),
        (VALUES, [["a"], ["b"]], "one entry for each word of each sentence"),
        ([[1.0, 2.0, float("nan")], [0.0]], NOTES, "not finite"),
    ],
)
def test_values_and_notes_of_other_sentences_are_an_error(
    values: list[list[float]], notes: list[list[str]], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        words(SENTENCES, values, notes)


def test_no_words_are_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        words([], [], [])
