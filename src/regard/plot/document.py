"""A document with the attention weights of its sentences and words, as in the figures of Yang et al. 2016."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from regard.plot import style
from regard.plot.fonts import escape_math, font_families, right_to_left

# All lengths are in points.
SIZE = 9.0  # of the words
LINE = 16.0  # height of a line
BASELINE = 11.2  # of the letters below the upper edge of a line
SPACE = 3.2  # between two words
PAD = 1.2  # of the shade around a word
MARGIN = 44.0  # for the shades of sentences and their weights
WIDTH = 460.0  # of a line of words
GAP = 4.0  # between two sentences
WORD_COLOUR = "#d62728"
SENTENCE_COLOUR = "#1f77b4"


@dataclass(frozen=True)
class PlacedWord:
    """A word of a document in the figure: its line, its distance from the margin, and its width."""

    sentence: int
    number: int
    line: int
    offset: float
    width: float


def document(
    sentences: Sequence[Sequence[str]],
    sentence_weights: Sequence[float],
    word_weights: Sequence[Sequence[float]],
    *,
    caption: str = "",
    title: str = "",
    gold: Collection[tuple[int, int]] = (),
    scale: style.ColourScale = "linear",
) -> Figure:
    """Draw a document: sentences shaded blue and words shaded red by their attention weights (Yang et al. 2016, §3.6).

    Each sentence starts on a line of its own, and a long one is wrapped. The darkest shades are those of the largest
    weights. Text in a right-to-left script runs from the right, and the shades of its sentences are on the right.

    Example:
        >>> figure = document([["It", "rained."], ["Good", "soup!"]], [0.2, 0.8], [[0.1, 0.1], [0.6, 0.2]])

    Args:
        sentences: The words of each sentence, as they are written.
        sentence_weights: The weight of each sentence.
        word_weights: The weight of each word, by sentence.
        caption: Text below the document, such as the predicted label.
        title: Title of the figure.
        gold: Words (sentence, word), counted from 0, that are known to decide; they are underlined.
        scale: How shades depend on weights.
    """
    return _draw(sentences, sentence_weights, word_weights, (), caption, title, gold, scale)


def dialogue(
    turns: Sequence[Sequence[str]],
    turn_weights: Sequence[float],
    word_weights: Sequence[Sequence[float]],
    reply: Sequence[str],
    *,
    title: str = "",
    scale: style.ColourScale = "linear",
) -> Figure:
    """Draw a conversation and the reply to it: turns shaded blue and words red by their weights (Xing et al. 2018).

    Example:
        >>> turns = [["I", "am", "Anna."], ["Who", "am", "I?"]]
        >>> figure = dialogue(turns, [0.8, 0.2], [[0.1, 0.1, 0.6], [0.1, 0.1, 0.0]], ["You", "are", "Anna."])

    Args:
        turns: The words of each turn.
        turn_weights: The weight of each turn.
        word_weights: The weight of each word, by turn.
        reply: The words of the reply, which stands below a line.
        title: Title of the figure.
        scale: How shades depend on weights.
    """
    if not reply:
        raise ValueError("the reply has no words, so there is no attention to draw")
    return _draw(turns, turn_weights, word_weights, reply, "", title, (), scale)


def _draw(
    sentences: Sequence[Sequence[str]],
    sentence_weights: Sequence[float],
    word_weights: Sequence[Sequence[float]],
    reply: Sequence[str],
    caption: str,
    title: str,
    gold: Collection[tuple[int, int]],
    scale: style.ColourScale,
) -> Figure:
    """Draw sentences with their shades, and below them a reply or a caption."""
    by_sentence = style.check_matrix(sentence_weights, (len(sentences),), "sentence_weights (sentences)")
    flat = [weight for weights in word_weights for weight in weights]
    by_word = style.check_matrix(flat, (sum(map(len, sentences)),), "word_weights (words)")
    if [len(weights) for weights in word_weights] != [len(words) for words in sentences]:
        raise ValueError("word_weights must have one weight for each word of each sentence")
    words = [word for sentence in [*sentences, reply] for word in sentence]
    fonts = font_families([*words, caption, title])
    rows = [*sentences, reply] if reply else sentences
    placed = place_words(rows, text_widths(words, fonts))
    height = LINE * (placed[-1].line + 1) + GAP * len(rows) + LINE * (1.4 * bool(caption)) + GAP * bool(reply)
    figure = style.new_figure((MARGIN + WIDTH) / 72, height / 72)
    figure.set_layout_engine("none")  # the positions of all words are known
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0, MARGIN + WIDTH)
    axes.set_ylim(height, 0)
    axes.axis("off")
    if right_to_left(words):
        axes.invert_xaxis()
    shaded = [word for word in placed if word.sentence < len(sentences)]
    shades = style.weight_norm(by_sentence, scale)(by_sentence), style.weight_norm(by_word, scale)(by_word)
    _draw_sentences(axes, shaded, by_sentence, np.asarray(shades[0]))
    _draw_words(axes, shaded, sentences, np.asarray(shades[1]), fonts, gold)
    if reply:
        _draw_reply(axes, placed[len(shaded) :], reply, fonts)
    if caption:
        axes.text(
            MARGIN, height - 0.5 * LINE, escape_math(caption), fontsize=SIZE, color=style.INK, va="center",
            ha=_start(axes), fontfamily=fonts,
        )  # fmt: skip
    if title:
        axes.set_title(escape_math(title), fontsize=10, color=style.INK, fontfamily=fonts)
    return figure


def place_words(sentences: Sequence[Sequence[str]], widths: Sequence[float]) -> list[PlacedWord]:
    """Break sentences into lines: a word that does not fit begins a new one, and so does a sentence."""
    placed: list[PlacedWord] = []
    line, remaining = -1, iter(widths)
    for sentence, words in enumerate(sentences):
        line, offset = line + 1, 0.0
        for number in range(len(words)):
            width = next(remaining)
            if offset and offset + width > WIDTH:
                line, offset = line + 1, 0.0
            placed.append(PlacedWord(sentence, number, line, offset, width))
            offset += width + SPACE
    return placed


def text_widths(words: Sequence[str], fonts: list[str], size: float = SIZE) -> list[float]:
    """Return the widths in points of words in letters of a size."""
    figure = Figure(dpi=72)
    FigureCanvasAgg(figure)
    texts = [figure.text(0, 0, escape_math(word), fontsize=size, fontfamily=fonts) for word in words]
    return [float(text.get_window_extent().width) for text in texts]


def _top(line: int, sentence: int) -> float:
    """Return the upper edge of a line."""
    return LINE * line + GAP * sentence


def _start(axes: Axes) -> str:
    """Return the alignment of a text that begins at its position and runs in the direction of the axes."""
    return "right" if axes.xaxis_inverted() else "left"


def _draw_sentences(
    axes: Axes, placed: Sequence[PlacedWord], weights: NDArray[np.float64], shades: NDArray[np.float64]
) -> None:
    """Shade the margin beside each sentence, and write its weight into it."""
    for sentence, (weight, shade) in enumerate(zip(weights, shades, strict=True)):
        lines = [word.line for word in placed if word.sentence == sentence]
        top, bottom = _top(lines[0], sentence), _top(lines[-1] + 1, sentence)
        axes.add_patch(
            Rectangle((2, top + 1), MARGIN - 12, bottom - top - 2, color=SENTENCE_COLOUR, alpha=float(shade), lw=0)
        )
        axes.text(
            2 + (MARGIN - 12) / 2, (top + bottom) / 2, f"{weight:.2f}", fontsize=7.5, va="center_baseline", ha="center",
            color="white" if shade > 0.6 else style.INK,
        )  # fmt: skip


def _draw_words(
    axes: Axes,
    placed: Sequence[PlacedWord],
    sentences: Sequence[Sequence[str]],
    shades: NDArray[np.float64],
    fonts: list[str],
    gold: Collection[tuple[int, int]],
) -> None:
    """Write the words on their shades, and underline those that are known to decide."""
    for word, shade in zip(placed, shades, strict=True):
        left, top = MARGIN + word.offset, _top(word.line, word.sentence)
        # A light red, so that black letters stay readable on it.
        axes.add_patch(
            Rectangle(
                (left - PAD, top + 1.5),
                word.width + 2 * PAD,
                LINE - 3,
                color=WORD_COLOUR,
                alpha=0.7 * float(shade),
                lw=0,
            )
        )
        axes.text(
            left, top + BASELINE, escape_math(sentences[word.sentence][word.number]), fontsize=SIZE, color=style.INK,
            va="baseline", ha=_start(axes), fontfamily=fonts,
        )  # fmt: skip
        if (word.sentence, word.number) in gold:
            axes.plot([left, left + word.width], [top + LINE - 1.5] * 2, color=style.INK, linewidth=1.1)


def _draw_reply(axes: Axes, placed: Sequence[PlacedWord], reply: Sequence[str], fonts: list[str]) -> None:
    """Write the words of a reply below a line."""
    top = _top(placed[0].line, placed[0].sentence) + GAP / 2
    axes.plot([2, MARGIN + WIDTH - 2], [top - GAP / 2] * 2, color=style.INK, linewidth=0.6)
    axes.text(2, top + BASELINE, "reply", fontsize=7.5, color=style.INK, va="baseline", ha=_start(axes))
    for word in placed:
        axes.text(
            MARGIN + word.offset, _top(word.line, word.sentence) + GAP / 2 + BASELINE, escape_math(reply[word.number]),
            fontsize=SIZE, color=style.INK, va="baseline", ha=_start(axes), fontfamily=fonts,
        )  # fmt: skip
