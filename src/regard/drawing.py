"""Draw a figure of a trained model or of its training: `regard.figure`.

Figures of a model come from `explore` and `analysis`, figures of its training from `train`; they do not import each
other.
"""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from regard.explore import figures
from regard.explore.adapters import Predictor
from regard.explore.figure_data import FigureOptions
from regard.explore.figures import document_figure
from regard.predict.classifier import TextClassifier
from regard.tasks import load
from regard.train.report.curves import learning_curves
from regard.train.report.log import LOG, read_log

__all__ = ["KINDS", "document_figure", "figure"]

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


def _attended_document(predictor: object, text: str, options: FigureOptions) -> Figure:
    """Classify a text and draw it."""
    if not isinstance(predictor, TextClassifier):
        raise ValueError("a figure of kind document shows what a classifier attends to; give a run that classifies")
    return document_figure(predictor(text, attention=True), title=options.title, scale=options.scale)
