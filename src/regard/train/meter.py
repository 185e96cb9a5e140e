"""How learning goes: sums kept on the device and read about once a second, so that the device is never waited for."""

import math
import time
from typing import NamedTuple

import torch
from torch import Tensor

from regard.train.engine import Update
from regard.train.events import Progress
from regard.train.standing import Standing
from regard.train.workers import Workers

PERIOD = 1.0  # seconds between two readings, about
FEWEST, MOST = 1, 100  # updates between two readings


class Reading(NamedTuple):
    """What was read, and what all processes have agreed on with it."""

    progress: Progress
    stopped: bool
    """Whether somebody has asked to stop."""
    late: bool
    """Whether the time is up."""


class Meter:
    """Sums since the last reading, and the clock of the run."""

    def __init__(self, standing: Standing, workers: Workers, flops: float, limit: float | None, steps: int) -> None:
        """`flops` a target token needs, `limit` the workers reach together in a second, `steps` at which it ends."""
        self.workers, self.flops, self.limit, self.steps = workers, flops, limit, steps
        self.began = time.perf_counter() - standing.seconds
        self.next = standing.step + FEWEST
        self._clear(standing.step)

    def add(self, update: Update) -> None:
        """Count an update; reads nothing from the device."""
        self.loss += update.loss
        self.tokens += update.tokens
        self.norm = update.norm

    def pause(self, seconds: float) -> None:
        """Leave out time that was not spent learning."""
        self.since += seconds

    def seconds(self) -> float:
        """Time since the run's very beginning."""
        return time.perf_counter() - self.began

    def read(self, standing: Standing, rate: float, stop: bool, late: bool) -> Reading:
        """Sum up over all processes; refuse to go on with numbers that are none."""
        sums = torch.cat([self.loss.reshape(1), self.loss.new_tensor([self.tokens, stop, late])])
        loss, tokens, stops, late_ones = self.workers.total(sums).tolist()
        norm = float(self.norm)
        if not math.isfinite(loss) or not math.isfinite(norm):
            raise FloatingPointError(f"between steps {self.before} and {standing.step}")
        standing.tokens += int(tokens)
        standing.seconds = self.seconds()
        spent = max(time.perf_counter() - self.since, 1e-9)
        speed = tokens / spent
        each = spent / max(standing.step - self.before, 1)
        # The first process's clock decides for all of them when they meet again.
        wait = self.workers.decided(min(max(round(PERIOD / each), FEWEST), MOST))
        self._clear(standing.step)
        self.next = standing.step + int(wait)
        progress = Progress(
            step=standing.step,
            epoch=standing.position.epoch,
            loss=loss / tokens,
            perplexity=math.exp(min(loss / tokens, 700.0)),
            rate=rate,
            norm=norm,
            tokens=standing.tokens,
            tokens_per_second=speed,
            share=None if self.limit is None else speed * self.flops / self.limit,
            seconds=standing.seconds,
            remaining=max(self.steps - standing.step, 0) * each,
        )
        return Reading(progress, stops > 0, late_ones > 0)

    def _clear(self, step: int) -> None:
        """Begin to sum anew."""
        self.loss: Tensor = torch.zeros((), dtype=torch.float64, device=self.workers.device)
        self.tokens, self.norm, self.before = 0, torch.zeros(()), step
        self.since = time.perf_counter()
