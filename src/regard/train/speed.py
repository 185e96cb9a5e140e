"""The first seconds of training, which show how many steps fit into `train.minutes`."""

import math
import time

from regard.train.run_state import RunState
from regard.train.schedule import ResolvedTrain, describe_cut, steps_in_time
from regard.train.setup import TrainingSetup

MIN_TRIAL_STEPS, MAX_TRIAL_SECONDS = 4, 15.0
TRIAL_FRACTION = 0.03  # of the time limit after which the speed counts as known


class SpeedTrial:
    """Decides the number of steps of a run with a time limit, as soon as its speed is known.

    The first step is not counted: it compiles kernels and allocates memory. If the recipe names its steps, they are
    kept, and a message says so if the time limit comes first.
    """

    def __init__(self, setup: TrainingSetup, state: RunState) -> None:
        """Start before the first step, or where the run resumes."""
        minutes = setup.recipe.train.minutes
        self.setup, self.state = setup, state
        self.limit = math.inf if minutes is None else 60 * minutes
        """Maximum training time in seconds."""
        self.done = minutes is None or (setup.recipe.train.steps is None and self._planned > 0)
        self.begin: tuple[int, float] | None = None

    @property
    def decided(self) -> bool:
        """Whether the number of steps of the run is known."""
        return self.setup.recipe.train.steps is not None or self.done

    @property
    def steps(self) -> int:
        """The number of steps of the run; 0 if it is not known yet."""
        return self.settings().steps if self.decided else 0

    def settings(self) -> ResolvedTrain:
        """Return the settings of training, as far as they are known now."""
        return self.setup.settings(self.state.budget, self._planned)

    @property
    def _planned(self) -> int:
        """The number of steps that was decided for this time limit; 0 if none was."""
        return self.state.planned if self.state.planned_minutes == self.setup.recipe.train.minutes else 0

    def update(self, seconds: float) -> str:
        """Decide, if the speed is known, after a step that ended at this training time; return a message if any.

        Every process must call this after the same steps; the clock of rank 0 decides.
        """
        if self.done:
            return ""
        if self.begin is None:
            self.begin = self.state.step, time.perf_counter()
            return ""
        steps, elapsed = self.state.step - self.begin[0], time.perf_counter() - self.begin[1]
        if steps < MIN_TRIAL_STEPS:
            return ""
        known = elapsed >= min(TRIAL_FRACTION * self.limit, MAX_TRIAL_SECONDS)
        more = steps_in_time(max(self.limit - seconds, 0.0), elapsed / steps, self._validation_steps())
        more = int(self.setup.group.broadcast(more if known else 0))
        return self._decide(self.state.step + more) if more else ""

    def _decide(self, steps: int) -> str:
        """Plan for a number of steps, and return a message for the user."""
        self.done = True
        settings, minutes = self.settings(), self.setup.recipe.train.minutes
        if self.setup.recipe.train.steps is None:
            self.state.planned, self.state.planned_minutes = steps, minutes
            settings = self.settings()
            return (
                f"about {steps:,} steps fit into train.minutes = {minutes:g}: warm-up of {settings.warmup:,} steps, "
                f"validation every {settings.every:,} steps"
            )
        cut = describe_cut(settings, steps) if steps < settings.steps else ""
        return f"at this speed train.minutes = {minutes:g} ends training at about step {steps:,}, {cut}" if cut else ""

    def _validation_steps(self) -> float:
        """Return how many training steps have as many tokens as the validation data."""
        store = self.setup.valid
        if store is None:
            return 0.0
        return self.setup.task.tokens(store.lengths) / self.setup.tokens_per_step(self.state.budget)
