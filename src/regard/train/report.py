"""A run's log in, `report.html` and `report.png` out: curves, scores, recipe, sample translations, attention maps."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from regard.bundle import load_scores
from regard.files import write_whole
from regard.names import RECIPE
from regard.plot import Links, alignment
from regard.score import Score
from regard.train import page
from regard.train.events import Sample
from regard.train.journal import Log, read
from regard.train.pictures import headline, learning_curves, stacked
from regard.train.wording import amount, duration, ending, short

HTML, PNG = "report.html", "report.png"
WORD = 24  # letters of a word beside a map


@dataclass(frozen=True)
class AttentionMap:
    """Whom each word of a translation looked at: rows are target words, columns source words."""

    source: Sequence[str]
    target: Sequence[str]
    weights_TS: ArrayLike
    gold: Links | None = None


def write_report(
    run: Path,
    *,
    attention: Sequence[AttentionMap] = (),
    scores: Mapping[str, Sequence[Score]] | None = None,
    samples: Sequence[Sample] | None = None,
) -> tuple[Path, Path]:
    """Write the report of the run in folder `run`, from its log and what is known of it.

    `scores` holds, by the name of the text, what was measured after training; without it, the scores in `scores.json`,
    or else those of the best validation, are told. `samples` replaces those of the last validation.
    """
    log = read(run)
    told = dict(scores) if scores is not None else _known_scores(run, log)
    shown = (
        samples if samples is not None else next((each.samples for each in reversed(log.validated) if each.samples), ())
    )
    learning = learning_curves(log)
    maps = [_map(each) for each in attention]
    name = log.started.recipe.name if log.started else run.name
    sections = [
        ("Scores", _score_table(told)),
        ("Learning", _learning(log, learning)),
        ("Translations", "".join(page.sample(each, _history(log, each)) for each in shown)),
        ("Attention", _attention(attention, maps)),
        ("Facts", page.facts(_facts(run, log))),
        ("Recipe", _recipe(run)),
    ]
    html, png = run / HTML, run / PNG
    write_whole(html, page.page(name, _lead(log, told), sections).encode())
    head = headline(name, log, told, shown)
    write_whole(png, stacked([[head], [learning] if learning else [], *_pairs(maps)]))
    return html, png


def _known_scores(run: Path, log: Log) -> dict[str, list[Score]]:
    """Scores in `scores.json`, by where they stand, or else those of the best validation."""
    told = dict(_found(load_scores(run), ""))
    best = next((each for each in reversed(log.validated) if each.best and each.scores), None)
    if best and not told:
        told[f"validation, step {best.step:,}"] = list(best.scores)
    return told


def _found(value: Any, where: str) -> Iterator[tuple[str, list[Score]]]:
    """Whatever has a name, a value and a signature is a score, however deep it lies."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    here = [each for _, each in parts if isinstance(each, dict) and {"name", "value", "signature"} <= each.keys()]
    if here:
        kept = ("name", "value", "signature", "detail")
        yield where.removesuffix(" scores"), [Score(**{key: each[key] for key in kept if key in each}) for each in here]
        return
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _found(each, f"{where} {name}".strip())


def _lead(log: Log, told: Mapping[str, Sequence[Score]]) -> str:
    """What it came to, in one line and a few large numbers."""
    said = f"Training {ending(log.finished)}." if log.finished else "Training has not finished."
    large = [(f"{score.name}, {where}", f"{score.value:.2f}") for where, scores in told.items() for score in scores]
    tiles = "".join(f"<div><strong>{escape(value)}</strong>{escape(name)}</div>" for name, value in large[:6])
    return f'<p class="soft">{escape(said)}</p><div class="big">{tiles}</div>'


def _score_table(told: Mapping[str, Sequence[Score]]) -> str:
    rows = [
        (where, score.name, f"{score.value:.2f}", score.detail, score.signature)
        for where, scores in told.items()
        for score in scores
    ]
    heads = ("set", "score", "value", "detail", "signature")
    return page.table("Two scores may be compared when their names and signatures agree.", heads, rows) if rows else ""


