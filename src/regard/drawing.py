"""Draw a figure of a trained model or of its training: `regard.figure`.

Figures of a model come from `explore`, figures of its training from `train`; the two do not import each other.
"""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from regard.explore import figures
from regard.explore.adapters import Predictor
from regard.explore.figure_data import FigureOptions
from regard.tasks import load
from regard.train.report.curves import learning_curves
from regard.train.report.log import LOG, read_log

KINDS = (*figures.KINDS, "curves")


def figure(model: Predictor | str | Path, text: str = "", kind: str = "alignment", **options: Any) -> Figure:
    """Draw a figure of a trained model, or of a run in a folder.

    Args:
        model: What `regard.load` returns, or the folder of a run. Curves are drawn from the log in the folder.
        text: The source sentence of a translator, or the prompt of a language model.
        kind: alignment, lines, heads, positions, beam or curves.
        options: Fields of `regard.explore.figure_data.FigureOptions`, such as `layer=1, heads=[0], words=False`.

    Example:
        >>> figure = regard.figure("runs/phrasebook", "I can go alone", layer=1, heads=[0])
    """
    figures.check_kind(kind, KINDS)
    if kind != "curves":
        return figures.figure(load(model) if isinstance(model, str | Path) else model, text, kind, **options)
    if not isinstance(model, str | Path):
        raise ValueError("curves are drawn from a run's log; give the folder of the run instead of a loaded model")
    curves = learning_curves(read_log(Path(model)), FigureOptions().updated(**options).title)
    if curves is None:
        raise ValueError(f"{Path(model) / LOG} has no training step yet, so there are no curves to draw")
    return curves
