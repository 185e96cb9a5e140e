"""Batches of one size, for compiled models: filled up without changing what is learnt."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import torch

from regard.data.batching import BEGINNING
from regard.data.prepare import gather
from regard.nn.cross_entropy import IGNORED
from regard.recipe import Recipe
from regard.train.budget import find_budget
from regard.train.compiling import Way, decide, verdict
from regard.train.job import Job, assemble
from regard.train.standing import Standing
from regard.train.stream import Shape, stream
from regard.train.workers import Workers

Make = Callable[..., Recipe]


def job_of(recipe: Recipe) -> Job:
    return assemble(recipe, Path("unused"), Workers(torch.device("cpu")), gather(recipe, Path("unused")))


def test_every_batch_has_the_same_size_and_its_own_tokens(tiny: Make) -> None:
    job = job_of(tiny())
    feed = job.feed(512)
    with stream(feed, BEGINNING, Shape.of(feed), pin=False) as steps:
        filled = [load for step in islice(steps, 8) for load in step.loads]
    with stream(feed, BEGINNING, None, pin=False) as steps:
        plain = [load for step in islice(steps, 8) for load in step.loads]
    assert len({(each.batch.source.tokens, each.batch.target.tokens, len(each.batch.target)) for each in filled}) == 1
    assert [each.tokens for each in filled] == [each.tokens for each in plain]
    for one, other in zip(filled, plain, strict=True):
        assert int((one.batch.labels_N != IGNORED).sum()) == other.tokens
        assert torch.equal(one.batch.labels_N[: other.tokens], other.batch.labels_N)


def test_filling_changes_no_loss(tiny: Make) -> None:
    job = job_of(tiny("model.dropout=0.0"))
    job.model.double()
    feed = job.feed(512)
    batch = next(feed.epoch(0))[0]
    filled = Shape.of(feed).fill(batch)
    losses = [job.learner(each.source, each.target, each.labels_N) for each in (batch, filled)]
    torch.testing.assert_close(losses[0], losses[1])


def test_a_batch_of_very_short_sentences_takes_a_larger_shape(tiny: Make) -> None:
    job = job_of(tiny())
    batch = next(job.feed(512).epoch(0))[0]
    small = Shape(tokens=512, sequences=8, longest=100)
    assert small.holding(batch).sequences >= len(batch)
    assert len(small.fill(batch).source) == small.holding(batch).sequences


def test_auto_leaves_room_for_the_longest_and_for_learning(tiny: Make) -> None:
    budget = find_budget(job_of(tiny("train.tokens=auto")))
    assert 1024 <= budget <= 4096


def test_a_run_on_a_cpu_is_not_compiled_unless_told(tiny: Make) -> None:
    assert decide(job_of(tiny()), Standing()) == Way()
    assert decide(job_of(tiny("train.compile=true")), Standing()) == Way(compiled=True)


def test_what_is_long_enough_to_pay_for_it_is_compiled() -> None:
    assert not verdict(20.0)[0]
    assert verdict(2000.0) == (True, "compiled, which takes a minute: learning would take 33 without it")
