"""The pictures of a report: how learning went, what came of it, and several figures as one."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from matplotlib.figure import Figure
from PIL import Image

from regard.plot import Panel, Series, curves, render
from regard.plot.lettering import families
from regard.plot.style import INK, sheet
from regard.score import Score
from regard.train.events import Progress, Sample, Validated
from regard.train.journal import Log
from regard.train.wording import ending, short

POINTS = 400  # readings a curve shows
LINE = 120  # letters of a line


def learning_curves(log: Log, title: str = "") -> Figure | None:
    """Loss, perplexity, scores, rate and speed over the steps; none where nothing was told yet."""
    told = _thinned(log.progress)
    steps = [each.step for each in told]
    checked = [each.step for each in log.validated]
    if not steps and not checked:
        return None
    panels = [
        Panel("loss (nats a token)", [
            Series("training", steps, [each.loss for each in told]),
            Series("validation", checked, [each.loss for each in log.validated], dots=True),
        ]),
        Panel("perplexity", [
            Series("training", steps, [each.perplexity for each in told]),
            Series("validation", checked, [each.perplexity for each in log.validated], dots=True),
        ], logarithmic=True),
        *_score_panels(log.validated),
        Panel("learning rate", [Series("rate", steps, [each.rate for each in told])]),
        Panel("target tokens a second", [Series("speed", steps, [each.tokens_per_second for each in told])]),
    ]  # fmt: skip
    filled = [_without_empty(panel) for panel in panels if any(len(each.x) for each in panel.series)]
    return curves(filled, title=title, columns=min((3, 4), key=lambda columns: -len(filled) % columns))


def _thinned(told: list[Progress]) -> list[Progress]:
    """No more readings than a curve can show, each the mean of its neighbours."""
    size = max(1, -(-len(told) // POINTS))
    groups = [told[at : at + size] for at in range(0, len(told), size)]
    return [
        replace(
            group[-1],
            loss=fmean(each.loss for each in group),
            perplexity=fmean(each.perplexity for each in group),
            tokens_per_second=fmean(each.tokens_per_second for each in group),
        )
        for group in groups
    ]


def _without_empty(panel: Panel) -> Panel:
    kept = [series for series in panel.series if len(series.x)]
    return Panel(panel.title, kept, panel.below, panel.logarithmic)


def _score_panels(validated: list[Validated]) -> Iterator[Panel]:
    """Token accuracy, and a panel for every score that was measured on decoded text."""
    if validated:
        places = [each.step for each in validated]
        shares = [100 * each.accuracy for each in validated]
        yield Panel("token accuracy (%)", [Series("accuracy", places, shares, dots=True)])
    for name in dict.fromkeys(score.name for each in validated for score in each.scores):
        points = [(each.step, score.value) for each in validated for score in each.scores if score.name == name]
        yield Panel(name, [Series(name, [step for step, _ in points], [value for _, value in points], dots=True)])


def headline(name: str, log: Log, told: Mapping[str, Sequence[Score]], samples: Sequence[Sample]) -> Figure:
    """Name, scores and samples as a picture, in the scripts they have."""
    lines = [(name, 15.0), (ending(log.finished) if log.finished else "training has not finished", 8.5)]
    lines += [
        (f"{score.name} {score.value:.2f}  ({where})", 10.0) for where, scores in told.items() for score in scores
    ]
    for each in samples[:6]:
        right = each.translation.split() == each.reference.split()
        lines += [("", 5.0), (each.source, 9.5), (f"{'✓' if right else '✗'}  {each.translation}", 9.5)]
        if not right:
            lines.append((f"→  {each.reference}", 9.5))
    lines = [(short(text, LINE), size) for text, size in lines]
    fonts = families(text for text, _ in lines)
    height = sum(size * 1.5 for _, size in lines) + 8
    figure = sheet(10.0, height / 72)
    y = 1.0
    for text, size in lines:
        y -= size * 1.5 / height
        figure.text(0.01, y, text, fontsize=size, fontfamily=fonts, color=INK, parse_math=False)
    return figure


def stacked(rows: Sequence[Sequence[Figure]]) -> bytes:
    """Figures in rows as one picture on white."""
    pictures = [[Image.open(io.BytesIO(render(each, "png", dpi=110))).convert("RGB") for each in row] for row in rows]
    pictures = [row for row in pictures if row]
    gap = 24
    width = max(sum(each.width + gap for each in row) for row in pictures) + gap
    height = sum(max(each.height for each in row) + gap for row in pictures) + gap
    whole = Image.new("RGB", (width, height), "white")
    y = gap
    for row in pictures:
        x = gap
        for each in row:
            whole.paste(each, (x, y))
            x += each.width + gap
        y += max(each.height for each in row) + gap
    stream = io.BytesIO()
    whole.save(stream, "PNG", optimize=True)
    return stream.getvalue()
