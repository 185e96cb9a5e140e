"""A figure to bytes: the suffix picks the format, and the same figure always gives the same bytes."""

import io
import warnings
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from regard.files import write_whole

FORMATS = ("png", "svg", "pdf")

# Without these, a date or a random number would make every file another one.
_FIXED: dict[str, dict[str, str | None]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}

# Letters as outlines look the same everywhere, whatever fonts a reader has; in a PDF the font itself is embedded.
_SETTINGS: dict[Any, Any] = {"svg.hashsalt": "regard", "svg.fonttype": "path", "pdf.fonttype": 42}


def render(figure: Figure, form: str, *, dpi: int = 200, clear: bool = False) -> bytes:
    """The figure as a file's bytes in one of `FORMATS`, on white or, where `clear`, on nothing."""
    if form not in FORMATS:
        raise ValueError(f"a figure cannot be written as {form!r}; choose from {', '.join(FORMATS)}")
    stream = io.BytesIO()
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        # What is missing was said once, in words, when the fonts were chosen.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        _settle(figure)
        figure.savefig(
            stream,
            format=form,
            dpi=dpi,
            facecolor="none" if clear else "white",
            metadata=_FIXED[form],
            bbox_inches="tight",  # a label longer than foreseen makes the figure larger, and is never cut
            pad_inches=0.06,
        )
    return stream.getvalue()


def save(figure: Figure, path: Path, *, dpi: int = 200) -> Path:
    """Write the figure as PNG, SVG or PDF, by the path's suffix."""
    form = path.suffix.lower().removeprefix(".")
    if form not in FORMATS:
        raise ValueError(f"{path}: a figure is written by its suffix; end it in .{', .'.join(FORMATS)}")
    write_whole(path, render(figure, form, dpi=dpi))
    return path


def _settle(figure: Figure) -> None:
    """Find the places of all parts once; else every drawing of the figure would find them again."""
    engine = figure.get_layout_engine()
    if engine is not None and figure.axes:
        engine.execute(figure)
    figure.set_layout_engine("none")
