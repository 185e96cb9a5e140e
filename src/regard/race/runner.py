"""Run a race: train and evaluate each contender in a process of its own, and report events as they happen.

Separate processes make the memory of each contender measurable, and one that fails does not stop the others.
Contenders that are finished are not trained again.
"""

import multiprocessing
import resource
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import Empty
from typing import Any

import torch

from regard.bundle import load_scores, save_scores
from regard.race.chat import ChatResult, evaluate_chat
from regard.race.contenders import Contender
from regard.race.result import RaceResult, is_trained
from regard.race.translation import TranslationResult, evaluate_translator
from regard.recipe import Recipe
from regard.train.events import Event, Finished
from regard.train.loop import train
from regard.train.report.log import LogWriter
from regard.train.stopping import StopRequest, handle_stop_signals

POLL_SECONDS = 1.0  # between two checks whether a silent process is still alive


@dataclass(frozen=True)
class Evaluated:
    """A contender is trained and evaluated."""

    result: RaceResult
    fresh: bool
    """False if an earlier call evaluated it."""


@dataclass(frozen=True)
class Failed:
    """A contender failed and leaves the race."""

    reason: str


RaceEvent = Event | Evaluated | Failed


def ranking_scores(recipe: Recipe) -> tuple[str, ...]:
    """Return the scores that the leaderboard shows, which depend on the task; the first one ranks the contenders."""
    return ("recalled", "gold turn", "BLEU") if recipe.task == "chat" else ("BLEU", "exact match", "AER")


def race(
    contenders: Sequence[Contender], folder: Path, device: str = "auto", *, parallel: int = 1
) -> Iterator[tuple[str, RaceEvent]]:
    """Run a race in a folder, and yield each event with the name of its contender.

    Ctrl-C stops and saves; the same call resumes.

    Args:
        contenders: The recipes, already limited to the budget.
        folder: The folder of the race; each contender has a subfolder.
        device: `cpu`, `cuda`, or `auto` for a GPU if there is one.
        parallel: Contenders to run at the same time. They share the CPU threads evenly.
    """
    threads = max(1, torch.get_num_threads() // parallel)
    context = multiprocessing.get_context("spawn")
    events: Any = context.Queue()
    waiting, running, terminated = list(contenders), dict[str, BaseProcess](), set[str]()
    with handle_stop_signals() as stop:
        while running or (waiting and not stop.requested):
            while waiting and len(running) < parallel and not stop.requested:
                contender = waiting.pop(0)
                run = folder / contender.name
                process = context.Process(target=_run_process, args=(contender, run, device, threads, events))
                process.start()
                running[contender.name] = process
            yield from _events_until_one_ends(running, events, stop, terminated)


def _events_until_one_ends(
    running: dict[str, BaseProcess], events: Any, stop: StopRequest, terminated: set[str]
) -> Iterator[tuple[str, RaceEvent]]:
    """Yield the events of all processes until one ends; a process that ends without a final message has failed.

    `terminated` are the names of processes that were already asked to stop.
    """
    while True:
        if stop.requested:  # Ctrl-C reaches the child processes by itself, other signals do not
            for name in running.keys() - terminated:
                running[name].terminate()
            terminated |= running.keys()
        try:
            name, event = events.get(timeout=POLL_SECONDS)
        except Empty:
            ended = [name for name, process in running.items() if not process.is_alive()]
            for name in ended:
                yield name, Failed(f"its process ended with exit code {running.pop(name).exitcode}")
            if ended:
                return
            continue
        if event is None:
            if name in running:
                running.pop(name).join()
            return
        if name in running:
            yield name, event


def _run_process(contender: Contender, run: Path, device: str, threads: int, events: Any) -> None:
    """Run one contender in a child process, and put its events into the queue, then None."""
    torch.set_num_threads(threads)
    try:
        for event in run_contender(contender, run, device):
            events.put((contender.name, event))
    except (ValueError, OSError, MemoryError) as error:
        events.put((contender.name, Failed(str(error) or type(error).__name__)))
    except KeyboardInterrupt:
        events.put((contender.name, Failed("stopped")))
    events.put((contender.name, None))


def run_contender(contender: Contender, run: Path, device: str = "auto") -> Iterator[RaceEvent]:
    """Train and evaluate one contender in this process, each unless an earlier call did, and yield the events."""
    recipe, trained_recipe = contender.recipe, _without_test(contender.recipe)
    is_chat = recipe.task == "chat"
    result: RaceResult | None = ChatResult.load(run, recipe) if is_chat else TranslationResult.load(run, recipe)
    if result is not None:
        yield Evaluated(result, fresh=False)
        return
    if not is_trained(run, trained_recipe):
        with LogWriter(run) as log:
            for event in train(trained_recipe, run, device):
                log.write(event)
                yield event
        if isinstance(event, Finished) and event.reason == "stopped":
            return
        save_scores(run, {**load_scores(run), "memory": _peak_memory()})
    evaluate = evaluate_chat if is_chat else evaluate_translator
    yield Evaluated(evaluate(contender.name, recipe, run, device), fresh=True)


def _without_test(recipe: Recipe) -> Recipe:
    """Return the recipe without test text, which the race evaluates itself after training."""
    if recipe.data.valid is None:
        return recipe
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"test": None})})


def _peak_memory() -> float:
    """Return the peak memory in bytes: of the GPU if one is in use, else of this process."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return float(torch.cuda.max_memory_allocated())
    status = Path("/proc/self/status")
    if status.is_file():  # the peak of this process alone; that of `resource` starts with the parent's
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) * 1024
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(largest) * (1 if sys.platform == "darwin" else 1024)
