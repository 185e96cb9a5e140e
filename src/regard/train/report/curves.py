"""Figures of a report: learning curves, a summary with scores and samples, and several figures as one image."""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from matplotlib.figure import Figure
from PIL import Image

from regard.plot import CurvePanel, Series, curves, render
from regard.plot.fonts import font_families
from regard.plot.style import INK, new_figure
from regard.score import Score
from regard.tasks import Sample
from regard.train.events import Progress, Validated
from regard.train.report.formatting import describe_end, has_perplexity, shorten
from regard.train.report.log import TrainingLog

MAX_POINTS = 400  # of a curve
MAX_CHARACTERS = 120  # of a line
SUMMARY_SAMPLES = 6


def learning_curves(log: TrainingLog, title: str = "") -> Figure | None:
    """Draw loss, perplexity, scores, learning rate and speed over the steps; None if the log has none of them."""
    points = _thin_out(log.progress)
    steps = [point.step for point in points]
    validated_steps = [event.step for event in log.validated]
    if not steps and not validated_steps:
        return None
    panels = [
        CurvePanel(f"loss (nats per {log.unit.removesuffix('s')})" if has_perplexity(log.unit) else "loss", [
            Series("training", steps, [point.loss for point in points]),
            Series("validation", validated_steps, [event.loss for event in log.validated], dots=True),
        ]),
        CurvePanel("perplexity", [
            Series("training", steps, [point.perplexity for point in points]),
            Series("validation", *_without_missing((event.step, event.perplexity) for event in log.validated),
                   dots=True),
        ] if has_perplexity(log.unit) else [], logarithmic=True),
        *_score_panels(log.validated),
        CurvePanel("learning rate", [Series("rate", steps, [point.rate for point in points])]),
        CurvePanel(f"{log.unit} per second", [Series("speed", steps, [point.tokens_per_second for point in points])]),
    ]  # fmt: skip
    filled = [_without_empty_series(panel) for panel in panels if any(len(series.x) for series in panel.series)]
    return curves(filled, title=title, columns=min((3, 4), key=lambda columns: -len(filled) % columns))


def _thin_out(progress: list[Progress]) -> list[Progress]:
    """Return at most `MAX_POINTS` events, each the mean of consecutive ones."""
    size = max(1, -(-len(progress) // MAX_POINTS))
    groups = [progress[start : start + size] for start in range(0, len(progress), size)]
    return [
        replace(
            group[-1],
            loss=fmean(event.loss for event in group),
            perplexity=fmean(event.perplexity for event in group),
            tokens_per_second=fmean(event.tokens_per_second for event in group),
        )
        for group in groups
    ]


def _without_empty_series(panel: CurvePanel) -> CurvePanel:
    return replace(panel, series=[series for series in panel.series if len(series.x)])


def _without_missing(points: Iterable[tuple[int, float | None]]) -> tuple[list[int], list[float]]:
    """Return steps and values of the points that have a value."""
    valid = [(step, value) for step, value in points if value is not None]
    return [step for step, _ in valid], [value for _, value in valid]


def _score_panels(validated: list[Validated]) -> Iterator[CurvePanel]:
    """Yield a panel for the accuracy, and one for each score of predictions."""
    steps, accuracies = _without_missing((event.step, event.accuracy) for event in validated)
    if steps:
        yield CurvePanel("accuracy (%)", [Series("accuracy", steps, [100 * share for share in accuracies], dots=True)])
    for name in dict.fromkeys(score.name for event in validated for score in event.scores):
        points = [(event.step, score.value) for event in validated for score in event.scores if score.name == name]
        yield CurvePanel(name, [Series(name, [step for step, _ in points], [value for _, value in points], dots=True)])


def summary_figure(
    name: str, log: TrainingLog, scores: Mapping[str, Sequence[Score]], samples: Sequence[Sample]
) -> Figure:
    """Draw name, scores and samples of a run as text, in any script."""
    end = describe_end(log.finished, log.unit) if log.finished else "training has not finished"
    lines = [(name, 15.0), (end, 8.5)]
    lines += [(f"{score.name} {score.value:.2f}  ({data})", 10.0) for data, group in scores.items() for score in group]
    for sample in samples[:SUMMARY_SAMPLES]:
        correct = sample.output.split() == sample.reference.split()
        lines += [("", 5.0), (sample.input, 9.5), (f"{'✓' if correct else '✗'}  {sample.output}", 9.5)]
        if not correct:
            lines.append((f"→  {sample.reference}", 9.5))
    lines = [(shorten(text, MAX_CHARACTERS), size) for text, size in lines]
    fonts = font_families(text for text, _ in lines)
    height = sum(size * 1.5 for _, size in lines) + 8
    figure = new_figure(10.0, height / 72)
    y = 1.0
    for text, size in lines:
        y -= size * 1.5 / height
        figure.text(0.01, y, text, fontsize=size, fontfamily=fonts, color=INK, parse_math=False)
    return figure


def stack_figures(rows: Sequence[Sequence[Figure]]) -> bytes:
    """Return figures, arranged in rows on white, as one PNG image."""
    images = [
        [Image.open(io.BytesIO(render(figure, "png", dpi=110))).convert("RGB") for figure in row] for row in rows if row
    ]
    gap = 24
    width = max(sum(image.width + gap for image in row) for row in images) + gap
    height = sum(max(image.height for image in row) + gap for row in images) + gap
    canvas = Image.new("RGB", (width, height), "white")
    y = gap
    for row in images:
        x = gap
        for image in row:
            canvas.paste(image, (x, y))
            x += image.width + gap
        y += max(image.height for image in row) + gap
    stream = io.BytesIO()
    canvas.save(stream, "PNG", optimize=True)
    return stream.getvalue()
