"""`regard figure`: draw a figure of a trained model, for a paper."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from regard.cli.flags import Device, Run

_CONTENT, _STYLE = "Content", "Style"
_DIALOGUE_OPTIONS = ("target", "beam", "turns", "title", "scale")

Text = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TEXT",
        help="Sentence, prompt, text, document, picture or table, or each turn of a conversation; positions and "
        "curves need none.",
    ),
]
Out = Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Output file: .pdf, .svg or .png.")]
Kind = Annotated[
    str,
    typer.Option(
        help="alignment, lines, heads, positions, beam, document, dialogue, patches, caption, surprisal, tags, "
        "forecast or curves."
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        "--reply",
        help="Translation, continuation or reply to draw. Default: the one the model generates.",
        rich_help_panel=_CONTENT,
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
Turns = Annotated[
    int | None,
    typer.Option(
        min=1, help="Number of turns that a chatbot reads. Default: as in training.", rich_help_panel=_CONTENT
    ),
]
Title = Annotated[str, typer.Option(help="Title of the figure.", rich_help_panel=_STYLE)]
Dpi = Annotated[int, typer.Option(min=20, max=2400, help="Resolution of a PNG.", rich_help_panel=_STYLE)]


def figure(
    run: Run,
    text: Text = None,
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
    turns: Turns = None,
    title: Title = "",
    dpi: Dpi = 200,
    device: Device = "auto",
) -> None:
    """Draw attention, a beam search tree, a conversation, a forecast, surprisals, tags, positions or learning curves.

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
    regard figure runs/etth1 ETTh1.csv --kind forecast -o forecast.pdf
    regard figure runs/scenes photo.jpg --kind caption -o caption.pdf
    regard figure runs/documents "The soup was good. It rained." --kind document -o document.pdf
    regard figure runs/chat "I am Anna." "Hi Anna." "Who am I?" --kind dialogue -o dialogue.pdf
    regard figure runs/digits digit.png --kind patches -o patches.png

    Layers and heads count from 1, as in the figures.
    """
    options: dict[str, Any] = {"target": target, "beam": beam, "part": part, "aggregate": aggregate, "words": words}
    options |= {"layer": None if layer is None else layer - 1, "heads": _head_indices(heads)}
    options |= {"specials": not hide_special, "scale": scale, "threshold": threshold, "count": count, "title": title}
    options["turns"] = turns
    texts = text or []
    _check(texts, kind, out)
    from regard.plot import save

    save(_draw(run, texts, kind, device, options), Path(out), dpi=dpi)
    typer.echo(out)


def _draw(run: str, texts: list[str], kind: str, device: str, options: dict[str, Any]) -> Any:
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
    if kind == "dialogue":
        return draw(predictor, texts, kind, **{name: options[name] for name in _DIALOGUE_OPTIONS})
    text = texts[0] if texts else ""
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


def _check(texts: list[str], kind: str, out: str) -> None:
    """Raise `ValueError` for what cannot be drawn, before the model is loaded."""
    from regard.drawing import KINDS
    from regard.explore.figures import check_kind
    from regard.plot.save import format_of

    check_kind(kind, KINDS)
    format_of(Path(out))
    if len(texts) > 1 and kind != "dialogue":
        raise ValueError(f"a figure of kind {kind} shows one text, and these are {len(texts)}; put it in quotes")
    if not "".join(texts).strip() and kind not in ("positions", "curves"):
        needed = 'a text, as in: regard figure RUN "I can go alone"'
        if kind == "patches":
            needed = "a picture, as in: regard figure RUN digit.png --kind patches"
        raise ValueError(f"a figure of kind {kind} needs {needed}")


def _head_indices(text: str | None) -> tuple[int, ...] | None:
    """Parse `1,3` into head indices counted from 0."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ValueError(f"--heads is a list of numbers such as 1,3; found {text!r}")
    return tuple(int(part) - 1 for part in parts)
