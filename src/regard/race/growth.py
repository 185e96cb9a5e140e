"""Measured costs of layers in, their report out: the paper's table beside ours, `complexity.html`, PNG, SVG, JSON."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from regard.analysis.complexity import Cell, Fit, crossing, fit
from regard.analysis.layers import CLAIMS, KERNEL, KINDS, REACH, Kind
from regard.analysis.paths import SIGHT, path_length, sequential
from regard.files import write_whole
from regard.plot import Growth, Series, growth, save
from regard.train import page
from regard.train.pictures import stacked

TRACED = (8, 16, 32)  # lengths at which sequential operations and paths are counted
COSTS: dict[str, Callable[[Cell], float | None]] = {
    "seconds": lambda cell: cell.seconds,
    "FLOPs": lambda cell: cell.flops,
    "bytes": lambda cell: cell.memory,
}
HEADS = (
    "layer", "the paper", "FLOPs", "time", "memory", "sequential: the paper",
    "counted at n = 8, 16, 32", "longest path: the paper", "traced at n = 8, 16, 32",
)  # fmt: skip


@dataclass(frozen=True)
class Traced:
    """What was found of a layer by running it small."""

    kind: Kind
    sequential: list[int]
    paths: list[int]
    dilated: list[int] | None = None
    """Paths where convolutions skip, each k times as much as the one below."""


def trace(kinds: Sequence[Kind] = KINDS) -> list[Traced]:
    """Sequential operations and longest paths of every layer, at the lengths in `TRACED`."""
    return [
        Traced(
            kind,
            [sequential(kind, n) for n in TRACED],
            [path_length(kind, n) for n in TRACED],
            [path_length(kind, n, dilated=True) for n in TRACED] if kind == "convolutional" else None,
        )
        for kind in kinds
    ]


def write_complexity(folder: Path, cells: Sequence[Cell], traced: Sequence[Traced], device: str) -> tuple[Path, ...]:
    """Write the report of what was measured into a folder."""
    over_length, over_width = _over(cells, "length"), _over(cells, "width")
    for name, figure in (("over-length", over_length), ("over-width", over_width)):
        save(figure, folder / "figures" / f"complexity-{name}.svg")
    rows, crossings = table(cells, traced), crossings_of(cells)
    skipped = [cell for cell in cells if cell.skipped]
    sections = [
        ("The paper's table, measured", page.table("Exponents fitted to what was measured", HEADS, rows)),
        ("Growth with length", page.picture(over_length, "Costs over the length of the sequence", 1, wide=True)),
        ("Growth with width", page.picture(over_width, "Costs over the width of the layer", 2, wide=True)),
        ("Where the lines cross", page.table(
            "Length from which on attention costs more than a recurrence", CROSSING_HEADS, crossings)),
        ("Facts", page.facts(_facts(cells, device))),
        ("Skipped", page.details(f"{len(skipped)} cells", page.table("Cells not measured", ("layer", "n", "d", "why"), [
            (cell.kind, f"{cell.length:,}", f"{cell.width:,}", cell.skipped) for cell in skipped])) if skipped else ""),
    ]  # fmt: skip
    html, png, told = (folder / f"complexity.{form}" for form in ("html", "png", "json"))
    lead = '<p class="soft">Vaswani et al. 2017, table 1, by clock, by count and by gradient.</p>'
    write_whole(html, page.page("What a layer costs", lead, sections).encode())
    write_whole(png, stacked([[over_length], [over_width]]))
    write_whole(told, json.dumps(_json(cells, traced, device), ensure_ascii=False, indent=1).encode())
    write_whole(
        folder / "complexity.md", (_markdown(HEADS, rows) + "\n" + _markdown(CROSSING_HEADS, crossings)).encode()
    )
    return html, png, told, folder / "complexity.md"


def table(cells: Sequence[Cell], traced: Sequence[Traced]) -> list[list[str]]:
    """The paper's claims with what was found beside each."""
    rows = []
    for each in traced:
        claim = CLAIMS[each.kind]
        paths = ", ".join(map(str, each.paths))
        if each.dilated:
            paths += f"; dilated {', '.join(map(str, each.dilated))}"
        fits = [_power(fit(cells, each.kind, COSTS[name])) for name in ("FLOPs", "seconds", "bytes")]
        counted = ", ".join(map(str, each.sequential))
        rows.append([each.kind, claim.complexity, *fits, claim.sequential, counted, claim.path, paths])
    return rows


