"""Sentences whose words are shaded by a value each, with a note below each word: surprisals, or tags."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from regard.plot import style
from regard.plot.document import PAD, SIZE, SPACE, PlacedWord, place_words, text_widths
from regard.plot.fonts import escape_math, font_families, right_to_left

# All lengths are in points.
LINE = 27.0  # height of a line of words with their notes
GAP = 3.0  # between two sentences
WORD, NOTE = 11.6, 21.2  # of the baselines of words and notes below the upper edge of a line
NOTE_SIZE = 6.5
LEGEND = 18.0  # height of the scale below the sentences
RAMP, STEPS = 90.0, 30  # width of the scale, and its shades
BOLD = 1.15  # width of bold letters, in widths of plain ones
DARKEST = 0.75  # opacity at the largest value: black letters stay readable on it


def words(
    sentences: Sequence[Sequence[str]],
    values: Sequence[Sequence[float]],
    notes: Sequence[Sequence[str]],
    *,
    margins: Sequence[str] = (),
    marked: Collection[tuple[int, int]] = (),
    label: str = "",
    title: str = "",
    largest: float | None = None,
    scale: style.ColourScale = "linear",
) -> Figure:
    """Draw sentences with their words shaded by values, a note below each word, and a scale below them.

    Each sentence starts on a line of its own, and a long one is wrapped. Text in a right-to-left script runs from the
    right.

    Example:
        >>> figure = words([["I", "can", "go"]], [[4.1, 2.0, 9.7]], [["4.1", "2.0", "9.7"]], label="bits")

    Args:
        sentences: The words of each sentence.
        values: The value of each word, by sentence; none is negative.
        notes: What is written below each word, by sentence.
        margins: A note beside each sentence; none by default.
        marked: Words (sentence, word), counted from 0, that are underlined and whose notes are bold, such as errors.
        label: What the values are, beside the scale.
        title: Title of the figure.
        largest: The value with the darkest shade. Default: the largest one.
        scale: How shades depend on values.
    """
    if not [len(row) for row in sentences] == [len(row) for row in values] == [len(row) for row in notes]:
        raise ValueError("values and notes must have one entry for each word of each sentence")
    flat, below = ([entry for row in table for entry in row] for table in (sentences, notes))
    numbers = style.check_matrix([value for row in values for value in row], (len(flat),), "values (words)")
    fonts = font_families([*flat, *below, *margins, label, title])
    bold = [(row, place) in marked for row, sentence in enumerate(sentences) for place in range(len(sentence))]
    note_widths = np.asarray(text_widths(below, fonts, NOTE_SIZE)) * np.where(bold, BOLD, 1.0)
    widths = np.maximum(text_widths(flat, fonts), note_widths + 2 * PAD)
    placed = place_words(sentences, widths.tolist())
    indent = max([0.0, *(width + 3 * SPACE for width in text_widths(margins, fonts, NOTE_SIZE))])
    height = LINE * (placed[-1].line + 1) + GAP * len(sentences) + LEGEND
    below_width = 16.0 + RAMP + text_widths([label], fonts, NOTE_SIZE)[0] + 30.0
    width = max(below_width, *(word.offset + word.width for word in placed)) + PAD
    figure, axes = _new_page(indent, width, height, right_to_left(flat))
    norm = style.weight_norm(np.append(numbers, 0.0 if largest is None else largest), scale)
    _draw_words(axes, placed, DARKEST * np.asarray(norm(numbers)), list(zip(flat, below, strict=True)), marked, fonts)
    for sentence, text in enumerate(margins):
        line = next(word.line for word in placed if word.sentence == sentence)
        _write(axes, -indent, LINE * line + GAP * sentence + WORD, text, NOTE_SIZE, fonts, color=style.INK)
    ramp = np.linspace(float(norm.vmin or 0.0), float(norm.vmax or 0.0), STEPS)
    _draw_scale(axes, height, ramp, DARKEST * np.asarray(norm(ramp)), label, fonts)
    if title:
        axes.set_title(escape_math(title), fontsize=10, color=style.INK, fontfamily=fonts)
    return figure


def _new_page(indent: float, width: float, height: float, from_the_right: bool) -> tuple[Figure, Axes]:
    """Return an empty figure with axes in points, whose origin is above the first word."""
    figure = style.new_figure((indent + width) / 72, height / 72)
    figure.set_layout_engine("none")  # the positions of all words are known
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(-indent, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    if from_the_right:
        axes.invert_xaxis()
    return figure, axes


def _write(axes: Axes, at: float, baseline: float, text: str, size: float, fonts: list[str], **options: Any) -> None:
    """Write a text that begins at a position and runs in the direction of the axes."""
    start = "right" if axes.xaxis_inverted() else "left"
    axes.text(at, baseline, escape_math(text), fontsize=size, va="baseline", ha=start, fontfamily=fonts, **options)


def _draw_words(
    axes: Axes,
    placed: Sequence[PlacedWord],
    shades: NDArray[np.float64],
    texts: Sequence[tuple[str, str]],
    marked: Collection[tuple[int, int]],
    fonts: list[str],
) -> None:
    """Write the words on their shades, and the notes below them."""
    for word, shade, (text, note) in zip(placed, shades, texts, strict=True):
        left, top = word.offset, LINE * word.line + GAP * word.sentence
        box = (left - PAD, top + 1.5), word.width + 2 * PAD, WORD + 2.5
        axes.add_patch(Rectangle(*box, color=style.ACCENT, alpha=float(shade), lw=0))
        _write(axes, left, top + WORD, text, SIZE, fonts, color=style.INK)
        if (word.sentence, word.number) in marked:
            _write(axes, left, top + NOTE + 1, note, NOTE_SIZE, fonts, color=style.INK, fontweight="bold")
            axes.plot([left, left + word.width], [top + WORD + 4] * 2, color=style.INK, linewidth=1.1)
        else:
            _write(axes, left, top + NOTE + 1, note, NOTE_SIZE, fonts, color=style.INK)


def _draw_scale(
    axes: Axes, height: float, values: NDArray[np.float64], shades: NDArray[np.float64], label: str, fonts: list[str]
) -> None:
    """Draw the shades of values from the smallest to the largest, in the last line of the figure."""
    baseline, number = height - 4.0, "{:.3g}".format
    _write(axes, 0.0, baseline, number(values[0]), NOTE_SIZE, fonts, color=style.INK)
    for step, shade in enumerate(shades):
        place = 12.0 + RAMP * step / STEPS
        box = (place, baseline - 6.0), RAMP / STEPS, 7.0
        axes.add_patch(Rectangle(*box, color=style.ACCENT, alpha=float(shade), lw=0))
    _write(axes, 16.0 + RAMP, baseline, f"{number(values[-1])}   {label}", NOTE_SIZE, fonts, color=style.INK)
