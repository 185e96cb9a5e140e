"""The training loop: a recipe and a folder in, events out as it goes, and in the end a trained model in the folder."""

import math
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Literal

import torch

from regard.data.batching import Feed
from regard.data.prepare import Prepared, Watch, gather, lay_out
from regard.models.cost import parameters
from regard.recipe import Recipe
from regard.train.budget import find_budget
from regard.train.checkpoint import exists, newest, room_in
from regard.train.compiling import Way, compile_in_place, decide
from regard.train.cost import device_name, find_learner, flops_per_token, limit
from regard.train.engine import Engine
from regard.train.events import Event, Noticed, Saved, Started
from regard.train.finish import finish, keep_weights, tidy_weights
from regard.train.hands import Hands, hands_for
from regard.train.job import Job, assemble
from regard.train.meter import Meter
from regard.train.optimiser import set_rate
from regard.train.recording import Recorder
from regard.train.restore import check_numbers, restore, save
from regard.train.resume import check_choices, check_recipe
from regard.train.schedule import rate
from regard.train.standing import Standing
from regard.train.start import adopted, begun, given_tokenizers
from regard.train.stopping import Stop, claimed, stoppable
from regard.train.stream import BLOCK, Parts, Shape, stream
from regard.train.validation import validate
from regard.train.workers import Workers, joined

Reason = Literal["steps", "patience", "stopped", "time"]


def train(
    recipe: Recipe,
    run: Path,
    device: str = "auto",
    watch: Watch | None = None,
    asked: Callable[[], None] | None = None,
) -> Generator[Event]:
    """Train a recipe's model in a run's folder, or go on where it was stopped.

    `watch` is told of the preparation of text. `asked` is called from within a signal when it asks to stop, which may
    be long before the event that says so: a validation goes on to its end. Under torchrun every process calls this and
    gets the events; only the first one writes.
    """
    find_learner(device)  # what is not there must not be told of after hours of preparing text
    recipe = adopted(recipe, run)
    check_recipe(recipe, run)
    check_choices(recipe, run)
    prepared = gather(recipe, run, watch, tokenizers=given_tokenizers(recipe, run))
    with (
        joined(device) as workers,
        claimed(run) if workers.first else nullcontext(),
        room_in(run),
        stoppable(asked) as stop,
        _in_company(workers, run),
    ):
        job, standing, notices = _begin(recipe, run, workers, prepared)
        yield from map(Noticed, notices)
        started = _started(job, standing)
        yield started
        try:
            reason = yield from _learn(job, standing, started, stop)
        except FloatingPointError as error:
            raise ValueError(_not_a_number(job, str(error))) from error
        except torch.OutOfMemoryError as error:
            raise ValueError(_too_large(job, standing)) from error
        yield finish(job, standing, reason)


def _begin(recipe: Recipe, run: Path, workers: Workers, prepared: Prepared) -> tuple[Job, Standing, list[str]]:
    """The job, where it stands, and what a person should know of both."""
    workers.same(prepared.tokenizers.fingerprint, "the vocabulary")
    notices = []
    model = None
    if recipe.train.start and not exists(run):  # weights from elsewhere matter at the very beginning only
        model, word = begun(recipe, prepared)
        notices.append(word)
    job = assemble(recipe, run, workers, prepared, model)
    standing, more = restore(job)
    notices += more
    if workers.first:  # only now is it certain that this text and vocabulary are the run's own
        lay_out(recipe, prepared)
        tidy_weights(run)
    workers.wait()
    if not standing.budget:
        standing.budget = find_budget(job)
        notices.append(f"train.tokens: batches of {standing.budget} tokens fit")
    return job, standing, notices


def _learn(job: Job, standing: Standing, started: Started, stop: Stop) -> Generator[Event, None, Reason]:
    """Update after update until something ends it, with a reading now and then and a validation at each turn."""
    settings = job.recipe.train
    if reason := _over(job, standing) or ("time" if standing.seconds > _allowed(job) else None):
        return reason
    way = decide(job, standing)
    if way.compiled:
        compile_in_place(job.learner)
    if way.why:
        yield Noticed(way.why)
    meter = Meter(standing, job.workers, started.flops_per_token, started.limit, settings.steps)
    feed, saved = job.feed(standing.budget), standing.step
    with (
        _hands(job, standing, way) as hands,
        stream(feed, standing.position, _shape(job, feed, way, hands), job.workers.device.type == "cuda") as steps,
    ):
        learners = job.learner, job.optimisers, job.workers
        recorder = Recorder(job.learner, job.workers.device, settings.precision) if way.recorded else None
        engine = Engine(*learners, settings.precision, settings.clip, hands, recorder)
        while reason is None:
            after, loads = next(steps)
            now = rate(settings, standing.step + 1, standing.shrunk)
            set_rate(job.optimisers, now)
            meter.add(engine.update(loads))
            standing.step, standing.position = standing.step + 1, after
            if job.average is not None:
                job.average.follow(standing.step)
            turn = standing.step % settings.every == 0 or standing.step == settings.steps
            if not turn and standing.step < meter.next and not (stop.asked and job.workers.count == 1):
                continue
            reading = meter.read(standing, now, stop.asked, _late(job, meter))
            yield reading.progress
            if turn:
                yield from _turn(job, standing, meter)
                saved = standing.step
            reason = _over(job, standing) or ("stopped" if reading.stopped else "time" if reading.late else None)
    if saved != standing.step:
        yield from _turn(job, standing, meter, judge=reason == "time")
    return reason


