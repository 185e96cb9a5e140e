"""`regard figure`: draw a figure of a trained model, for a paper."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from regard.cli.flags import Device, Run

_CONTENT, _STYLE = "Content", "Style"

Text = Annotated[
    str,
    typer.Argument(
        metavar="TEXT", help="Sentence, prompt, text, document or picture; positions and curves do not need one."
    ),
]
Out = Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Output file: .pdf, .svg or .png.")]
Kind = Annotated[
    str, typer.Option(help="alignment, lines, heads, positions, beam, document, surprisal, tags, caption or curves.")
]
Target = Annotated[
    str | None,
    typer.Option(
        help="Translation or continuation to draw. Default: the one the model generates.", rich_help_panel=_CONTENT
    ),
]
Beam = Annotated[
    int | None, typer.Option(min=1, max=32, help="Beam width. Default: that of the recipe.", rich_help_panel=_CONTENT)
]
Part = Annotated[
    Literal["cross", "encoder", "decoder"] | None,
    typer.Option(help="Which attention. Default: cross, or decoder for a language model.", rich_help_panel=_CONTENT),
]
Layer = Annotated[
    int | None,
    typer.Option(
        help="Layer, counted from 1. Default: the one that aligns words best, or the last.", rich_help_panel=_CONTENT
    ),
]
Heads = Annotated[
    str | None, typer.Option(metavar="1,2,…", help="Heads, counted from 1. Default: all.", rich_help_panel=_CONTENT)
]
Aggregate = Annotated[
    Literal["mean", "max", "rollout"], typer.Option(help="How to combine several heads.", rich_help_panel=_CONTENT)
]
Words = Annotated[bool, typer.Option("--words/--subwords", help="Merge subwords into words.", rich_help_panel=_STYLE)]
Hide = Annotated[
    bool,
    typer.Option("--hide-special/--show-special", help="Hide special tokens such as </s>.", rich_help_panel=_STYLE),
]
Scale = Annotated[
    Literal["linear", "sqrt", "log"], typer.Option(help="Colour scale of weights.", rich_help_panel=_STYLE)
]
Threshold = Annotated[
    float, typer.Option(min=0, max=1, help="Smallest weight that is drawn as a line.", rich_help_panel=_STYLE)
]
Count = Annotated[int, typer.Option(min=1, max=4096, help="Number of positions.", rich_help_panel=_CONTENT)]
Title = Annotated[str, typer.Option(help="Title of the figure.", rich_help_panel=_STYLE)]
Dpi = Annotated[int, typer.Option(min=20, max=2400, help="Resolution of a PNG.", rich_help_panel=_STYLE)]


def figure(
    run: Run,
    text: Text = "",
    out: Out = "figure.pdf",
    kind: Kind = "alignment",
    target: Target = None,
    beam: Beam = None,
    part: Part = None,
    layer: Layer = None,
    heads: Heads = None,
    aggregate: Aggregate = "mean",
    words: Words = True,
    hide_special: Hide = True,
    scale: Scale = "linear",
    threshold: Threshold = 0.1,
    count: Count = 64,
    title: Title = "",
    dpi: Dpi = 200,
    device: Device = "auto",
) -> None:
    """Draw attention weights, a beam search tree, surprisals, tags, position encodings or learning curves.

    \b
    regard figure runs/phrasebook "I can go alone" -o alignment.pdf
    regard figure runs/phrasebook "I can go alone" --kind lines --layer 2 --heads 1,3 -o lines.svg
    regard figure runs/phrasebook "I can go alone" --kind heads --part encoder -o heads.png
    regard figure runs/phrasebook "I can go alone" --kind beam --beam 4 -o beam.pdf
    regard figure runs/phrasebook --kind positions -o positions.pdf
    regard figure runs/phrasebook --kind curves -o curves.pdf
    regard figure runs/shakespeare "To be" --kind heads -o heads.pdf
    regard figure runs/shakespeare "To be, or not to be" --kind surprisal -o surprisal.pdf
    regard figure runs/tags "Der Hund ist alt" --kind tags -o tags.pdf
    regard figure runs/scenes photo.jpg --kind caption -o caption.pdf
    regard figure runs/documents "The soup was good. It rained." --kind document -o document.pdf

    Layers and heads count from 1, as in the figures.
    """
    options: dict[str, Any] = {"target": target, "beam": beam, "part": part, "aggregate": aggregate, "words": words}
    options |= {"layer": None if layer is None else layer - 1, "heads": _head_indices(heads)}
    options |= {"specials": not hide_special, "scale": scale, "threshold": threshold, "count": count, "title": title}
    _check(text, kind, out)
    from regard.plot import save

    save(_draw(run, text, kind, device, options), Path(out), dpi=dpi)
    typer.echo(out)


def _draw(run: str, text: str, kind: str, device: str, options: dict[str, Any]) -> Any:
    """Return the figure. Layers and heads are checked first, so that an error counts them from 1 as the user does."""
    from regard.drawing import TEXT_KINDS, check_predictor
    from regard.drawing import figure as draw
    from regard.explore.adapters import make_adapter
    from regard.explore.attention import attention_layers
    from regard.explore.figure_data import FigureOptions, choose_part
    from regard.tasks import load

    if kind == "curves":
        return draw(run, kind=kind, title=options["title"])
    predictor = load(run, device)
    if kind in TEXT_KINDS:
        return draw(predictor, text, kind, title=options["title"], scale=options["scale"], beam=options["beam"])
    check_predictor(predictor, kind)
    adapter = make_adapter(predictor)
    lines = text.strip().splitlines()
    if len(lines) > 1 and adapter.task == "translation":
        raise ValueError(f"a figure shows one sentence, and these are {len(lines)} lines; draw one at a time")
    if kind in ("alignment", "lines", "heads"):
        choose_part(attention_layers(adapter.model), FigureOptions().updated(**options), first=1)
    return draw(predictor, text, kind, **options)


def _check(text: str, kind: str, out: str) -> None:
    """Raise `ValueError` for what cannot be drawn, before the model is loaded."""
    from regard.drawing import KINDS
    from regard.explore.figures import check_kind
    from regard.plot.save import format_of

    check_kind(kind, KINDS)
    format_of(Path(out))
    if not text.strip() and kind not in ("positions", "curves"):
        raise ValueError(f'a figure of kind {kind} needs a text, as in: regard figure RUN "I can go alone"')


def _head_indices(text: str | None) -> tuple[int, ...] | None:
    """Parse `1,3` into head indices counted from 0."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ValueError(f"--heads is a list of numbers such as 1,3; found {text!r}")
    return tuple(int(part) - 1 for part in parts)
