"""`regard classify` for models of pictures."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import typer

from regard.cli.streams import line_counter, print_line, read_blocks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from regard.predict import ClassifiedImage, ImageClassifier

TOGETHER = 64  # pictures that are classified at once


def classify_images(
    run: str,
    files: Sequence[str],
    show: "Callable[[ClassifiedImage], str | dict[str, Any]]",
    attention: bool,
    quiet: bool,
    device: str,
    precision: str,
) -> None:
    """Classify pictures; each result is printed after the name of its picture.

    Args:
        run: Folder of the run.
        files: The pictures; without any, their names are read from standard input.
        show: Returns a result in columns, or as a JSON object.
        attention: Whether results have attention weights.
        quiet: Whether to show no progress.
        device: Device of the model.
        precision: Precision of the model.
    """
    from regard.tasks import load_image_classifier

    classifier = load_image_classifier(run, device, precision)
    failed = 0
    with line_counter("classified", quiet) as count:
        for names in _blocks(files):
            pictures = [_read(classifier, name) for name in names]
            readable = [picture for picture in pictures if not isinstance(picture, str)]
            results = iter(classifier.classify(readable, attention))
            for name, picture in zip(names, pictures, strict=True):
                if isinstance(picture, str):
                    failed += 1
                    typer.echo(f"regard: error: {picture}", err=True)
                    continue
                shown = show(next(results))
                print_line(
                    f"{name}\t{shown}"
                    if isinstance(shown, str)
                    else json.dumps({"image": name, **shown}, ensure_ascii=False)
                )
            count(len(names))
            sys.stdout.flush()
    if failed:
        raise typer.Exit(1)


def _blocks(files: Sequence[str]) -> Iterator[list[str]]:
    """Yield names of pictures: the arguments, or the lines of standard input as they arrive."""
    blocks: Iterable[Sequence[str]] = [files] if files and list(files) != ["-"] else read_blocks("-")
    for block in blocks:
        names = (name for name in block if name.strip())
        while part := list(islice(names, TOGETHER)):
            yield part


def _read(classifier: "ImageClassifier", name: str) -> "NDArray[np.uint8] | str":
    """Return a picture at the size of the model, or why it cannot be read."""
    try:
        return classifier.read(name)
    except ValueError as error:
        return str(error)
