"""Threads share the steps of a lone sentence while nobody else computes, and only as long as that pays."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch

from regard.models import fast
from regard.models.fast.company import LONG, LONGEST, PAUSE, QUIET, TRIES, Company, alone, running
from regard.models.fast.indexed import IndexedEngine
from regard.models.outline import Outline
from regard.nn.ragged import Ragged


class Machine:
    """A machine on which somebody else may compute, and steps take what it says they do."""

    def __init__(self) -> None:
        self.now, self.others, self.by_itself, self.shared = 0.0, 0, 0.008, 0.005
        self.company = Company(lambda: 1 + self.others, lambda: self.now)

    def step(self, rows: int = 1) -> int:
        """Take a step; how many threads it had."""
        with self.company.step(rows):
            threads = torch.get_num_threads()
            self.now += self.by_itself if threads == 1 else self.shared
        return threads


@pytest.fixture
def machine() -> Iterator[Machine]:
    with alone(2):
        yield Machine()


def test_steps_are_shared_once_it_was_quiet_for_a_while(machine: Machine) -> None:
    assert [machine.step() for _ in range(QUIET + 3)] == [1] * QUIET + [2] * 3


def test_nothing_is_shared_while_somebody_else_computes(machine: Machine) -> None:
    machine.others = 1
    assert {machine.step() for _ in range(50)} == {1}


def test_sharing_ends_with_the_step_at_which_somebody_comes(machine: Machine) -> None:
    for _ in range(QUIET + 2):
        machine.step()
    machine.others = 2  # one of whom may be the thread that shared the last step
    assert [machine.step() for _ in range(3)] == [1] * 3
    machine.others = 0
    assert [machine.step() for _ in range(QUIET + 1)] == [1] * QUIET + [2]


def test_who_was_only_passing_is_forgotten_after_a_long_silence(machine: Machine) -> None:
    for _ in range(QUIET + LONG):
        machine.step()
    machine.others = 2
    assert machine.step() == 1
    machine.others = 0
    assert machine.step() == 2


def test_a_thread_that_still_waits_for_more_is_nobody_else(machine: Machine) -> None:
    for _ in range(QUIET + 1):
        machine.step()
    machine.others = 1
    assert machine.step() == 2
    machine.now += 1.0
    assert machine.step() == 1


def test_what_does_not_pay_is_tried_ever_more_rarely(machine: Machine) -> None:
    machine.shared = 0.3
    tries = []
    while machine.now < 4 * LONGEST:
        if machine.step() == 2:
            tries.append(machine.now)
    pauses = [after - before for before, after in pairwise(tries)]
    assert pauses[0] == pytest.approx(PAUSE, abs=0.4)
    assert all(after > before - 0.1 for before, after in pairwise(pauses))
    assert pauses[-1] == pytest.approx(LONGEST, abs=0.4)


def test_a_step_that_wakes_threads_is_not_yet_a_failure(machine: Machine) -> None:
    for _ in range(QUIET):
        machine.step()
    machine.shared = 0.013
    assert [machine.step() for _ in range(TRIES - 1)] == [2] * (TRIES - 1)
    machine.shared = 0.005
    assert {machine.step() for _ in range(20)} == {2}


def test_some_steps_in_a_row_that_took_a_little_longer_are_one(machine: Machine) -> None:
    for _ in range(QUIET):
        machine.step()
    machine.shared = 0.009
    assert [machine.step() for _ in range(TRIES + 1)] == [2] * TRIES + [1]


def test_rows_that_were_never_stepped_by_themselves_are_not_shared(machine: Machine) -> None:
    for _ in range(QUIET + 2):
        machine.step()
    assert [machine.step(5), machine.step(5)] == [1, 2]


def test_who_is_not_alone_shares_nothing_and_keeps_the_threads() -> None:
    machine, before = Machine(), torch.get_num_threads()
    assert {machine.step() for _ in range(20)} == {before}


def test_an_error_in_a_shared_step_leaves_one_thread(machine: Machine) -> None:
    for _ in range(QUIET + 1):
        machine.step()
    with pytest.raises(RuntimeError, match="of 2 threads"), machine.company.step(1):
        raise RuntimeError(f"a step of {torch.get_num_threads()} threads")
    assert torch.get_num_threads() == 1


def test_the_kernel_counts_at_least_the_thread_that_asks() -> None:
    assert running() >= 1


def test_a_shared_step_says_what_one_by_itself_says() -> None:
    torch.manual_seed(0)
    model = Outline(256, 1024, 4, 1, 4).seq2seq(2000, 2000).eval()
    engine = fast.engine(model)
    assert isinstance(engine, IndexedEngine)
    machine = Machine()
    assert isinstance(engine.company, Company)
    engine.company = machine.company
    source, tokens_R, said = Ragged.from_list([[5, 6, 7, 3]]), torch.tensor([2]), []
    for threads in (1, 2):
        with alone(threads):
            for _ in range(QUIET):
                machine.step()
            said.append(engine.step(tokens_R, engine.start(source))[0])
    torch.testing.assert_close(said[0], said[1])
