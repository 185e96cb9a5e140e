"""`regard classify`: print the label of each text."""

import json
import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.flags import Device, Dtype, File, Quiet
from regard.cli.streams import line_counter, print_line, read_blocks
from regard.options.decoding import OUTPUT

if TYPE_CHECKING:
    from regard.predict import ClassifiedText

Run = Annotated[str, typer.Argument(metavar="RUN", help="Folder of a trained classifier, or other weights in it.")]
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
        help="With --json: add spans of words and sentences with their attention weights.",
        rich_help_panel=OUTPUT,
    ),
]


def classify(
    run: Run,
    file: File = "-",
    top: Top = None,
    probabilities: Probabilities = False,
    as_json: AsJson = False,
    attention: Attention = False,
    quiet: Quiet = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Classify texts, one per line: print the label of each and its probability, separated by a tab.

    \b
    regard classify runs/20news < texts.txt
    echo "The engine makes a strange noise." | regard classify runs/20news --top 3
    regard classify runs/20news texts.txt --json
    regard classify runs/20news texts.txt --json --attention

    There is one output line per input line, in the same order. With --top and --probabilities, columns are a class, its
    probability, the next class, its probability, and so on. If the model was trained for several labels per text, they
    are separated by commas, and the probability is that these and no others are right.
    """
    from regard.tasks import load_classifier

    if attention and not as_json:
        raise ValueError("--attention prints spans of the text; use it together with --json")
    if top is not None and probabilities:
        raise ValueError("--probabilities prints all classes and --top the first of them; use one of the two")
    classifier = load_classifier(run, device, dtype)
    if probabilities:
        top = len(classifier.classes)
    number = 1
    with line_counter("classified", quiet) as count:
        for texts in read_blocks(file):
            for result in classifier(texts, attention=attention, first=number):
                print_line(_json_line(result, top) if as_json else _columns(result, top))
            number += len(texts)
            count(len(texts))
            sys.stdout.flush()


def _columns(result: "ClassifiedText", top: int | None) -> str:
    """Return label and probability, or those of the most probable classes, separated by tabs."""
    if top is None:
        return f"{result.label}\t{result.probability:.4f}"
    return "\t".join(f"{label}\t{value:.4f}" for label, value in islice(result.probabilities.items(), top))


def _json_line(result: "ClassifiedText", top: int | None) -> str:
    """Return a result as JSON on one line, with the most probable classes only if `top` is given."""
    table = result.to_json()
    table["probabilities"] = dict(islice(result.probabilities.items(), top))
    return json.dumps(table, ensure_ascii=False)
