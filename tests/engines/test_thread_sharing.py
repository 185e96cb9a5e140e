"""Threads share the steps of a lone sentence while no other thread computes, and only as long as sharing pays."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch

from regard import engines
from regard.engines.indexed_engine import IndexedEngine
from regard.engines.thread_sharing import (
    LONG,
    LONGEST,
    PAUSE,
    QUIET,
    TRIES,
    ThreadSharing,
    runnable_threads,
    single_threaded,
)
from regard.models.build import build
from regard.nn.ragged import Ragged
from regard.recipe import Transformer


class Machine:
    """A simulated machine: other threads may be runnable, and a step takes as long as it is set to."""

    def __init__(self) -> None:
        self.now, self.others, self.alone, self.shared = 0.0, 0, 0.008, 0.005
        self.sharing = ThreadSharing(lambda: 1 + self.others, lambda: self.now)

    def step(self, rows: int = 1) -> int:
        """Make a step; return how many threads it had."""
        with self.sharing.step(rows):
            threads = torch.get_num_threads()
            self.now += self.alone if threads == 1 else self.shared
        return threads


@pytest.fixture
def machine() -> Iterator[Machine]:
    with single_threaded(2):
        yield Machine()


def test_steps_are_shared_after_some_quiet_steps(machine: Machine) -> None:
    assert [machine.step() for _ in range(QUIET + 3)] == [1] * QUIET + [2] * 3


def test_no_step_is_shared_while_other_threads_compute(machine: Machine) -> None:
    machine.others = 1
    assert {machine.step() for _ in range(50)} == {1}


def test_sharing_stops_when_another_thread_becomes_runnable(machine: Machine) -> None:
    for _ in range(QUIET + 2):
        machine.step()
    machine.others = 2  # one of which may have shared the last step
    assert [machine.step() for _ in range(3)] == [1] * 3
    machine.others = 0
    assert [machine.step() for _ in range(QUIET + 1)] == [1] * QUIET + [2]


def test_one_busy_reading_after_long_quiet_does_not_stop_sharing(machine: Machine) -> None:
    for _ in range(QUIET + LONG):
        machine.step()
    machine.others = 2
    assert machine.step() == 1
    machine.others = 0
    assert machine.step() == 2


def test_threads_still_awake_from_a_shared_step_do_not_count(machine: Machine) -> None:
    for _ in range(QUIET + 1):
        machine.step()
    machine.others = 1
    assert machine.step() == 2
    machine.now += 1.0
    assert machine.step() == 1


def test_sharing_that_does_not_pay_is_tried_ever_more_rarely(machine: Machine) -> None:
    machine.shared = 0.3
    tries = []
    while machine.now < 4 * LONGEST:
        if machine.step() == 2:
            tries.append(machine.now)
    pauses = [after - before for before, after in pairwise(tries)]
    assert pauses[0] == pytest.approx(PAUSE, abs=0.4)
    assert all(after > before - 0.1 for before, after in pairwise(pauses))
    assert pauses[-1] == pytest.approx(LONGEST, abs=0.4)


def test_one_slow_step_that_wakes_threads_does_not_pause_sharing(machine: Machine) -> None:
    for _ in range(QUIET):
        machine.step()
    machine.shared = 0.013
    assert [machine.step() for _ in range(TRIES - 1)] == [2] * (TRIES - 1)
    machine.shared = 0.005
    assert {machine.step() for _ in range(20)} == {2}


def test_several_slightly_slow_steps_in_a_row_pause_sharing(machine: Machine) -> None:
    for _ in range(QUIET):
        machine.step()
    machine.shared = 0.009
    assert [machine.step() for _ in range(TRIES + 1)] == [2] * TRIES + [1]


def test_a_number_of_rows_is_shared_only_after_a_step_on_one_thread(machine: Machine) -> None:
    for _ in range(QUIET + 2):
        machine.step()
    assert [machine.step(5), machine.step(5)] == [1, 2]


def test_without_single_threaded_the_number_of_threads_does_not_change() -> None:
    machine, before = Machine(), torch.get_num_threads()
    assert {machine.step() for _ in range(20)} == {before}


def test_an_error_in_a_shared_step_restores_one_thread(machine: Machine) -> None:
    for _ in range(QUIET + 1):
        machine.step()
    with pytest.raises(RuntimeError, match="of 2 threads"), machine.sharing.step(1):
        raise RuntimeError(f"a step of {torch.get_num_threads()} threads")
    assert torch.get_num_threads() == 1


def test_runnable_threads_include_the_calling_one() -> None:
    assert runnable_threads() >= 1


def test_a_shared_step_computes_what_a_single_threaded_one_computes() -> None:
    torch.manual_seed(0)
    model = build(Transformer(width=256, inner=1024, heads=4, encoder_layers=1, decoder_layers=4), 2000, 2000).eval()
    engine = engines.engine(model)
    assert isinstance(engine, IndexedEngine)
    machine = Machine()
    assert isinstance(engine.thread_sharing, ThreadSharing)
    engine.thread_sharing = machine.sharing
    source, tokens_R, logprobs = Ragged.from_list([[5, 6, 7, 3]]), torch.tensor([2]), []
    for threads in (1, 2):
        with single_threaded(threads):
            for _ in range(QUIET):
                machine.step()
            logprobs.append(engine.step(tokens_R, engine.start(source))[0])
    torch.testing.assert_close(logprobs[0], logprobs[1])
