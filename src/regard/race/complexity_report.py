"""Write the report of measured layer costs next to the paper's table: `complexity.html`, PNG, SVG, JSON, Markdown."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from regard.analysis.complexity import LayerCost, PowerLaw, crossover_length, fit
from regard.analysis.layers import CLAIMS, KERNEL, KINDS, REACH, LayerKind
from regard.analysis.paths import TRACED_REACH, path_length, sequential_operations
from regard.files import write_atomically
from regard.plot import CurvePanel, Series, growth, save
from regard.race.summary import markdown_table
from regard.train.report import page
from regard.train.report.curves import stack_figures

TRACED_LENGTHS = (8, 16, 32)  # at which sequential operations and paths are counted
COSTS: dict[str, Callable[[LayerCost], float | None]] = {
    "seconds": lambda cost: cost.seconds,
    "FLOPs": lambda cost: cost.flops,
    "bytes": lambda cost: cost.memory,
}
COMPLEXITY_HEADINGS = (
    "layer", "paper", "FLOPs", "time", "memory", "sequential: paper",
    "counted at n = 8, 16, 32", "longest path: paper", "traced at n = 8, 16, 32",
)  # fmt: skip
CROSSOVER_HEADINGS = (
    "width d",
    "without projections, FLOPs",
    "without projections, time",
    "whole layer, FLOPs",
    "whole layer, time",
)


@dataclass(frozen=True)
class TracedLayer:
    """Sequential operations and longest paths of a layer, at the lengths in `TRACED_LENGTHS`."""

    kind: LayerKind
    sequential: list[int]
    paths: list[int]
    dilated: list[int] | None = None
    """Paths of dilated convolutions."""


def trace_layers(kinds: Sequence[LayerKind] = KINDS) -> list[TracedLayer]:
    """Count sequential operations and longest paths of each layer."""
    return [
        TracedLayer(
            kind,
            [sequential_operations(kind, n) for n in TRACED_LENGTHS],
            [path_length(kind, n) for n in TRACED_LENGTHS],
            [path_length(kind, n, dilated=True) for n in TRACED_LENGTHS] if kind == "convolutional" else None,
        )
        for kind in kinds
    ]


def write_complexity(
    folder: Path, costs: Sequence[LayerCost], traced: Sequence[TracedLayer], device: str
) -> tuple[Path, Path, Path, Path]:
    """Write the report into a folder, and return the paths of HTML, PNG, JSON and Markdown."""
    over_length, over_width = _cost_figure(costs, "length"), _cost_figure(costs, "width")
    for name, figure in (("over-length", over_length), ("over-width", over_width)):
        save(figure, folder / "figures" / f"complexity-{name}.svg")
    rows, crossovers = complexity_table(costs, traced), crossover_table(costs)
    skipped = [cost for cost in costs if cost.skipped]
    skipped_table = page.table("Passes that were skipped", ("layer", "n", "d", "reason"), [
        (cost.kind, f"{cost.length:,}", f"{cost.width:,}", cost.skipped) for cost in skipped
    ])  # fmt: skip
    sections = [
        ("The paper's table, measured", page.table("Exponents of fitted power laws", COMPLEXITY_HEADINGS, rows)),
        ("Growth with length", page.picture(over_length, "Costs over the sequence length", 1, wide=True)),
        ("Growth with width", page.picture(over_width, "Costs over the width", 2, wide=True)),
        ("Crossover", page.table("Length from which attention costs more than a recurrence", CROSSOVER_HEADINGS,
            crossovers)),
        ("Details", page.facts(_facts(costs, device))),
        ("Skipped", page.details(f"{len(skipped)} passes", skipped_table) if skipped else ""),
    ]  # fmt: skip
    lead = '<p class="soft">Vaswani et al. 2017, table 1, measured.</p>'
    html, png, data, text = (folder / f"complexity.{suffix}" for suffix in ("html", "png", "json", "md"))
    write_atomically(html, page.page("Complexity of layers", lead, sections).encode())
    write_atomically(png, stack_figures([[over_length], [over_width]]))
    write_atomically(data, json.dumps(_to_json(costs, traced, device), ensure_ascii=False, indent=1).encode())
    tables = (markdown_table(COMPLEXITY_HEADINGS, rows), markdown_table(CROSSOVER_HEADINGS, crossovers))
    write_atomically(text, ("\n\n".join(tables) + "\n").encode())
    return html, png, data, text


def complexity_table(costs: Sequence[LayerCost], traced: Sequence[TracedLayer]) -> list[list[str]]:
    """Return a row per layer with the paper's claims and the measurements, in the order of `COMPLEXITY_HEADINGS`."""
    rows = []
    for layer in traced:
        claim = CLAIMS[layer.kind]
        paths = ", ".join(map(str, layer.paths))
        if layer.dilated:
            paths += f"; dilated {', '.join(map(str, layer.dilated))}"
        fits = [_power_law(fit(costs, layer.kind, COSTS[name])) for name in ("FLOPs", "seconds", "bytes")]
        counted = ", ".join(map(str, layer.sequential))
        rows.append([layer.kind, claim.complexity, *fits, claim.sequential, counted, claim.path, paths])
    return rows


