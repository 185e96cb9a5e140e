"""`regard caption`: describe pictures."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.flags import Device, Dtype, Quiet, given, with_options
from regard.cli.streams import line_counter, print_line
from regard.options import CaptionOptions
from regard.options.decoding import OUTPUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from regard.predict import Caption, Captioner

BLOCK = 16  # pictures that are described at a time

Run = Annotated[str, typer.Argument(metavar="RUN", help="Folder of a trained captioner, or other weights in it.")]
Pictures = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PICTURE",
        help="Pictures, folders of pictures, or text files with a name on each line; default: names from stdin.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.", rich_help_panel=OUTPUT)]
Attention = Annotated[
    bool,
    typer.Option(
        "--attention", help="With --json: add the weights of each word over the picture.", rich_help_panel=OUTPUT
    ),
]


@with_options(CaptionOptions)
def caption(
    run: Run,
    pictures: Pictures = None,
    as_json: AsJson = False,
    attention: Attention = False,
    quiet: Quiet = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
    **options: Any,
) -> None:
    """Describe pictures of any size: print the name of each and its caption, separated by a tab.

    \b
    regard caption runs/scenes photo.jpg
    regard caption runs/scenes photos --beam 5 --nbest 3
    regard caption runs/scenes a.png b.webp --sample --temperature 0.7 --seed 1
    ls *.jpg | regard caption runs/scenes --json --attention
    regard caption runs/scenes scene:test/1/7

    A picture that cannot be read is reported and left out; the exit code is then 1. Files may be PNG, JPEG, WebP and
    whatever else Pillow reads.
    """
    from regard.tasks import load_captioner

    if attention and not as_json:
        raise ValueError("--attention prints tables of weights; use it together with --json")
    captioner = load_captioner(run, device, dtype)
    chosen = given(options)
    captioner.options.override(**chosen)
    failures, block = 0, list[str]()
    with line_counter("described", quiet) as count:

        def flush() -> int:
            failed = _describe(captioner, block, chosen, as_json, attention)
            count(len(block))
            block.clear()
            sys.stdout.flush()
            return failed

        for name in _names(pictures):
            block.append(name)
            if len(block) == BLOCK:
                failures += flush()
        failures += flush()
    if failures:
        raise typer.Exit(1)


def _names(given_names: "Sequence[str] | None") -> "Iterator[str]":
    """Yield the names of all pictures."""
    from regard.predict.captioner import is_picture_file

    if not given_names:
        yield from (name for line in sys.stdin if (name := line.strip()))
        return
    for name in given_names:
        path = Path(name)
        if path.is_dir():
            yield from map(str, sorted(file for file in path.iterdir() if is_picture_file(file)))
        elif path.suffix in (".txt", ".lst") and path.is_file():
            yield from (line for row in path.read_text("utf-8").splitlines() if (line := row.strip()))
        else:
            yield name


def _describe(
    captioner: "Captioner", names: "Sequence[str]", options: dict[str, Any], as_json: bool, attention: bool
) -> int:
    """Describe some pictures, print the captions, and return how many pictures could not be read."""
    import torch

    pixels, readable = [], []
    for name in names:
        try:
            pixels.append(captioner.read([name]))
            readable.append(name)
        except ValueError as error:
            typer.echo(f"regard: error: {error}", err=True)
    if readable:
        chosen = captioner.options.override(**options)
        found = captioner.describe_pixels(torch.cat(pixels), chosen, attention)
        for name, result in zip(readable, found, strict=True):
            _print(name, result, as_json)
    return len(names) - len(readable)


def _print(name: str, result: "Caption", as_json: bool) -> None:
    """Print the caption of a picture, or all captions of an n-best list."""
    if as_json:
        print_line(json.dumps({"image": name, **result.to_json()}, ensure_ascii=False))
        return
    for one in result.nbest:
        columns = (name, one.text) if len(result.nbest) == 1 else (name, f"{one.score:.4f}", one.text)
        print_line("\t".join(columns))
