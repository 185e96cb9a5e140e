"""How good weights are on text they do not learn from: loss and accuracy, teacher-forced."""

import math
import time
from typing import NamedTuple

import torch

from regard.data.batching import in_order
from regard.data.store import Store
from regard.models.seq2seq import Seq2Seq
from regard.train.engine import autocast
from regard.train.events import Validated
from regard.train.job import Job
from regard.train.loss import judge
from regard.train.standing import Standing
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


def validate(job: Job, model: Seq2Seq, standing: Standing) -> Validated:
    """Measure weights, and take note of how they compare with those before."""
    assert job.valid is not None
    begin = time.perf_counter()
    quality = measure(model, job.valid, standing.budget, job.workers, job.recipe.train.precision)
    best = standing.judged(-quality.loss, job.recipe.train.shrink)
    seconds = time.perf_counter() - begin
    return Validated(standing.step, *quality, (), (), seconds, best)
