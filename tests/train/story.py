"""The events of an invented training."""

import math
from collections.abc import Iterator
from pathlib import Path

from regard.recipe import Recipe, parse
from regard.score import bleu, exact_match
from regard.tasks import Sample
from regard.train.events import Event, Finished, Noticed, Progress, Saved, Started, Validated

STEPS = 100
REFERENCES = ("Ich schloss die Fenster", "أستطيع الذهاب وحيداً")
SOURCES = ("I closed the windows", "I can go alone")


def recipe(name: str = "story") -> Recipe:
    """A small recipe."""
    return parse('[data]\ntrain = [{ to = "de", pairs = 1000 }]\n', name=name)


def started(run: Path, step: int = 0) -> Started:
    """The start of the run, or its resumption from a step."""
    return Started(recipe(), run, 1_234_567, "cpu", 1, {"source": 2000, "target": 2000}, 7.4e6, 9e10, step, STEPS)


def progress(step: int, pace: float = 1.0) -> Progress:
    """Progress at a step; the loss falls, and ten steps take `pace` seconds."""
    loss = 1 + 5 * math.exp(-step / 30)
    return Progress(
        step, step // 40, loss, math.exp(loss), 1e-3, 0.8, step * 900, 15_300.0, 0.41, step / 10 * pace, 9.0
    )


def validated(step: int) -> Validated:
    """A validation at a step; its last sentence is still wrong before the end."""
    ours = [REFERENCES[0], REFERENCES[1] if step == STEPS else "أستطيع"]
    samples = tuple(Sample(*row) for row in zip(SOURCES, REFERENCES, ours, strict=True))
    scores = (bleu(ours, REFERENCES), exact_match(ours, REFERENCES))
    return Validated(step, 2.0, math.exp(2.0), 0.75, scores, samples, 1.2, best=True, predicted=2)


def story(run: Path, since: int = 0, pace: float = 1.0) -> Iterator[Event]:
    """All events from a step on: progress every 10 steps, validation and checkpoint every 50."""
    yield Noticed("compile is off")
    yield started(run, since)
    for step in range(since + 10, STEPS + 1, 10):
        yield progress(step, pace)
        if step % 50 == 0:
            yield validated(step)
            yield Saved(step, run / f"checkpoints/{step}")
    yield Finished(STEPS, "steps", 12.5, 90_000, STEPS, {"weights": "best, step 100", "test": {"BLEU": 31.5}}, run)
