"""`regard classify`: print the label of each text or picture."""

import json
import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.flags import Device, Dtype, Quiet
from regard.cli.streams import line_counter, print_line, read_blocks
from regard.options.decoding import OUTPUT

if TYPE_CHECKING:
    from regard.predict import ClassifiedImage, ClassifiedText

Run = Annotated[str, typer.Argument(metavar="RUN", help="Folder of a trained classifier, or other weights in it.")]
Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE]...",
        help="Lines of text, plain or .gz, or pictures; default: standard input.",
        show_default=False,
    ),
]
Top = Annotated[
    int | None,
    typer.Option(min=1, metavar="K", help="Print the K most probable classes.", rich_help_panel=OUTPUT),
]
Probabilities = Annotated[
    bool, typer.Option("--probabilities", help="Print all classes, the most probable first.", rich_help_panel=OUTPUT)
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object per line, with all probabilities.", rich_help_panel=OUTPUT)
]
Attention = Annotated[
    bool,
    typer.Option(
        "--attention",
        help="With --json: add attention weights: spans of words and sentences, or maps over patches.",
        rich_help_panel=OUTPUT,
    ),
]


def classify(
    run: Run,
    files: Files = None,
    top: Top = None,
    probabilities: Probabilities = False,
    as_json: AsJson = False,
    attention: Attention = False,
    quiet: Quiet = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Classify texts, one per line, or pictures: print the label of each and its probability, separated by a tab.

    \b
    regard classify runs/20news < texts.txt
    echo "The engine makes a strange noise." | regard classify runs/20news --top 3
    regard classify runs/20news texts.txt --json
    regard classify runs/20news texts.txt --json --attention
    regard classify runs/digits one.png two.jpg
    ls photos/*.jpg | regard classify runs/digits --json

    There is one output line per input line, in the same order. With --top and --probabilities, columns are a class, its
    probability, the next class, its probability, and so on. If the model was trained for several labels per text, they
    are separated by commas, and the probability is that these and no others are right.

    For a model of pictures, arguments are pictures, and standard input has the name of a picture on each line. The
    first column is that name. A picture that cannot be read is an error on stderr, and all others are classified.
    """
    from regard.cli.classify_images import classify_images
    from regard.cli.evaluate import task_of

    if attention and not as_json:
        raise ValueError("--attention prints weights of words or patches; use it together with --json")
    if top is not None and probabilities:
        raise ValueError("--probabilities prints all classes and --top the first of them; use one of the two")
    top = sys.maxsize if probabilities else top
    if task_of(run) == "image_classification":

        def show_image(result: "ClassifiedImage") -> str | dict[str, Any]:
            return _table(result, top) if as_json else _columns(result, top)

        classify_images(run, files or [], show_image, attention, quiet, device, dtype)
        return
    if len(files or []) > 1:
        raise ValueError(f"texts are read from one file, and these are {len(files or [])}; join them with cat")
    _classify_texts(run, (files or ["-"])[0], top, as_json, attention, quiet, device, dtype)


def _classify_texts(
    run: str, file: str, top: int | None, as_json: bool, attention: bool, quiet: bool, device: str, dtype: str
) -> None:
    """Classify the lines of a file."""
    from regard.tasks import load_classifier

    classifier = load_classifier(run, device, dtype)
    number = 1
    with line_counter("classified", quiet) as count:
        for texts in read_blocks(file):
            for result in classifier(texts, attention=attention, first=number):
                print_line(json.dumps(_table(result, top), ensure_ascii=False) if as_json else _columns(result, top))
            number += len(texts)
            count(len(texts))
            sys.stdout.flush()


def _columns(result: "ClassifiedText | ClassifiedImage", top: int | None) -> str:
    """Return label and probability, or those of the most probable classes, separated by tabs."""
    if top is None:
        return f"{result.label}\t{result.probability:.4f}"
    return "\t".join(f"{label}\t{value:.4f}" for label, value in islice(result.probabilities.items(), top))


def _table(result: "ClassifiedText | ClassifiedImage", top: int | None) -> dict[str, Any]:
    """Return a result as a JSON object, with the most probable classes only if `top` is given."""
    return {**result.to_json(), "probabilities": dict(islice(result.probabilities.items(), top))}
