"""Training metrics: sums that stay on the device and are read about once a second, so nothing waits for the device."""

import math
import time
from typing import NamedTuple

import torch
from torch import Tensor

from regard.train.distributed import WorkerGroup
from regard.train.engine import Update
from regard.train.events import Progress
from regard.train.run_state import RunState

PERIOD = 1.0  # approximate seconds between two readings
MIN_STEPS, MAX_STEPS = 1, 100  # updates between two readings


class Reading(NamedTuple):
    """Metrics since the last reading, and decisions that all processes share."""

    progress: Progress
    stop_requested: bool
    """Whether any process was asked to stop."""
    out_of_time: bool
    """Whether the time limit is reached."""


class ProgressMeter:
    """Sums of the loss and units since the last reading, and the clock of the run."""

    def __init__(self, state: RunState, group: WorkerGroup, flops: float, peak: float | None) -> None:
        """Start to measure.

        Args:
            state: State of the run, whose training time is continued.
            group: The processes to sum over.
            flops: Floating-point operations of each unit.
            peak: Peak FLOP/s of all processes; None if unknown.
        """
        self.group, self.flops, self.peak = group, flops, peak
        self.started = time.perf_counter() - state.seconds
        self.next_reading = state.step + MIN_STEPS
        self._reset(state.step)

    def add(self, update: Update) -> None:
        """Add an update. Does not synchronise with the device."""
        self.loss += update.loss
        self.units += update.units
        self.norm = update.norm

    def exclude(self, seconds: float) -> None:
        """Exclude time that was not spent on updates from the speed."""
        self.since += seconds

    def seconds(self) -> float:
        """Return the training time since the start of the run."""
        return time.perf_counter() - self.started

    def read(
        self, state: RunState, rate: float, stop_requested: bool, out_of_time: bool, steps: int, limit: float
    ) -> Reading:
        """Sum over all processes and reset; raise a FloatingPointError if the loss or the gradient is not finite.

        Args:
            state: State of the run.
            rate: Learning rate of the last update.
            stop_requested: Whether this process was asked to stop.
            out_of_time: Whether this process is out of time.
            steps: Updates of the whole training; 0 if that is not known.
            limit: Maximum training time in seconds.
        """
        sums = torch.cat([self.loss.reshape(1), self.loss.new_tensor([self.units, stop_requested, out_of_time])])
        loss, units, stop_requests, timeouts = self.group.all_reduce(sums).tolist()
        norm = float(self.norm)
        if not math.isfinite(loss) or not math.isfinite(norm):
            raise FloatingPointError(f"the loss is not finite between steps {self.last_step} and {state.step}")
        state.tokens += int(units)
        state.seconds = self.seconds()
        elapsed = max(time.perf_counter() - self.since, 1e-9)
        speed = units / elapsed
        step_seconds = elapsed / max(state.step - self.last_step, 1)
        # All processes must read after the same step, so the clock of rank 0 decides.
        interval = self.group.broadcast(min(max(round(PERIOD / step_seconds), MIN_STEPS), MAX_STEPS))
        self._reset(state.step)
        self.next_reading = state.step + int(interval)
        progress = Progress(
            step=state.step,
            epoch=state.position.epoch,
            loss=loss / units,
            perplexity=math.exp(min(loss / units, 700.0)),
            rate=rate,
            norm=norm,
            tokens=state.tokens,
            tokens_per_second=speed,
            share=None if self.peak is None else speed * self.flops / self.peak,
            seconds=state.seconds,
            remaining=min(
                max(steps - state.step, 0) * step_seconds if steps else math.inf, max(limit - state.seconds, 0.0)
            ),
            steps=steps,
        )
        return Reading(progress, stop_requests > 0, timeouts > 0)

    def _reset(self, step: int) -> None:
        """Start new sums after a step."""
        self.loss: Tensor = torch.zeros((), dtype=torch.float64, device=self.group.device)
        self.units, self.norm, self.last_step = 0, torch.zeros(()), step
        self.since = time.perf_counter()
