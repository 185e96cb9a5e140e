"""Write the report of a run, `report.html` and `report.png`: curves, scores, samples, attention maps, recipe."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from regard.bundle import load_scores
from regard.files import write_atomically
from regard.plot import alignment
from regard.run_files import RECIPE
from regard.score import Score
from regard.tasks import AttentionMap, Sample, load_bundle, make_task
from regard.train.events import Validated
from regard.train.report import page
from regard.train.report.curves import learning_curves, stack_figures, summary_figure
from regard.train.report.formatting import describe_end, format_count, format_duration, shorten
from regard.train.report.log import TrainingLog, read_log

HTML, PNG = "report.html", "report.png"
MAX_WORD = 24  # characters of a word beside an attention map
MAX_TILES = 6  # scores in large type
MAX_MAPS = 4  # attention maps

ScoresByData = Mapping[str, Sequence[Score]]
"""Scores by the name of the data they were measured on."""


@dataclass(frozen=True)
class ReportNote:
    """A further section of a report: preformatted text and, below it, a figure."""

    heading: str
    text: str
    figure: Figure | None = None
    meaning: str = ""
    """Text alternative of the figure."""


def report_run(run: Path, device: str = "auto") -> tuple[Path, Path]:
    """Write the report of a trained run, with attention maps of its model for samples of the last validation."""
    samples = [sample for sample in read_log(run).samples if sample.input.split() and sample.output.split()]
    bundle = load_bundle(run, device)
    return write_report(run, attention=make_task(bundle.recipe).attention_maps(bundle, samples[:MAX_MAPS]))


def write_report(
    run: Path,
    *,
    attention: Sequence[AttentionMap] = (),
    scores: ScoresByData | None = None,
    samples: Sequence[Sample] | None = None,
    notes: Sequence[ReportNote] = (),
) -> tuple[Path, Path]:
    """Write the report of a run from its log and scores, and return the paths of the HTML page and the image.

    Args:
        run: Folder of the run.
        attention: Attention maps to show.
        scores: Scores to show, by the name of the data. Default: those in `scores.json`, or else those of the best
            validation.
        samples: Samples to show. Default: those of the last validation.
        notes: Further sections.
    """
    log = read_log(run)
    scores = _known_scores(run, log) if scores is None else dict(scores)
    samples = log.samples if samples is None else samples
    curves = learning_curves(log)
    maps = [_draw_map(attention_map) for attention_map in attention]
    name = log.started.recipe.name if log.started else run.name
    sections = [
        ("Scores", _score_table(scores)),
        ("Learning curves", _learning(log, curves)),
        ("Samples", "".join(page.sample(sample, _output_history(log, sample)) for sample in samples)),
        ("Attention", _attention(attention, maps)),
        *((note.heading, _note(note, len(maps) + number)) for number, note in enumerate(notes, start=1)),
        ("Facts", page.facts(_facts(run, log))),
        ("Recipe", _recipe(run)),
    ]
    html, png = run / HTML, run / PNG
    write_atomically(html, page.page(name, _lead(log, scores), sections).encode())
    summary = summary_figure(name, log, scores, samples)
    map_rows = [maps[start : start + 2] for start in range(0, len(maps), 2)]
    write_atomically(png, stack_figures([[summary], [curves] if curves else [], *map_rows]))
    return html, png


def _note(note: ReportNote, number: int) -> str:
    """Return a further section; `number` is that of its figure on the page."""
    html = f"<pre>{escape(note.text)}</pre>"
    if note.figure is None:
        return html
    picture = page.picture(note.figure, note.meaning, number, wide=True)
    return f"{html}<figure>{page.scrolled(picture, note.meaning)}</figure>"


def _known_scores(run: Path, log: TrainingLog) -> dict[str, list[Score]]:
    """Return the scores in `scores.json`, or else those of the best validation."""
    scores = dict(_find_scores(load_scores(run), ""))
    best = next((event for event in reversed(log.validated) if event.best and event.scores), None)
    if best and not scores:
        scores[f"validation, step {best.step:,}"] = list(best.scores)
    return scores


def _find_scores(value: Any, path: str) -> Iterator[tuple[str, list[Score]]]:
    """Yield all scores in nested JSON, with their path: objects with a name, a value and a signature."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    scores = [item for _, item in items if isinstance(item, dict) and {"name", "value", "signature"} <= item.keys()]
    if scores:
        keys = ("name", "value", "signature", "detail")
        parsed = [Score(**{key: item[key] for key in keys if key in item}) for item in scores]
        yield path.removesuffix(" scores"), parsed
        return
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _find_scores(item, f"{path} {name}".strip())


def _lead(log: TrainingLog, scores: ScoresByData) -> str:
    """Return how training ended, and the scores in large type."""
    end = f"Training {describe_end(log.finished, log.unit)}." if log.finished else "Training has not finished."
    values = [(f"{score.name}, {data}", f"{score.value:.2f}") for data, group in scores.items() for score in group]
    tiles = "".join(f"<div><strong>{escape(value)}</strong>{escape(name)}</div>" for name, value in values[:MAX_TILES])
    return f'<p class="soft">{escape(end)}</p><div class="big">{tiles}</div>'


