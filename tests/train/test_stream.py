"""Batches filled to one size, for compiled models and CUDA graphs; choices made by trying batches."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import torch

from regard.data.batching import BEGINNING
from regard.data.prepare import prepare
from regard.nn.cross_entropy import IGNORED
from regard.recipe import Recipe
from regard.tasks import make_task
from regard.tasks.translation import TranslationBatch
from regard.train.autotune import (
    ExecutionMode,
    choose_execution_mode,
    find_batch_size,
    is_compiling_worthwhile,
)
from regard.train.distributed import WorkerGroup
from regard.train.run_state import RunState
from regard.train.setup import TrainingSetup, build_setup
from regard.train.stream import StaticShape, stream

Make = Callable[..., Recipe]


def setup_of(recipe: Recipe) -> TrainingSetup:
    task = make_task(recipe)
    prepared = prepare(recipe, task, Path("unused"))
    return build_setup(recipe, task, Path("unused"), WorkerGroup(torch.device("cpu")), prepared)


def test_filled_batches_have_one_size_and_keep_their_tokens(tiny: Make) -> None:
    setup = setup_of(tiny())
    feed = setup.feed(512)
    with stream(feed, BEGINNING, StaticShape.from_feed(feed), pin=False) as steps:
        filled = [load for step in islice(steps, 8) for load in step.batches]
    with stream(feed, BEGINNING, None, pin=False) as steps:
        plain = [load for step in islice(steps, 8) for load in step.batches]
    assert len({step.batch.static_size for step in filled}) == 1
    assert [step.units for step in filled] == [step.units for step in plain]
    for one, other in zip(filled, plain, strict=True):
        assert isinstance(one.batch, TranslationBatch)
        assert isinstance(other.batch, TranslationBatch)
        assert int((one.batch.labels_N != IGNORED).sum()) == other.units
        assert torch.equal(one.batch.labels_N[: other.units], other.batch.labels_N)


def test_filling_does_not_change_the_loss(tiny: Make) -> None:
    setup = setup_of(tiny("model.dropout=0.0"))
    setup.model.double()
    feed = setup.feed(512)
    batch = next(feed.epoch(0))[0]
    filled = StaticShape.from_feed(feed).fill(batch)
    losses = [setup.module(values) for values in (batch, filled)]
    torch.testing.assert_close(losses[0], losses[1])


def test_a_batch_of_very_short_sequences_gets_a_larger_shape(tiny: Make) -> None:
    setup = setup_of(tiny())
    batch = next(setup.feed(512).epoch(0))[0]
    small = StaticShape(tokens=512, sequences=8, longest=100)
    assert small.enlarged_for(batch).sequences >= len(batch)
    assert len(small.fill(batch)) == small.enlarged_for(batch).sequences


def test_auto_finds_a_batch_size_within_its_limits(tiny: Make) -> None:
    budget = find_batch_size(setup_of(tiny("train.tokens=auto")))
    assert 1024 <= budget <= 4096


def test_training_on_a_cpu_is_compiled_only_on_request(tiny: Make) -> None:
    assert choose_execution_mode(setup_of(tiny()), RunState()) == ExecutionMode()
    assert choose_execution_mode(setup_of(tiny("train.compile=true")), RunState()) == ExecutionMode(compiled=True)


def test_long_trainings_are_compiled() -> None:
    assert not is_compiling_worthwhile(20.0)[0]
    assert is_compiling_worthwhile(2000.0) == (
        True,
        "compiling takes about a minute; training would take 33 minutes without it",
    )
