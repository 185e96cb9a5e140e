"""Show the explorer in a notebook: a widget that asks the model in the kernel.

    model = regard.load("runs/phrasebook")
    model.look("I can go alone")

It uses anywidget and works in Jupyter, VS Code, Colab and marimo, without a server and without a network.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from regard.explore import ExploredPredictor

if TYPE_CHECKING:
    from regard.notebook.widget import ExplorerWidget

__all__ = ["look"]


def look(
    predictor: ExploredPredictor | Mapping[str, ExploredPredictor],
    text: str = "",
    *,
    state: str = "",
    height: int = 720,
) -> "ExplorerWidget":
    """Open the explorer on a text.

    Args:
        predictor: What `regard.load` returns, or several by name.
        text: The source sentence of a translator, the beginning of a language model's text, the text to classify, or a
            conversation with a turn on each line.
        state: The part of an explorer link after `#`, such as `view=atlas&layer=2`.
        height: Height in pixels.

    Example:
        >>> regard.look(regard.load("runs/phrasebook"), "I can go alone", state="view=atlas")
    """
    try:
        from regard.notebook.widget import ExplorerWidget
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("anywidget", "traitlets", "ipywidgets"):
            raise
        raise ModuleNotFoundError(
            f"the explorer in a notebook needs {error.name}, which is not installed; use: "
            "pip install 'regard[notebook]', or open the explorer in the browser: regard look RUN",
            name=error.name,
        ) from None
    named = predictor if isinstance(predictor, Mapping) else {"model": predictor}
    return ExplorerWidget(named, text, state=state, height=height)