CROSSING_HEADS = ("width d", "mixing alone, FLOPs", "mixing alone, time", "whole layer, FLOPs", "whole layer, time")


def crossings_of(cells: Sequence[Cell]) -> list[list[str]]:
    """For each width, the length at which attention begins to cost more than a recurrence; the paper says n = d."""
    rows = []
    for width in sorted({cell.width for cell in cells}):
        found = [
            crossing(cells, kind, "recurrent", width, COSTS[cost])
            for kind in ("self-attention", "self-attention layer")
            for cost in ("FLOPs", "seconds")
        ]
        rows.append([f"{width:,}", *("not within" if each is None else f"{each:,.0f}" for each in found)])
    return rows


def _over(cells: Sequence[Cell], column: str) -> Figure:
    """Costs over lengths at a middle width, or over widths at a middle length; cells of all kinds measured there."""
    other = "width" if column == "length" else "length"
    there = sorted({getattr(cell, other) for cell in cells})
    fixed = there[len(there) // 2]
    shown = [cell for cell in cells if getattr(cell, other) == fixed]
    panels = []
    for name, cost in COSTS.items():
        series = []
        for kind in KINDS:
            points = [(getattr(cell, column), value) for cell in shown if cell.kind == kind and (value := cost(cell))]
            series.append(Series(kind, [x for x, _ in points], [y for _, y in points]))
        marks = [(float(fixed), "n = d")] if column == "length" else []
        letter = "n" if column == "length" else "d"
        panels.append(
            Growth(f"{name}, {'d' if letter == 'n' else 'n'} = {fixed:,}", series, f"{column} {letter}", marks)
        )
    return growth(panels)


def _power(found: Fit | None) -> str:
    """A fitted power law as people write it."""
    return "–" if found is None else f"n^{found.in_length:.2f} · d^{found.in_width:.2f}"


def _facts(cells: Sequence[Cell], device: str) -> list[tuple[str, str]]:
    return [
        ("device", device),
        ("cells", f"{sum(cell.seconds is not None for cell in cells)} of {len(cells)} measured"),
        (
            "one pass",
            "forward, one sequence, float32; the quickest of several; on a CPU by one thread, in its own time",
        ),
        ("FLOPs", "of matrix products, two for a multiplication and an addition"),
        ("memory", "bytes kept for the way back besides weights and input"),
        (
            "n² weights",
            "are never kept by the fused kernel of the mixing; on a CPU the layer keeps them while it learns",
        ),
        ("convolution", f"k = {KERNEL}, with a gate, so twice as wide"),
        ("restricted", f"r = {2 * REACH + 1} in time, computed in blocks; {2 * SIGHT + 1} where paths are traced"),
        ("recurrent", "an LSTM, whose four gates make 16·n·d² operations, so that n = 4d is where FLOPs should cross"),
        ("paths", "layers until the last output depends on every input; of the recurrence, steps of its cell"),
    ]


def _json(cells: Sequence[Cell], traced: Sequence[Traced], device: str) -> dict[str, Any]:
    fits = {
        kind: {
            name: None if (found := fit(cells, kind, cost)) is None else asdict(found) for name, cost in COSTS.items()
        }
        for kind in dict.fromkeys(cell.kind for cell in cells)
    }
    return {
        "device": device,
        "cells": [asdict(each) for each in cells],
        "traced": {"lengths": TRACED, "layers": [asdict(each) for each in traced]},
        "fits": fits,
        "crossings": [dict(zip(CROSSING_HEADS, row, strict=True)) for row in crossings_of(cells)],
    }


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *("| " + " | ".join(r) + " |" for r in rows)]
    return "\n".join(lines) + "\n"
