"""Draw a figure of a trained model or of its training: `regard.figure`.

Figures of a model come from `explore` and `analysis`, figures of its training from `train`; they do not import each
other.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from regard.analysis.attention import make_rationale
from regard.explore import figures
from regard.explore.adapters import Predictor
from regard.explore.figure_data import FigureOptions
from regard.plot import document
from regard.plot.style import ColourScale
from regard.predict.classifier import ClassifiedText, TextClassifier
from regard.score.rationale import Span
from regard.tasks import load
from regard.train.report.curves import learning_curves
from regard.train.report.log import LOG, read_log

KINDS = (*figures.KINDS, "document", "curves")


def figure(
    model: Predictor | TextClassifier | str | Path, text: str = "", kind: str = "alignment", **options: Any
) -> Figure:
    """Draw a figure of a trained model, or of a run in a folder.

    Args:
        model: What `regard.load` returns, or the folder of a run. Curves are drawn from the log in the folder.
        text: The source sentence of a translator, the prompt of a language model, or the text to classify.
        kind: alignment, lines, heads, positions, beam, document or curves.
        options: Fields of `regard.explore.figure_data.FigureOptions`, such as `layer=1, heads=[0], words=False`.

    Example:
        >>> figure = regard.figure("runs/phrasebook", "I can go alone", layer=1, heads=[0])
    """
    figures.check_kind(kind, KINDS)
    if kind != "curves":
        predictor = load(model) if isinstance(model, str | Path) else model
        if kind == "document":
            return _attended_document(predictor, text, FigureOptions().updated(**options))
        if isinstance(predictor, TextClassifier):
            raise ValueError(f"a classifier has no figure of kind {kind}; draw one of kind document or curves")
        return figures.figure(predictor, text, kind, **options)
    if not isinstance(model, str | Path):
        raise ValueError("curves are drawn from a run's log; give the folder of the run instead of a loaded model")
    curves = learning_curves(read_log(Path(model)), FigureOptions().updated(**options).title)
    if curves is None:
        raise ValueError(f"{Path(model) / LOG} has no training step yet, so there are no curves to draw")
    return curves


def document_figure(
    result: ClassifiedText, gold: Sequence[Span] = (), *, title: str = "", scale: ColourScale = "linear"
) -> Figure:
    """Draw a text that was classified with attention: sentences and words shaded by their weights.

    Args:
        result: The classified text, with attention.
        gold: Spans of the words that are known to decide, which are underlined.
        title: Title of the figure.
        scale: How shades depend on weights.
    """
    rationale = make_rationale(result, gold)
    inside = [
        [number for number, (start, _) in enumerate(rationale.words) if begin <= start < end]
        for begin, end in rationale.sentences
    ]
    decide = rationale.gold_word_numbers
    return document(
        [[rationale.text[slice(*rationale.words[number])] for number in numbers] for numbers in inside],
        rationale.sentence_weights,
        [[rationale.word_weights[number] for number in numbers] for numbers in inside],
        caption=f"{result.label}, probability {result.probability:.2f}",
        title=title,
        gold={
            (sentence, place)
            for sentence, numbers in enumerate(inside)
            for place, number in enumerate(numbers)
            if number in decide
        },
        scale=scale,
    )


def _attended_document(predictor: object, text: str, options: FigureOptions) -> Figure:
    """Classify a text and draw it."""
    if not isinstance(predictor, TextClassifier):
        raise ValueError("a figure of kind document shows what a classifier attends to; give a run that classifies")
    return document_figure(predictor(text, attention=True), title=options.title, scale=options.scale)
