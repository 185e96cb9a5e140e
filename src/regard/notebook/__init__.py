"""The explorer in a notebook: a translator and a sentence in, a widget that asks the model in the kernel out.

    translator = regard.load("runs/phrasebook")
    translator.look("I can go alone")

It works in Jupyter, VS Code, Colab and marimo, through anywidget, and needs no server and no network.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from regard.translator import Translator

if TYPE_CHECKING:
    from regard.notebook.widget import Look

__all__ = ["look"]


def look(
    translator: Translator | Mapping[str, Translator], sentence: str = "", *, state: str = "", height: int = 720
) -> "Look":
    """The explorer of a translator, or of several by name, opened on a sentence.

    `state` is what a link of the explorer has behind its `#`, such as `view=atlas&layer=2`; `height` is in pixels.
    """
    try:
        from regard.notebook.widget import Look
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("anywidget", "traitlets", "ipywidgets"):
            raise
        raise ModuleNotFoundError(
            f"looking in a notebook needs {error.name}, which is not installed; use: pip install 'regard[notebook]', "
            "or look in the browser: regard look RUN",
            name=error.name,
        ) from None
    named = translator if isinstance(translator, Mapping) else {"model": translator}
    return Look(named, sentence, state=state, height=height)
