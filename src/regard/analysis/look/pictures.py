"""A figure for a paper as a file, and the lines of Python that make it again."""

from collections.abc import Iterator

import numpy as np

from regard.analysis.look.answers import LAST, Said
from regard.analysis.look.questions import Figure
from regard.analysis.look.subject import Subject

TYPES = {"svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf"}
_TOLD = (
    *("target", "target_ids", "beam", "part", "layer", "heads", "aggregate", "words", "specials", "scale"),
    *("threshold", "count", "title"),
)


def figure(subject: Subject, asked: Figure) -> Iterator[Said]:
    """A figure's bytes."""
    # matplotlib takes a while to load, and most never ask for a figure.
    from regard.analysis import figures
    from regard.plot import render

    told = {name: value for name in _TOLD if (value := getattr(asked, name)) is not None}
    if asked.figure != "positions":
        subject.source(asked.source)
    drawn = figures.figure(subject.translator, asked.source, asked.figure, **told)
    file = np.frombuffer(render(drawn, asked.form), np.uint8)
    run = subject.about.run or f"runs/{subject.name}"
    message = {
        "kind": "figure",
        "name": f"{subject.name}-{asked.figure}.{asked.form}",
        "type": TYPES[asked.form],
        "python": figures.python_lines(run, asked.source, asked.figure, **told),
    }
    yield {**message, **LAST}, {"file": file}
