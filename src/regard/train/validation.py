"""How good weights are on text they do not learn from: loss and accuracy, teacher-forced, and translations."""

import math
import time
from typing import NamedTuple

import torch

from regard.data.batching import in_order
from regard.data.store import Store
from regard.models.seq2seq import Seq2Seq
from regard.score import Score
from regard.train.events import Sample, Validated
from regard.train.job import Job
from regard.train.loss import judge
from regard.train.precision import autocast
from regard.train.standing import Standing
from regard.train.translating import affordable, samples, some_text
from regard.train.workers import Workers


class Quality(NamedTuple):
    """Means over the target tokens of a text."""

    loss: float
    """Nats a token, labels not smoothed."""
    perplexity: float
    """e to the loss."""
    accuracy: float


def measure(model: Seq2Seq, store: Store, tokens: int, workers: Workers, precision: str) -> Quality:
    """Foretell a whole text, each process every n-th batch of it."""
    budget = max(tokens, *(longest + 1 for longest in store.longest))
    sums = torch.zeros(3, dtype=torch.float64, device=workers.device)
    for number, batch in enumerate(in_order(store, budget)):
        if number % workers.count == workers.rank:
            placed = batch.to(workers.device)
            with autocast(workers.device, precision):
                loss, correct = judge(model, placed.source, placed.target, placed.labels_N)
            sums += torch.stack([loss, correct, loss.new_tensor(batch.target_tokens)])
    loss, correct, count = workers.total(sums).tolist()
    return Quality(loss / count, math.exp(min(loss / count, 700.0)), correct / count)


def validate(job: Job, model: Seq2Seq, standing: Standing, now: float) -> Validated:
    """Measure weights at the run's time `now`, and take note of how they compare with those before."""
    assert job.valid is not None
    assert job.recipe.data.valid is not None
    settings = job.recipe.train
    begin = time.perf_counter()
    quality = measure(model, job.valid, standing.budget, job.workers, settings.precision)
    if not math.isfinite(quality.loss):
        raise FloatingPointError(f"on data.valid after step {standing.step}")
    count = _sentences(job, job.valid, standing, now)
    scores: tuple[Score, ...] = ()
    shown: tuple[Sample, ...] = ()
    measured = time.perf_counter()
    if count:
        source, target = some_text(job.valid, job.recipe.data.valid, count)
        translated = job.judge.translate(model, source, beam=1)
        scores, shown = job.judge.scores(translated, target), samples(source, target, translated)
    over = time.perf_counter()
    standing.translated, standing.translating = count, over - measured
    standing.validated = now + over - begin
    score = scores[0].value if settings.choose == "bleu" else -quality.loss
    best = standing.judged(score, quality.loss, settings.shrink)
    return Validated(standing.step, *quality, scores, shown, over - begin, best)


def _sentences(job: Job, store: Store, standing: Standing, now: float) -> int:
    """How many sentences to translate, everywhere the same."""
    asked = job.recipe.train.translate
    if asked != "auto":
        return min(asked, len(store))
    if job.recipe.train.choose == "bleu":
        return len(store)
    count = affordable(standing.translated, standing.translating, now - standing.validated, len(store))
    return int(job.workers.decided(count))
