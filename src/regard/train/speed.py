"""How many steps fit into `train.minutes`: planned in the first seconds of training, and revised at its validations.

The first plan knows the speed of a few steps, and estimates what a validation takes. It is revised by what validations
take and by the steady speed of the steps before them, until the first part of the time (`PLANNING_FRACTION`) and at
least one validation are over. Then the plan is final. Every checkpoint has the plan, so a run that resumes after that
follows the schedule of an uninterrupted one.
"""

import math
import time
from collections.abc import Callable

from regard.recipe import Recipe
from regard.train.distributed import WorkerGroup
from regard.train.run_state import RunState
from regard.train.schedule import ResolvedTrain, TimePlan, describe_cut, plan_in_time, resolve
from regard.train.setup import TrainingSetup

MIN_TRIAL_STEPS, MAX_TRIAL_SECONDS = 4, 15.0
TRIAL_FRACTION = 0.03  # of the time limit after which the speed is known well enough for a first plan
PLANNING_FRACTION = 0.2  # of the time limit after which a plan is final
VALIDATION_COST = 1 / 3  # of a training step with as many tokens: there is no backward pass
CHANGE = 0.05  # of the number of steps; a smaller change of the plan is not reported


class SpeedTrial:
    """Decides the number of steps of a run with a time limit, by the speed of its steps and validations.

    The first step is not counted: it compiles kernels and allocates memory. If the recipe names its steps, they are
    kept, and a message says so if the time limit comes first.
    """

    def __init__(
        self,
        recipe: Recipe,
        state: RunState,
        group: WorkerGroup,
        *,
        by_corpus: int,
        validation_steps: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Start before the first step, or where the run resumes.

        Args:
            recipe: The recipe.
            state: State of the run, which gets the plan.
            group: The processes; the clock of rank 0 decides.
            by_corpus: Number of steps of a recipe that names neither steps nor minutes.
            validation_steps: Number of training steps that have as many tokens as the validation data.
            clock: Returns seconds.
        """
        self.recipe, self.state, self.group, self.clock = recipe, state, group, clock
        self.by_corpus, self.validation_steps = by_corpus, validation_steps
        minutes = recipe.train.minutes
        self.limit = math.inf if minutes is None else 60 * minutes
        """Maximum training time in seconds."""
        self.done = minutes is None or (recipe.train.steps is None and self._plan.steps > 0 and not state.provisional)
        self.readings: list[tuple[int, float]] = []
        """Steps, and the time that they took with all before them."""
        self.other = 0.0
        """Seconds in which there were no steps, but validations."""
        self.validation: float | None = None
        """Seconds of the last validation."""
        self.revised = False
        """Whether the plan was revised by the speed of the steps in the first part of the time."""

    @classmethod
    def of(cls, setup: TrainingSetup, state: RunState) -> "SpeedTrial":
        """Return the trial of a run."""
        valid, tokens = setup.valid, setup.tokens_per_step(state.budget)
        steps = 0.0 if valid is None else setup.task.tokens(valid.lengths) / tokens
        by_corpus = setup.default_steps(state.budget)
        return cls(setup.recipe, state, setup.group, by_corpus=by_corpus, validation_steps=steps)

    @property
    def decided(self) -> bool:
        """Whether the number of steps of the run is known, though perhaps to be revised."""
        return self.done or self.recipe.train.steps is not None or self._plan.steps > 0

    @property
    def steps(self) -> int:
        """The number of steps of the run; 0 if it is not known yet."""
        return self.settings().steps if self.decided else 0

    def settings(self) -> ResolvedTrain:
        """Return the settings of training, as far as they are known now."""
        return resolve(self.recipe, self.recipe.train.steps or self._plan.steps or self.by_corpus, self._plan.every)

    def is_over(self, seconds: float) -> bool:
        """Return whether the time limit is reached at this training time; every process must call this."""
        return self.limit < math.inf and bool(self.group.broadcast(seconds > self.limit))

    def update(self, seconds: float) -> str:
        """Plan or revise the plan after a step that ended at this training time, if it is time; return a message.

        Every process must call this after the same steps.
        """
        if self.done:
            return ""
        self.readings.append((self.state.step, self.clock() - self.other))
        if self._measured < MIN_TRIAL_STEPS:
            return ""
        if self.recipe.train.steps is None and self._plan.steps:
            # Steps have a steady speed now; the plan is final unless validations are still to show what they take.
            due = not self.revised and seconds >= PLANNING_FRACTION * self.limit
            self.revised |= (due := bool(self.group.broadcast(due)))
        else:
            elapsed = self.readings[-1][1] - self.readings[0][1]
            due = bool(self.group.broadcast(elapsed >= min(TRIAL_FRACTION * self.limit, MAX_TRIAL_SECONDS)))
        return self._decide(seconds) if due else ""

    def validated(self, seconds: float, duration: float) -> str:
        """Revise the plan after a validation, saved checkpoint included; return a message if it changes much.

        Args:
            seconds: The training time now.
            duration: Seconds that it took.
        """
        self.other += duration
        self.validation = duration
        ends = self.group.broadcast(seconds >= self.limit or self.state.step >= self._plan.steps)
        if self.done or ends or self._measured < MIN_TRIAL_STEPS:
            return ""
        return self._decide(seconds)

    @property
    def _plan(self) -> TimePlan:
        """The plan for this time limit; its numbers are 0 if there is none."""
        planned = self.state.planned_minutes == self.recipe.train.minutes
        return TimePlan(self.state.planned, self.state.planned_every) if planned else TimePlan(0, 0)

    @property
    def _measured(self) -> int:
        """The number of steps between the first and the last reading."""
        return self.readings[-1][0] - self.readings[0][0] if self.readings else 0

    def _pace(self) -> float:
        """Return the seconds of a step in the later half of the readings.

        In the first steps, caches fill and kernels are compiled for each size of batches.
        """
        (first, begin), (last, end) = self.readings[(len(self.readings) - 1) // 2], self.readings[-1]
        return (end - begin) / (last - first)

    def _decide(self, seconds: float) -> str:
        """Plan for the time that is left, and return a message for the user."""
        named, before, pace = self.recipe.train, self._plan.steps, self._pace()
        validation = VALIDATION_COST * self.validation_steps * pace if self.validation is None else self.validation
        every = self.settings().every if named.steps is not None else named.every
        plan = plan_in_time(self.state.step, max(self.limit - seconds, 0.0), pace, validation, every)
        steps, every = (int(self.group.broadcast(number)) for number in plan)
        if named.steps is not None:
            self.done = True
            cut = describe_cut(self.settings(), steps) if steps < named.steps else ""
            limit = f"at this speed train.minutes = {named.minutes:g} ends training"
            return f"{limit} at about step {steps:,}, {cut}" if cut else ""
        final = self.validation is not None and seconds >= PLANNING_FRACTION * self.limit
        self.done = bool(self.group.broadcast(final))
        state = self.state
        state.planned, state.planned_every, state.planned_minutes = steps, every, named.minutes
        state.provisional = not self.done
        if before and abs(steps - before) <= CHANGE * before:
            return ""
        settings = self.settings()
        return (
            f"about {steps:,} steps fit into train.minutes = {named.minutes:g}: warm-up of {settings.warmup:,} steps, "
            f"validation every {settings.every:,} steps"
        )
