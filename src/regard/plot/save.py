"""Render figures as PNG, SVG or PDF; the same figure always gives the same bytes."""

import io
import warnings
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from regard.files import write_atomically

FORMATS = ("png", "svg", "pdf")

# Without these settings, a version, a date or a random number would make every file different.
_METADATA: dict[str, dict[str, str | None]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}

# An SVG stores letters as outlines, which need no font on the reader's machine; a PDF embeds the font (type 42).
_SETTINGS: dict[Any, Any] = {"svg.hashsalt": "regard", "svg.fonttype": "path", "pdf.fonttype": 42}


def render(figure: Figure, form: str, *, dpi: int = 200, transparent: bool = False) -> bytes:
    """Return the figure as the bytes of a file in one of `FORMATS`, on a white or transparent background."""
    if form not in FORMATS:
        raise ValueError(f"a figure cannot be written as {form!r}; choose from {', '.join(FORMATS)}")
    stream = io.BytesIO()
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        # `font_families` has already named missing characters, once and in plain words.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        _freeze_layout(figure)
        figure.savefig(
            stream,
            format=form,
            dpi=dpi,
            facecolor="none" if transparent else "white",
            metadata=_METADATA[form],
            bbox_inches="tight",  # a label longer than expected enlarges the figure instead of being cut off
            pad_inches=0.06,
        )
    return stream.getvalue()


def save(figure: Figure, path: Path, *, dpi: int = 200) -> Path:
    """Write the figure as PNG, SVG or PDF, by the suffix of the path, and return the path."""
    write_atomically(path, render(figure, format_of(path), dpi=dpi))
    return path


def format_of(path: Path) -> str:
    """Return the format that the suffix of a path selects; raise a `ValueError` if it is none of `FORMATS`."""
    form = path.suffix.lower().removeprefix(".")
    if form not in FORMATS:
        raise ValueError(f"{path}: unknown format of a figure; use one of the suffixes .{', .'.join(FORMATS)}")
    return form


def _freeze_layout(figure: Figure) -> None:
    """Compute the layout once; otherwise every rendering would compute it again."""
    engine = figure.get_layout_engine()
    if engine is not None and figure.axes:
        engine.execute(figure)
    figure.set_layout_engine("none")
