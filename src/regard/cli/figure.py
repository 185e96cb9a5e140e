"""`regard figure`: a figure of a trained model for a paper."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

_WHAT, _HOW = "What is shown", "How it is drawn"

Run = Annotated[str, typer.Argument(metavar="RUN", help="The folder of a trained run.")]
Sentence = Annotated[
    str, typer.Argument(metavar="[SENTENCE]", help="What is translated; positions and curves need none.")
]
Out = Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Where to: .pdf, .svg or .png.")]
Kind = Annotated[str, typer.Option(help="alignment, lines, heads, positions, beam or curves.")]
Target = Annotated[
    str | None, typer.Option(help="The translation, if it is not to be searched for.", rich_help_panel=_WHAT)
]
Beam = Annotated[int | None, typer.Option(min=1, max=32, help="Hypotheses of the search.", rich_help_panel=_WHAT)]
Part = Annotated[Literal["cross", "encoder", "decoder"], typer.Option(help="Whose attention.", rich_help_panel=_WHAT)]
Layer = Annotated[
    int | None, typer.Option(help="Counted from 1; if not told, what aligns words best.", rich_help_panel=_WHAT)
]
Heads = Annotated[
    str | None, typer.Option(metavar="1,2,…", help="Counted from 1; all if not told.", rich_help_panel=_WHAT)
]
Aggregate = Annotated[
    Literal["mean", "max", "rollout"], typer.Option(help="What several heads become.", rich_help_panel=_WHAT)
]
Words = Annotated[bool, typer.Option("--words/--subwords", help="Whole words, or pieces.", rich_help_panel=_HOW)]
Hide = Annotated[
    bool,
    typer.Option("--hide-special/--show-special", help="The end of a sentence and the like.", rich_help_panel=_HOW),
]
Scale = Annotated[
    Literal["linear", "sqrt", "log"], typer.Option(help="How colours follow weights.", rich_help_panel=_HOW)
]
Threshold = Annotated[float, typer.Option(min=0, max=1, help="Least weight drawn as a line.", rich_help_panel=_HOW)]
Count = Annotated[int, typer.Option(min=1, max=4096, help="Positions drawn.", rich_help_panel=_WHAT)]
Title = Annotated[str, typer.Option(help="What stands above.", rich_help_panel=_HOW)]
Dpi = Annotated[int, typer.Option(min=20, max=2400, help="Dots an inch, of a PNG.", rich_help_panel=_HOW)]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1; a GPU if there is one.")]


def figure(
    run: Run,
    sentence: Sentence = "",
    out: Out = "figure.pdf",
    kind: Kind = "alignment",
    target: Target = None,
    beam: Beam = None,
    part: Part = "cross",
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
    """Draw where a model looks, how it searches, or how it learned.

    \b
    regard figure runs/phrasebook "I can go alone" -o alignment.pdf
    regard figure runs/phrasebook "I can go alone" --kind lines --layer 2 --heads 1,3 -o lines.svg
    regard figure runs/phrasebook "I can go alone" --kind heads --part encoder -o heads.png
    regard figure runs/phrasebook "I can go alone" --kind beam --beam 4 -o beam.pdf
    regard figure runs/phrasebook --kind positions -o positions.pdf
    regard figure runs/phrasebook --kind curves -o curves.pdf

    Layers and heads are counted from 1, as figures label them.
    """
    told: dict[str, Any] = {"target": target, "beam": beam, "part": part, "aggregate": aggregate, "words": words}
    told |= {"layer": None if layer is None else layer - 1, "heads": _numbers(heads), "specials": not hide_special}
    told |= {"scale": scale, "threshold": threshold, "count": count, "title": title}
    _check(sentence, kind, out)
    from regard.plot import save

    save(_drawn(run, sentence, kind, device, told), Path(out), dpi=dpi)
    typer.echo(out)


def _drawn(run: str, sentence: str, kind: str, device: str, told: dict[str, Any]) -> Any:
    """The figure; what a model has not is said before anything is computed, in the numbers that were typed."""
    from regard.analysis.look.parts import family_of, parts_of
    from regard.analysis.view import View, check_view
    from regard.drawing import figure as draw
    from regard.translator import load

    if kind == "curves":
        return draw(run, kind=kind, title=told["title"])
    translator = load(run, device)
    if kind in ("alignment", "lines", "heads"):
        check_view(parts_of(translator.model), View().told(**told), family_of(translator.model), first=1)
    return draw(translator, sentence, kind, **told)


def _check(sentence: str, kind: str, out: str) -> None:
    """Refuse what cannot be drawn before anything heavy is loaded."""
    from regard.analysis.figures import check_kind
    from regard.drawing import KINDS
    from regard.plot import FORMATS

    check_kind(kind, KINDS)
    if Path(out).suffix.lower().removeprefix(".") not in FORMATS:
        raise ValueError(f"{out}: a figure is written by its suffix; end it in .{', .'.join(FORMATS)}")
    lines = sentence.strip().splitlines()
    if len(lines) > 1:
        raise ValueError(f"a figure shows one sentence, and these are {len(lines)} lines; draw each by itself")
    if not lines and kind not in ("positions", "curves"):
        raise ValueError(
            f'{kind} shows what becomes of a sentence; give one, as in: regard figure RUN "I can go alone"'
        )


def _numbers(told: str | None) -> tuple[int, ...] | None:
    """`1,3` as heads counted from 0."""
    if told is None:
        return None
    parts = [each.strip() for each in told.split(",")]
    if not all(each.isdecimal() for each in parts):
        raise ValueError(f"--heads is a list of numbers such as 1,3; found {told!r}")
    return tuple(int(each) - 1 for each in parts)