def crossover_table(costs: Sequence[LayerCost]) -> list[list[str]]:
    """Return for each width the length from which attention costs more than a recurrence; the paper says n = d."""
    rows = []
    for width in sorted({cost.width for cost in costs}):
        crossovers = [
            crossover_length(costs, kind, "recurrent", width, COSTS[name])
            for kind in ("self-attention", "self-attention layer")
            for name in ("FLOPs", "seconds")
        ]
        rows.append([f"{width:,}", *("not measured" if n is None else f"{n:,.0f}" for n in crossovers)])
    return rows


def _cost_figure(costs: Sequence[LayerCost], axis: str) -> Figure:
    """Draw costs over the lengths at the median width, or over the widths at the median length."""
    other = "width" if axis == "length" else "length"
    sizes = sorted({getattr(cost, other) for cost in costs})
    fixed = sizes[len(sizes) // 2]
    shown = [cost for cost in costs if getattr(cost, other) == fixed]
    symbol, other_symbol = ("n", "d") if axis == "length" else ("d", "n")
    panels = []
    for name, value in COSTS.items():
        series = []
        for kind in KINDS:
            points = [(getattr(cost, axis), y) for cost in shown if cost.kind == kind and (y := value(cost))]
            series.append(Series(kind, [x for x, _ in points], [y for _, y in points]))
        marks = [(float(fixed), "n = d")] if axis == "length" else []
        panels.append(CurvePanel(f"{name}, {other_symbol} = {fixed:,}", series, f"{axis} {symbol}", marks=marks))
    return growth(panels)


def _power_law(law: PowerLaw | None) -> str:
    return "–" if law is None else f"n^{law.in_length:.2f} · d^{law.in_width:.2f}"


def _facts(costs: Sequence[LayerCost], device: str) -> list[tuple[str, str]]:
    return [
        ("device", device),
        ("passes", f"{sum(cost.seconds is not None for cost in costs)} of {len(costs)} measured"),
        ("time", "one forward pass, one sequence, float32, fastest of several; on a CPU, CPU time of one thread"),
        ("FLOPs", "of matrix products; a multiply-add counts as two"),
        ("memory", "bytes saved for the backward pass, without weights and input"),
        ("n² weights", "the fused attention kernel does not save them; the whole layer does in training on a CPU"),
        ("convolution", f"k = {KERNEL}, with a gate, so twice as wide"),
        ("restricted", f"r = {2 * REACH + 1}, computed in blocks; r = {2 * TRACED_REACH + 1} for traced paths"),
        ("recurrent", "an LSTM: four gates make 16·n·d² FLOPs, so FLOPs cross at n = 4d"),
        ("paths", "layers until the last output depends on every input; for the recurrence, steps"),
    ]


def _to_json(costs: Sequence[LayerCost], traced: Sequence[TracedLayer], device: str) -> dict[str, Any]:
    fits = {
        kind: {name: asdict(law) if (law := fit(costs, kind, value)) else None for name, value in COSTS.items()}
        for kind in dict.fromkeys(cost.kind for cost in costs)
    }
    return {
        "device": device,
        "cells": [asdict(cost) for cost in costs],
        "traced": {"lengths": TRACED_LENGTHS, "layers": [asdict(layer) for layer in traced]},
        "fits": fits,
        "crossings": [dict(zip(CROSSOVER_HEADINGS, row, strict=True)) for row in crossover_table(costs)],
    }
