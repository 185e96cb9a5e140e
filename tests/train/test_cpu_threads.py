"""Data-parallel CPU threads train the same weights as one thread, with reproducible dropout."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch
from tests.train.conftest import weights

from regard.data.batching import BEGINNING
from regard.data.prepare import prepare
from regard.nn.cross_entropy import IGNORED
from regard.recipe import Recipe
from regard.tasks import make_task
from regard.tasks.translation import TranslationBatch
from regard.train.cpu_threads import CpuThreads, make_cpu_threads, single_threaded_kernels
from regard.train.distributed import WorkerGroup
from regard.train.engine import TrainingEngine
from regard.train.events import Event
from regard.train.setup import TrainingSetup, build_setup
from regard.train.stream import CpuParts, stream

Make = Callable[..., Recipe]
Train = Callable[[Recipe, Path], list[Event]]
CPU = WorkerGroup(torch.device("cpu"))


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def setup_of(recipe: Recipe) -> TrainingSetup:
    task = make_task(recipe)
    prepared = prepare(recipe, task, Path("unused"))
    return build_setup(recipe, task, Path("unused"), CPU, prepared)


def learnt(recipe: Recipe, parts: CpuParts, threads: CpuThreads | None, accumulated: int = 1) -> list[torch.Tensor]:
    """Return the weights after three steps."""
    setup = setup_of(recipe)
    engine = TrainingEngine(setup.module, setup.optimisers, CPU, "float32", 1.0, threads)
    with stream(setup.feed(512), BEGINNING, parts, pin=False) as steps:
        for _ in range(3):
            loads = [load for step in islice(steps, accumulated) for load in step.batches]
            engine.update(loads)
    return [weight.detach().clone() for weight in setup.model.parameters()]


@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("settings", [(), ("train.optimiser=muon", "train.rdrop=1.0")], ids=["adamw", "muon"])
def test_threads_train_the_same_weights_as_one_thread(
    settings: tuple[str, ...], accumulated: int, double: None, tiny: Make
) -> None:
    recipe = tiny("model.dropout=0.0", *settings)
    alone = learnt(recipe, CpuParts(), None, accumulated)
    with CpuThreads(2) as threads:
        shared = learnt(recipe, CpuParts(2), threads, accumulated)
    # Muon multiplies in bfloat16, which amplifies differences in the last bits of a sum.
    rtol, atol = (0.0, 2e-3) if settings else (1e-9, 1e-9)
    for one, other in zip(alone, shared, strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol)


def test_dropout_does_not_depend_on_the_scheduling_of_threads(tiny: Make) -> None:
    recipe = tiny("model.word_dropout=0.1", "model.attention_dropout=0.1")
    with CpuThreads(3) as threads:
        one, other = (learnt(recipe, CpuParts(3), threads) for _ in range(2))
    assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))


def test_a_run_with_several_threads_resumes_to_the_same_bits(
    two_threads: None, tiny: Make, trained: Train, tmp_path: Path
) -> None:
    settings = ("train.precision=bfloat16", "train.optimiser=muon", "data.valid.pairs=2")
    trained(tiny("train.steps=4", *settings), tmp_path / "one")
    for steps in (2, 4):
        trained(tiny(f"train.steps={steps}", *settings), tmp_path / "other")
    left, right = weights(tmp_path / "one"), weights(tmp_path / "other")
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_an_error_of_one_thread_is_raised_after_all_have_finished() -> None:
    done = []

    def work(hand: int) -> None:
        if hand == 0:
            raise ValueError("no")
        done.append(hand)

    with CpuThreads(3) as threads:
        with pytest.raises(ValueError, match="no"):
            threads.run(work)
        assert sorted(done) == [1, 2]


def test_the_number_of_threads_is_limited_by_torch_and_by_the_batch(two_threads: None) -> None:
    assert make_cpu_threads(300) is None
    threads = make_cpu_threads(10_000)
    assert threads is not None
    with threads:
        assert threads.count == 2
        assert threads.run(lambda hand: torch.get_num_threads()) == [1, 1]
    with single_threaded_kernels():
        assert make_cpu_threads(10_000) is None
    assert torch.get_num_threads() == 2


def test_parts_contain_every_pair_once_and_are_filled_to_whole_blocks(tiny: Make) -> None:
    setup = setup_of(tiny())
    batch = next(setup.feed(512).epoch(0))[0]
    loads = CpuParts(3, 64).split(batch)
    assert len(loads) == 3
    assert isinstance(batch, TranslationBatch)
    parts = [load.batch for load in loads if isinstance(load.batch, TranslationBatch)]
    assert torch.equal(torch.cat([part.index_B for part in parts]), batch.index_B)
    assert sum(load.units for load in loads) == batch.units
    for load, part in zip(loads, parts, strict=True):
        assert (part.source.tokens % 64, part.target.tokens % 64) == (0, 0)
        assert int((part.labels_N != IGNORED).sum()) == load.units
    assert max(load.units for load in loads) < batch.units / 2


def test_splitting_and_filling_do_not_change_the_loss(tiny: Make) -> None:
    setup = setup_of(tiny("model.dropout=0.0"))
    setup.model.double()
    batch = next(setup.feed(512).epoch(0))[0]
    whole = setup.module(batch)
    parts = [load.batch for load in CpuParts(2, 64).split(batch)]
    torch.testing.assert_close(sum(setup.module(part) for part in parts), whole)


def test_a_batch_of_one_pair_is_one_part(tiny: Make) -> None:
    setup = setup_of(tiny())
    pair = CpuParts(10_000).split(next(setup.feed(512).epoch(0))[0])[0].batch
    assert len(pair) == 1
    assert len(CpuParts(4).split(pair)) == 1