def _learning(log: Log, figure: Figure | None) -> str:
    """The curves, and the validations as numbers for those who read rather than look."""
    if figure is None:
        return ""
    meaning = "Curves of loss, perplexity, scores, learning rate and speed over the steps of training"
    names = list(dict.fromkeys(score.name for each in log.validated for score in each.scores))
    rows = []
    for each in log.validated:
        values = {score.name: f"{score.value:.2f}" for score in each.scores}
        numbers = [f"{each.step:,}", f"{each.loss:.3f}", f"{each.perplexity:.2f}", f"{each.accuracy:.2%}"]
        rows.append([*numbers, *(values.get(name, "–") for name in names)])
    best = max((place for place, each in enumerate(log.validated) if each.best), default=None)
    heads = ("step", "loss", "perplexity", "token accuracy", *names)
    told = page.table("Validations; the best is bold.", heads, rows, best)
    opened = page.details("the validations as numbers", told) if rows else ""
    shown = page.scrolled(page.picture(figure, meaning, 0, wide=True), "Curves")
    return f"<figure>{shown}</figure>{opened}"


def _history(log: Log, sample: Sample) -> list[tuple[int, str]]:
    """What the model said of a sentence at each validation, where that changed."""
    history: list[tuple[int, str]] = []
    for each in log.validated:
        for other in each.samples:
            if other.source == sample.source and (not history or history[-1][1] != other.translation):
                history.append((each.step, other.translation))
    return history


def _map(shown: AttentionMap) -> Figure:
    """The picture of a map; a word without end, as a model may say at first, must not crowd it out."""
    source, target = ([short(word, WORD) for word in side] for side in (shown.source, shown.target))
    return alignment(shown.weights_TS, source, target, shown.gold)


def _attention(attention: Sequence[AttentionMap], maps: Sequence[Figure]) -> str:
    """The maps, each with a table of whom each word looked at most."""
    shown = []
    for number, (each, figure) in enumerate(zip(attention, maps, strict=True), start=1):
        weights = np.asarray(each.weights_TS, dtype=np.float64)
        rows = [
            (word, each.source[int(weights[place].argmax())], f"{weights[place].max():.2f}")
            for place, word in enumerate(each.target)
        ]
        source, target = " ".join(each.source), " ".join(each.target)
        words = page.table(f"Where each word of “{target}” looked most", ("word", "looked at", "weight"), rows)
        caption = f"<figcaption>{page.sentence(source)}<br>{page.sentence(target)}</figcaption>"
        svg = page.picture(figure, f"Map of the attention of “{target}” over “{source}”", number)
        shown.append(f"<figure>{svg}{caption}{page.details('as numbers', words)}</figure>")
    return f'<div class="maps">{"".join(shown)}</div>' if shown else ""


def _facts(run: Path, log: Log) -> Iterator[tuple[str, str]]:
    """What a reader needs to judge or repeat the run."""
    if log.started:
        start = log.started
        yield "device", start.device + (f", {start.workers} processes" if start.workers > 1 else "")
        yield "parameters", f"{start.parameters:,}"
        yield "vocabulary", f"{start.vocabulary[0]:,} source, {start.vocabulary[1]:,} target"
    if log.progress:
        last = log.progress[-1]
        yield "steps", f"{last.step:,}, {last.epoch} whole epochs"
        yield "target tokens", f"{last.tokens:,}"
        yield "training time", duration(last.seconds)
        speeds = [each.tokens_per_second for each in log.progress]
        yield "target tokens a second", amount(float(np.median(speeds)))
        shares = [each.share for each in log.progress if each.share is not None]
        if shares:
            yield "share of the device's limit", f"{float(np.median(shares)):.0%}"
        if log.started:
            yield "training FLOPs", f"{log.started.flops_per_token * last.tokens:.2e}"
    for name, value in load_scores(run).items():
        if isinstance(value, str | int | float):
            yield name, str(value)
    yield "folder", run.name


def _recipe(run: Path) -> str:
    path = run / RECIPE
    return f"<pre>{escape(path.read_text(encoding='utf-8'))}</pre>" if path.is_file() else ""


def _pairs(figures: Sequence[Figure]) -> list[list[Figure]]:
    """Two a row."""
    return [list(figures[at : at + 2]) for at in range(0, len(figures), 2)]