def _hands(job: Job, standing: Standing, way: Way) -> AbstractContextManager[Hands | None]:
    """Who learns beside each other in this process: on a CPU, as many as batches are large enough for."""
    alone = job.workers.device.type != "cpu" or job.workers.count > 1 or way.compiled
    return (None if alone else hands_for(standing.budget)) or nullcontext()


def _shape(job: Job, feed: Feed, way: Way, hands: Hands | None) -> Shape | Parts | None:
    """In what shape batches are wanted."""
    if way.one_size:
        return Shape.of(feed)
    if job.workers.device.type != "cpu":
        return None
    half = job.recipe.train.precision == "bfloat16"
    return Parts(1 if hands is None else hands.count, BLOCK if half else 1)


def _turn(job: Job, standing: Standing, meter: Meter, judge: bool = True) -> Iterator[Event]:
    """Validate and save."""
    begin = time.perf_counter()
    check_numbers(job, standing)
    if judge:
        with job.judged() as model:
            if job.valid is not None:
                yield validate(job, model, standing, meter.seconds())
            keep_weights(job, model, standing)
    standing.seconds = meter.seconds()
    yield Saved(standing.step, save(job, standing))
    meter.pause(time.perf_counter() - begin)


def _over(job: Job, standing: Standing) -> Reason | None:
    """Why there is nothing more to learn, if so."""
    settings = job.recipe.train
    if standing.step >= settings.steps:
        return "steps"
    if settings.patience and standing.stale >= settings.patience:
        return "patience"
    return None


def _late(job: Job, meter: Meter) -> bool:
    """Whether the time is up, by the first process's clock."""
    return job.workers.first and meter.seconds() > _allowed(job)


def _allowed(job: Job) -> float:
    """Seconds that the run may take."""
    minutes = job.recipe.train.minutes
    return math.inf if minutes is None else 60 * minutes


def _started(job: Job, standing: Standing) -> Started:
    """What is known before the first update."""
    workers, both = job.workers, job.prepared.tokenizers
    return Started(
        recipe=job.recipe,
        run=job.run,
        parameters=parameters(job.model),
        device=device_name(workers.device),
        workers=workers.count,
        vocabulary=(len(both.source), len(both.target)),
        flops_per_token=flops_per_token(job.model, job.prepared.stores),
        limit=limit(workers.device, job.recipe.train.precision) * workers.count,
        step=standing.step,
        steps=job.recipe.train.steps,
    )


def _not_a_number(job: Job, where: str) -> str:
    """What became of a run whose numbers ran away."""
    return (
        f"the loss is not a number any more, {where}. {_last_good(job.run)} "
        "Learn more slowly: a lower train.rate, a longer train.warmup, a smaller train.clip, or "
        "train.precision=float32, in a new folder (train.start takes good weights along)"
    )


def _too_large(job: Job, standing: Standing) -> str:
    """What became of a run that did not fit its device."""
    settings = job.recipe.train
    return (
        f"the device's memory does not hold a batch of {standing.budget} tokens. {_last_good(job.run)} Give the same "
        f"command with train.tokens={standing.budget // 2} train.accumulate={2 * settings.accumulate}, "
        "which learns the same from smaller batches"
    )


@contextmanager
def _in_company(workers: Workers, run: Path) -> Iterator[None]:
    """Say what became of a run that lost one of its processes, wherever the others were waiting for it."""
    try:
        yield
    except RuntimeError as error:
        if not workers.lost(error):
            raise
        raise ValueError(
            f"one of the {workers.count} processes is gone; look for its own last words. {_last_good(run)} The same "
            "command goes on from there; torchrun --max-restarts 3 gives it by itself"
        ) from error


def _last_good(run: Path) -> str:
    """What is safe on disk."""
    place, _ = newest(run)
    return f"The last checkpoint, {place}, is whole." if place else "There is no checkpoint yet."
