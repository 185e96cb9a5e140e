"""Runs with a time limit use it: simulated on a clock that only steps and validations move."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.recipe import Recipe
from regard.train.distributed import WorkerGroup
from regard.train.run_state import RunState
from regard.train.speed import CHANGE, PLANNING_FRACTION, SpeedTrial

MINUTES = 3.0
LIMIT = 60 * MINUTES


def recipe(**settings: object) -> Recipe:
    return Recipe.model_validate({"data": {"train": [{"to": "de"}]}, "train": {"minutes": MINUTES, **settings}})


@dataclass
class Machine:
    """Trains nothing, but takes the time of it: a reading about each second, and validations when they are due."""

    recipe: Recipe
    pace: Callable[[int], float]
    """Seconds of a step, by its number."""
    validation: float
    """Seconds of a validation."""
    validation_steps: float
    """Steps with as many tokens as the validation data, from which the first plan estimates its seconds."""
    state: RunState = field(default_factory=RunState)
    now: float = 0.0
    messages: list[str] = field(default_factory=list)
    plans: list[tuple[int, bool]] = field(default_factory=list)
    """The number of steps and whether it may change, after each validation."""

    def run(self, until: int = 10**9) -> None:
        """Train until the steps or the time are used, or until a step."""
        group = WorkerGroup(torch.device("cpu"))
        trial = SpeedTrial(
            self.recipe,
            self.state,
            group,
            by_corpus=1000,
            validation_steps=self.validation_steps,
            clock=lambda: self.now,
        )
        read, over, current = self.now, False, trial.settings()
        while not over and self.state.step < until and not (trial.decided and self.state.step >= trial.steps):
            self.state.step += 1
            self.now += self.pace(self.state.step)
            due = self.state.step % current.every == 0 or (trial.decided and self.state.step == current.steps)
            if not due and self.state.step > 1 and self.now - read < 1.0:
                continue
            read, over = self.now, self.now > LIMIT
            self.messages.append(trial.update(self.now))
            current = trial.settings()
            if due:
                self.now += self.validation
                self.messages.append(trial.validated(self.now, self.validation))
                self.plans.append((self.state.planned, self.state.provisional))
                over, current = trial.is_over(self.now), trial.settings()
        self.messages = [message for message in self.messages if message]


def steady(pace: float, begin: float = 1.0) -> Callable[[int], float]:
    """Return a speed that is lower in the first steps, by a factor that decreases."""
    return lambda step: pace * (1 + (begin - 1) * 0.5**step)


@settings(max_examples=40)
@given(
    st.floats(0.05, 1.0),
    st.floats(1.0, 20.0),
    st.floats(0.0, 20.0),
    st.floats(0.1, 3.0),
    st.none() | st.integers(10, 60),
)
def test_a_plan_by_time_uses_the_time_and_exceeds_it_by_no_more_than_a_validation(
    pace: float, begin: float, validation: float, estimate: float, every: int | None
) -> None:
    """Although the first steps are slow, and the first estimate of what a validation takes is wrong."""
    named = recipe() if every is None else recipe(every=every)
    machine = Machine(named, steady(pace, begin), validation, 3 * estimate * validation / pace)
    machine.run()
    assert LIMIT - 10 * pace < machine.now + 0.1 * LIMIT + validation * (every is not None)
    assert machine.now <= LIMIT + validation + 2 * pace + 1


def test_where_validations_are_expensive_the_time_is_used() -> None:
    """Tiny Shakespeare on two cores: a step takes 0.6 s and a validation 7 s."""
    machine = Machine(recipe(), steady(0.6, 2.0), 7.0, 27)
    machine.run()
    assert 0.92 * LIMIT < machine.now <= LIMIT
    assert machine.state.step == machine.state.planned
    assert len(machine.plans) == 5


def test_a_plan_is_final_after_the_first_part_of_the_time() -> None:
    """A machine that becomes slower later does not change it, so that a resumed run has the same schedule."""
    machine = Machine(recipe(), lambda step: 0.1 if step < 400 else 0.12, 1.0, 10)
    machine.run()
    final = [planned for planned, provisional in machine.plans if not provisional]
    assert len(set(final)) == 1
    assert [machine.plans[number][1] for number in (0, 2)] == [True, False]
    resumed = Machine(machine.recipe, steady(0.3), 1.0, 10, RunState(step=machine.state.step))
    resumed.state.planned, resumed.state.planned_minutes = machine.state.planned, MINUTES
    resumed.run(until=machine.state.step + 100)
    assert resumed.state.planned == machine.state.planned
    assert resumed.messages == []


def test_a_run_that_resumes_with_a_provisional_plan_revises_it() -> None:
    machine = Machine(recipe(), steady(0.1), 1.0, 10)
    machine.run(until=100)
    assert machine.state.provisional
    before = machine.state.planned
    resumed = Machine(machine.recipe, steady(0.2), 1.0, 10, machine.state, machine.now)
    resumed.run()
    assert not resumed.state.provisional
    assert resumed.state.planned < 0.8 * before
    assert 0.9 * LIMIT < resumed.now <= LIMIT + 1


def test_only_a_large_change_of_the_plan_is_reported() -> None:
    quiet = Machine(recipe(), steady(0.1), 1.0, 30)
    quiet.run()
    assert len(quiet.messages) == 1
    wrong = Machine(recipe(), steady(0.1), 8.0, 3)
    wrong.run()
    assert len(wrong.messages) == 2
    assert all("steps fit into train.minutes = 3: warm-up of" in message for message in wrong.messages)
    assert 0 < CHANGE < PLANNING_FRACTION < 1


@pytest.mark.parametrize(("steps", "expected"), [(100, 0), (10_000, 1)])
def test_named_steps_are_kept_and_a_limit_that_comes_first_is_reported(steps: int, expected: int) -> None:
    machine = Machine(recipe(steps=steps, schedule="cosine", every=1000), steady(0.1), 1.0, 10)
    machine.run()
    assert machine.state.planned == 0
    assert len(machine.messages) == expected
    assert machine.state.step <= steps
