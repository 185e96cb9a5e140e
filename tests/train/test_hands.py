"""Threads that share the batches of a step learn what one learns, and throw dice that do not depend on the clock."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch
from tests.train.conftest import weights

from regard.data.batching import BEGINNING
from regard.data.prepare import gather
from regard.nn.cross_entropy import IGNORED
from regard.recipe import Recipe
from regard.train.engine import Engine
from regard.train.events import Event
from regard.train.hands import Hands, hands_for, one_thread
from regard.train.job import Job, assemble
from regard.train.stream import Parts, stream
from regard.train.workers import Workers

Make = Callable[..., Recipe]
Train = Callable[[Recipe, Path], list[Event]]
CPU = Workers(torch.device("cpu"))


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


def job_of(recipe: Recipe) -> Job:
    return assemble(recipe, Path("unused"), CPU, gather(recipe, Path("unused")))


def learnt(recipe: Recipe, parts: Parts, hands: Hands | None, accumulated: int = 1) -> list[torch.Tensor]:
    """The weights after three steps."""
    job = job_of(recipe)
    engine = Engine(job.learner, job.optimisers, CPU, "float32", 1.0, hands)
    with stream(job.feed(512), BEGINNING, parts, pin=False) as steps:
        for _ in range(3):
            loads = [load for step in islice(steps, accumulated) for load in step.loads]
            engine.update(loads)
    return [each.detach().clone() for each in job.model.parameters()]


@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("settings", [(), ("train.optimiser=muon", "train.rdrop=1.0")], ids=["adamw", "muon"])
def test_hands_learn_what_one_learns(settings: tuple[str, ...], accumulated: int, double: None, tiny: Make) -> None:
    recipe = tiny("model.dropout=0.0", *settings)
    alone = learnt(recipe, Parts(), None, accumulated)
    with Hands(2) as hands:
        shared = learnt(recipe, Parts(2), hands, accumulated)
    # Muon's products are in half precision, which turns the last bits of a sum into more.
    rtol, atol = (0.0, 2e-3) if settings else (1e-9, 1e-9)
    for one, other in zip(alone, shared, strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol)


def test_hands_throw_the_same_dice_whoever_comes_first(tiny: Make) -> None:
    recipe = tiny("model.word_dropout=0.1", "model.attention_dropout=0.1")
    with Hands(3) as hands:
        one, other = (learnt(recipe, Parts(3), hands) for _ in range(2))
    assert all(torch.equal(*both) for both in zip(one, other, strict=True))


def test_a_run_of_several_hands_goes_on_to_the_same_bits(
    two_threads: None, tiny: Make, trained: Train, tmp_path: Path
) -> None:
    settings = ("train.precision=bfloat16", "train.optimiser=muon", "data.valid.pairs=2")
    trained(tiny("train.steps=4", *settings), tmp_path / "one")
    for steps in (2, 4):
        trained(tiny(f"train.steps={steps}", *settings), tmp_path / "other")
    left, right = weights(tmp_path / "one"), weights(tmp_path / "other")
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_what_a_hand_fails_with_is_raised_when_all_are_done() -> None:
    done = []

    def work(hand: int) -> None:
        if hand == 0:
            raise ValueError("no")
        done.append(hand)

    with Hands(3) as hands:
        with pytest.raises(ValueError, match="no"):
            hands.do(work)
        assert sorted(done) == [1, 2]


def test_there_are_no_more_hands_than_threads_and_none_for_small_batches(two_threads: None) -> None:
    assert hands_for(300) is None
    hands = hands_for(10_000)
    assert hands is not None
    with hands:
        assert hands.count == 2
        assert hands.do(lambda hand: torch.get_num_threads()) == [1, 1]
    with one_thread():
        assert hands_for(10_000) is None
    assert torch.get_num_threads() == 2


def test_parts_hold_every_pair_once_and_are_filled_to_whole_blocks(tiny: Make) -> None:
    job = job_of(tiny())
    batch = next(job.feed(512).epoch(0))[0]
    loads = Parts(3, 64).loads(batch)
    assert len(loads) == 3
    assert torch.equal(torch.cat([load.batch.index_B for load in loads]), batch.index_B)
    assert sum(load.tokens for load in loads) == batch.target_tokens
    for load in loads:
        assert (load.batch.source.tokens % 64, load.batch.target.tokens % 64) == (0, 0)
        assert int((load.batch.labels_N != IGNORED).sum()) == load.tokens
    assert max(load.tokens for load in loads) < batch.target_tokens / 2


def test_parts_and_filling_change_no_loss(tiny: Make) -> None:
    job = job_of(tiny("model.dropout=0.0"))
    job.model.double()
    batch = next(job.feed(512).epoch(0))[0]
    whole = job.learner(batch.source, batch.target, batch.labels_N)
    parts = [load.batch for load in Parts(2, 64).loads(batch)]
    torch.testing.assert_close(sum(job.learner(each.source, each.target, each.labels_N) for each in parts), whole)


def test_a_batch_of_one_pair_is_one_part(tiny: Make) -> None:
    job = job_of(tiny())
    pair = Parts(10_000).loads(next(job.feed(512).epoch(0))[0])[0].batch
    assert len(pair) == 1
    assert len(Parts(4).loads(pair)) == 1
