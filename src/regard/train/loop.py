"""The training loop: a generator that trains a recipe's model in a folder and yields events."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Literal

from torch.random import fork_rng

from regard.data.batching import Feed
from regard.data.prepare import Prepared, ProgressCallback, prepare, write_run_files
from regard.models.show_attend_tell import RewardBaseline
from regard.nn.cost import count_parameters
from regard.recipe import Recipe
from regard.run_files import RECIPE, TOKENIZER
from regard.tasks import Task, make_task
from regard.train import start, stopping
from regard.train.autotune import ExecutionMode, choose_execution_mode, compile_in_place, find_batch_size
from regard.train.checkpoint import has_checkpoint, remove_checkpoint
from regard.train.cpu_threads import CpuThreads, make_cpu_threads
from regard.train.cuda_graphs import GraphRunner
from regard.train.device import device_name, find_training_device, peak_flops
from regard.train.distributed import WorkerGroup, is_main_process, join_worker_group
from regard.train.engine import TrainingEngine
from regard.train.estimate import flops_per_unit
from regard.train.events import Event, Noticed, Saved, Started
from regard.train.meter import ProgressMeter
from regard.train.optimiser import set_learning_rate
from regard.train.run_state import (
    RunState,
    check_finite_weights,
    complete_checkpoint,
    restore_checkpoint,
    save_checkpoint,
)
from regard.train.schedule import ResolvedTrain, describe_cut, learning_rate
from regard.train.setup import TrainingSetup, build_setup
from regard.train.speed import SpeedTrial
from regard.train.stream import CPU_BLOCK, CpuParts, StaticShape, stream
from regard.train.validation import finish, remove_stale_weights, save_validated_weights, validate

Reason = Literal["steps", "patience", "stopped", "time"]


def train(
    recipe: Recipe,
    run: Path,
    device: str = "auto",
    progress: ProgressCallback | None = None,
    on_stop: Callable[[], None] | None = None,
    task: Task | None = None,
) -> Generator[Event]:
    """Train a recipe's model in the folder of a run, or resume the training of the run.

    Under torchrun every process calls this and gets the events; only rank 0 writes files.

    Args:
        recipe: What to train.
        run: Folder of the run.
        device: `cpu`, `cuda`, `cuda:1`, …, or `auto`: a GPU if there is one.
        progress: Called while the data are prepared.
        on_stop: Called from within the signal handler when a signal asks to stop. A running validation is completed
            first, so the event `Finished` may follow much later.
        task: The task of the run, if it is not one of the built-in ones.

    Example:
        >>> for event in train(load("recipes/phrasebook.toml"), Path("runs/mine")):
        ...     if isinstance(event, Validated):
        ...         print(event.step, event.loss)
    """
    find_training_device(device)  # an unknown device must not become an error after hours of preparing data
    recipe = start.inherit_model(start.inherit_train_settings(recipe, run), run)
    recipe = start.inherit_text_settings(recipe, run)
    task = make_task(recipe) if task is None else replace(task, recipe=recipe)
    start.check_recipe(recipe, run)
    start.check_start(recipe, task, run)
    start.check_validation_settings(recipe, task, run)
    if is_main_process():
        stopping.check_writable(run)
    prepared = prepare(recipe, task, run, progress, fields=start.inherited_fields(recipe, task, run))
    task = task.with_fields(prepared.fields)
    with (
        join_worker_group(device) as group,
        stopping.lock_run(run) if group.is_main else nullcontext(),
        stopping.explain_full_disk(run),
        stopping.handle_stop_signals(on_stop) as stop,
        stopping.explain_lost_process(group, run),
    ):
        setup, state, notices = _set_up(recipe, task, run, group, prepared)
        yield from map(Noticed, notices)
        started = _started(setup, state)
        yield started
        with stopping.explain_failed_step(run, recipe.train, state.budget):
            reason = yield from _train(setup, state, started, stop)
        yield from _restore_run_files(setup)
        yield finish(setup, state, reason, trained=state.step > started.step)


def _set_up(
    recipe: Recipe, task: Task, run: Path, group: WorkerGroup, prepared: Prepared
) -> tuple[TrainingSetup, RunState, list[str]]:
    """Return the setup of a run, its state from the last checkpoint, and messages for the user."""
    group.check_equal(prepared.fields.fingerprint, "the vocabulary")
    notices = prepared.notices()
    model = None
    if recipe.train.start and not has_checkpoint(run):  # a run that resumes has its own weights
        model, message = start.initialise_from_run(recipe, task, prepared)
        notices.append(message)
    setup = build_setup(recipe, task, run, group, prepared, model)
    state, messages = restore_checkpoint(setup)
    notices += messages
    if group.is_main:  # only now is it certain that data and vocabulary are those of the run
        write_run_files(recipe, prepared)
        remove_stale_weights(run)
    group.barrier()
    if not state.budget and recipe.train.tokens == "auto":
        state.budget = find_batch_size(setup)
        notices.append(f"train.tokens: batches of {state.budget} tokens fit")
    state.budget = state.budget or setup.default_tokens
    return setup, state, notices


def _train(
    setup: TrainingSetup, state: RunState, started: Started, stop: stopping.StopRequest
) -> Generator[Event, None, Reason]:
    """Update the weights until training ends; report metrics about once a second, and validate every so often."""
    group, trial = setup.group, SpeedTrial.of(setup, state)
    settings = trial.settings()
    if state.validation_due:  # the process that saved the last checkpoint did not complete the validation after it
        yield from _validate(setup, state, lambda: state.seconds)
        complete_checkpoint(setup, state)
    if reason := _end_reason(settings, state, trial.decided) or ("time" if state.seconds > trial.limit else None):
        return reason
    mode = choose_execution_mode(setup, state)
    if mode.compiled:
        compile_in_place(setup.module)
    if mode.reason:
        yield Noticed(mode.reason)
    meter = ProgressMeter(state, group, started.flops_per_token, started.limit)
    feed, saved_step = setup.feed(state.budget), state.step
    with (
        _cpu_threads(setup, state, mode) as threads,
        stream(feed, state.position, _batch_shape(setup, feed, mode, threads), group.device.type == "cuda") as steps,
    ):
        graphs = GraphRunner(setup.module, group.device, setup.precision) if mode.captured else None
        engine = TrainingEngine(setup.module, setup.optimisers, group, setup.precision, settings.clip, threads, graphs)
        while reason is None:
            position, micro_batches = next(steps)
            rate = learning_rate(settings, state.step + 1, state.shrunk)
            set_learning_rate(setup.optimisers, rate)
            meter.add(engine.update(micro_batches))
            state.step, state.position = state.step + 1, position
            if setup.average is not None:
                setup.average.update(state.step)
            validation_due = state.step % settings.every == 0 or (trial.decided and state.step == settings.steps)
            # Several processes must agree to stop, which they do at the next reading.
            stop_now = stop.requested and group.world_size == 1
            if not (validation_due or stop_now or state.step >= meter.next_reading):
                continue
            out_of_time = group.is_main and meter.seconds() > trial.limit
            reading = meter.read(state, rate, stop.requested, out_of_time, trial.steps, trial.limit)
            yield reading.progress
            if message := trial.update(meter.seconds()):
                yield Noticed(message)
            settings = trial.settings()
            out_of_time = reading.out_of_time
            if validation_due:
                yield from _save_and_validate(setup, state, meter, trial)
                settings, saved_step = trial.settings(), state.step
                out_of_time = trial.is_over(meter.seconds())
            reason = _end_reason(settings, state, trial.decided) or (
                "stopped" if reading.stop_requested else "time" if out_of_time else None
            )
    if reason != "stopped" and (cut := describe_cut(settings, state.step)):
        yield Noticed(f"training ended at step {state.step:,}, {cut}")
    if saved_step != state.step:
        yield from _save_and_validate(setup, state, meter, trial, validated=reason == "time")
    return reason


def _save_and_validate(
    setup: TrainingSetup, state: RunState, meter: ProgressMeter, trial: SpeedTrial, validated: bool = True
) -> Iterator[Event]:
    """Save a checkpoint and, unless `validated` is false, validate the weights, which may revise a plan by time."""
    begin = time.perf_counter()
    check_finite_weights(setup, state)
    state.seconds, state.validation_due = meter.seconds(), validated
    yield from _restore_run_files(setup)
    # Before the validation, so that no step is lost if it fails.
    path = save_checkpoint(setup, state)
    if validated:
        yield from _validate(setup, state, meter.seconds)
        if message := trial.validated(meter.seconds(), time.perf_counter() - begin):
            yield Noticed(message)
    complete_checkpoint(setup, state)
    yield Saved(state.step, path)
    meter.exclude(time.perf_counter() - begin)


def _restore_run_files(setup: TrainingSetup) -> Iterator[Event]:
    """Write recipe and vocabularies again if the folder was removed: weights are of no use without them."""
    if setup.group.is_main and not ((setup.run / RECIPE).is_file() and (setup.run / TOKENIZER).is_dir()):
        write_run_files(setup.recipe, setup.prepared)
        yield Noticed(f"{setup.run} was removed during training; its recipe and vocabularies are written again")


def _validate(setup: TrainingSetup, state: RunState, seconds: Callable[[], float]) -> Iterator[Event]:
    """Validate the weights of the last checkpoint, which is removed if their loss is not finite."""
    try:
        with setup.evaluation_model() as model:
            if setup.valid is not None:
                # A run that resumes from the checkpoint before a complete validation does not repeat it, so it must not
                # draw random numbers.
                with fork_rng([setup.group.device] if setup.group.device.type == "cuda" else []):
                    event = validate(setup, model, state, seconds())
                yield event
            save_validated_weights(setup, model, state)
    except FloatingPointError:
        if setup.group.is_main:
            remove_checkpoint(setup.run, state.step)
        raise
    state.seconds, state.validation_due = seconds(), False


def _end_reason(settings: ResolvedTrain, state: RunState, decided: bool) -> Reason | None:
    """Return why training is complete, or None if it is not; `decided` says whether the number of steps is known."""
    if decided and state.step >= settings.steps:
        return "steps"
    if settings.patience and state.stale >= settings.patience:
        return "patience"
    return None


def _cpu_threads(
    setup: TrainingSetup, state: RunState, mode: ExecutionMode
) -> AbstractContextManager[CpuThreads | None]:
    """Return data-parallel threads, if a single process trains an eager model on a CPU and batches are large enough."""
    possible = setup.group.device.type == "cpu" and setup.group.world_size == 1 and not mode.compiled
    # Threads would update a moving average in an order that depends on their scheduling.
    possible = possible and not any(isinstance(module, RewardBaseline) for module in setup.model.modules())
    return (make_cpu_threads(state.budget) if possible else None) or nullcontext()


def _batch_shape(
    setup: TrainingSetup, feed: Feed, mode: ExecutionMode, threads: CpuThreads | None
) -> StaticShape | CpuParts | None:
    """Return the form in which batches are prepared."""
    if mode.static:
        return StaticShape.from_feed(feed)
    if setup.group.device.type != "cpu":
        return None
    return CpuParts(1 if threads is None else threads.count, CPU_BLOCK if setup.precision == "bfloat16" else 1)


def _started(setup: TrainingSetup, state: RunState) -> Started:
    """Return the first event of a training."""
    group = setup.group
    return Started(
        recipe=setup.recipe,
        run=setup.run,
        parameters=count_parameters(setup.model),
        device=device_name(group.device),
        workers=group.world_size,
        vocabulary=setup.prepared.fields.sizes,
        flops_per_token=flops_per_unit(setup.task, setup.model, setup.prepared.stores),
        limit=peak_flops(group.device, setup.precision) * group.world_size,
        step=state.step,
        steps=SpeedTrial.of(setup, state).steps,
        unit=setup.task.unit,
    )