def _score_table(scores: ScoresByData) -> str:
    rows = [
        (data, score.name, f"{score.value:.2f}", score.detail, score.signature)
        for data, group in scores.items()
        for score in group
    ]
    heads = ("set", "score", "value", "detail", "signature")
    caption = "Two scores are comparable if their names and signatures are equal."
    return page.table(caption, heads, rows) if rows else ""


def _learning(log: TrainingLog, curves: Figure | None) -> str:
    """Return the learning curves, and the validations as a table."""
    if curves is None:
        return ""
    meaning = "Curves of loss, perplexity, scores, learning rate and speed over the steps of training"
    figure = f"<figure>{page.scrolled(page.picture(curves, meaning, 0, wide=True), 'Curves')}</figure>"
    if not log.validated:
        return figure
    names = list(dict.fromkeys(score.name for event in log.validated for score in event.scores))
    best = max((row for row, event in enumerate(log.validated) if event.best), default=None)
    heads = ("step", "loss", "perplexity", "accuracy", *names)
    rows = [_validation_row(event, names) for event in log.validated]
    return figure + page.details(
        "validations as numbers", page.table("Validations; the best is bold.", heads, rows, best)
    )


def _validation_row(event: Validated, names: Sequence[str]) -> list[str]:
    """Return a row of the table of validations, with a dash for missing values."""
    scores = {score.name: f"{score.value:.2f}" for score in event.scores}
    return [
        f"{event.step:,}",
        f"{event.loss:.3f}",
        "–" if event.perplexity is None else f"{event.perplexity:.2f}",
        "–" if event.accuracy is None else f"{event.accuracy:.2%}",
        *(scores.get(name, "–") for name in names),
    ]


def _output_history(log: TrainingLog, sample: Sample) -> list[tuple[int, str]]:
    """Return the outputs for an input at each validation where the output changed, with their steps."""
    history: list[tuple[int, str]] = []
    for event in log.validated:
        for other in event.samples:
            if other.input == sample.input and (not history or history[-1][1] != other.output):
                history.append((event.step, other.output))
    return history


def _draw_map(attention_map: AttentionMap) -> Figure:
    """Draw an attention map; very long words, which an untrained model may write, are cut."""
    keys, queries = (
        [shorten(word, MAX_WORD) for word in words] for words in (attention_map.keys, attention_map.queries)
    )
    return alignment(attention_map.weights_QK, keys, queries, attention_map.gold)


def _attention(attention: Sequence[AttentionMap], maps: Sequence[Figure]) -> str:
    """Return the attention maps, each with a table of the word that each word attends to most."""
    figures = []
    for number, (attention_map, figure) in enumerate(zip(attention, maps, strict=True), start=1):
        weights_QK = np.asarray(attention_map.weights_QK, dtype=np.float64)
        rows = [
            (word, attention_map.keys[int(weights_K.argmax())], f"{weights_K.max():.2f}")
            for word, weights_K in zip(attention_map.queries, weights_QK, strict=True)
        ]
        keys, queries = " ".join(attention_map.keys), " ".join(attention_map.queries)
        caption = f"The word that each word of “{queries}” attends to most"
        words = page.table(caption, ("word", "attends to", "weight"), rows)
        svg = page.picture(figure, f"Attention weights of “{queries}” over “{keys}”", number)
        labels = f"<figcaption>{page.sentence(keys)}<br>{page.sentence(queries)}</figcaption>"
        figures.append(f"<figure>{svg}{labels}{page.details('as numbers', words)}</figure>")
    return f'<div class="maps">{"".join(figures)}</div>' if figures else ""


def _facts(run: Path, log: TrainingLog) -> Iterator[tuple[str, str]]:
    """Yield what a reader needs to judge or repeat the run."""
    if log.started:
        start = log.started
        yield "device", start.device + (f", {start.workers} processes" if start.workers > 1 else "")
        yield "parameters", f"{start.parameters:,}"
        yield "vocabulary", ", ".join(f"{size:,} {name}" for name, size in start.vocabulary.items())
    if log.progress:
        last = log.progress[-1]
        yield "steps", f"{last.step:,}, {last.epoch} complete epochs"
        yield log.unit, f"{last.tokens:,}"
        yield "training time", format_duration(last.seconds)
        yield f"{log.unit} per second", format_count(float(np.median([e.tokens_per_second for e in log.progress])))
        utilisations = [event.share for event in log.progress if event.share is not None]
        if utilisations:
            yield "share of the peak FLOP/s", f"{float(np.median(utilisations)):.0%}"
        if log.started:
            yield "training FLOPs", f"{log.started.flops_per_token * last.tokens:.2e}"
    for name, value in load_scores(run).items():
        if isinstance(value, str | int | float):
            yield name, str(value)
    yield "folder", run.name


def _recipe(run: Path) -> str:
    path = run / RECIPE
    return f"<pre>{escape(path.read_text(encoding='utf-8'))}</pre>" if path.is_file() else ""
