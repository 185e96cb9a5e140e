"""What `regard.figure` is: a figure of a trained model or of its run, by the name of its kind.

Pictures of a model are made in `analysis`, those of its training in `train`, which know nothing of each other.
"""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from regard.analysis import figures
from regard.analysis.view import View
from regard.train.journal import LOG, read
from regard.train.pictures import learning_curves
from regard.translator import Translator, load

KINDS = (*figures.KINDS, "curves")


def figure(of: Translator | str | Path, sentence: str = "", kind: str = "alignment", **told: Any) -> Figure:
    """A figure of a translator, or of the run in a folder: alignment, lines, heads, positions, beam or curves.

    Options go by their names, such as `layer=1, heads=[0], words=False`: see `regard.analysis.view.View`. Curves are
    drawn from a run's log, so they need its folder; other kinds load the model if a folder is given.
    """
    figures.check_kind(kind, KINDS)
    if kind != "curves":
        return figures.figure(of if isinstance(of, Translator) else load(of), sentence, kind, **told)
    if isinstance(of, Translator):
        raise ValueError("curves are drawn from a run's log, which a loaded model has not; give the folder of the run")
    drawn = learning_curves(read(Path(of)), View().told(**told).title)
    if drawn is None:
        raise ValueError(
            f"{Path(of) / LOG} tells of no step yet, so there are no curves; draw them when training has begun"
        )
    return drawn
