"""The race itself: contenders in, what happens to each out, as it happens.

Each contender has a process of its own, so that its memory can be told from the others', and one that fails takes
nobody with it. What is finished is not done again.
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
from regard.race.entrants import Contender
from regard.race.judging import Result, judge, load_result, trained
from regard.recipe import Recipe
from regard.train.events import Event, Finished
from regard.train.journal import Journal
from regard.train.loop import train
from regard.train.stopping import Stop, stoppable

WAIT = 1.0  # seconds between two looks at whether a process still lives


@dataclass(frozen=True)
class Judged:
    """A contender is through."""

    result: Result
    fresh: bool
    """Whether it ran now, rather than before."""


@dataclass(frozen=True)
class Failed:
    """A contender is out of the race."""

    reason: str


Happening = Event | Judged | Failed


def race(
    contenders: Sequence[Contender], folder: Path, device: str = "auto", *, abreast: int = 1
) -> Iterator[tuple[str, Happening]]:
    """Run the race in a folder, so many contenders at a time; each thing that happens, with who.

    Side by side they share the processors, each with its part of the threads. Ctrl-C stops and saves; the same call
    goes on from there.
    """
    threads = max(1, torch.get_num_threads() // abreast)
    context = multiprocessing.get_context("spawn")
    told: Any = context.Queue()
    waiting, running, asked = list(contenders), dict[str, BaseProcess](), set[str]()
    with stoppable() as stop:
        while running or (waiting and not stop.asked):
            while waiting and len(running) < abreast and not stop.asked:
                each = waiting.pop(0)
                process = context.Process(target=_work, args=(each, folder / each.name, device, threads, told))
                process.start()
                running[each.name] = process
            yield from _follow(running, told, stop, asked)


def _follow(running: dict[str, BaseProcess], told: Any, stop: Stop, asked: set[str]) -> Iterator[tuple[str, Happening]]:
    """What processes tell, until one has ended and left; one that ends without a last word has failed.

    `asked` are those who know already that they are to stop.
    """
    while True:
        if stop.asked:  # a Ctrl-C has reached them by itself, another signal has not; both ask the same
            for name in running.keys() - asked:
                running[name].terminate()
            asked |= running.keys()
        try:
            name, happened = told.get(timeout=WAIT)
        except Empty:
            ended = [name for name, process in running.items() if not process.is_alive()]
            for name in ended:
                yield name, Failed(f"its process ended with exit code {running.pop(name).exitcode}")
            if ended:
                return
            continue
        if happened is None:
            if name in running:
                running.pop(name).join()
            return
        if name in running:
            yield name, happened


def _work(contender: Contender, run: Path, device: str, threads: int, told: Any) -> None:
    """What a process does: one contender's part of the race, told to the others."""
    torch.set_num_threads(threads)
    try:
        for happened in contend(contender, run, device):
            told.put((contender.name, happened))
    except (ValueError, OSError, MemoryError) as error:
        told.put((contender.name, Failed(str(error) or type(error).__name__)))
    except KeyboardInterrupt:
        told.put((contender.name, Failed("stopped")))
    told.put((contender.name, None))


def contend(contender: Contender, run: Path, device: str = "auto") -> Iterator[Happening]:
    """One contender's part: trained, unless it was, and judged, unless it was."""
    recipe, lesson = contender.recipe, without_test(contender.recipe)
    known = load_result(run, recipe)
    if known is not None:
        yield Judged(known, fresh=False)
        return
    if not trained(run, lesson):
        with Journal(run) as journal:
            for event in train(lesson, run, device):
                journal.write(event)
                yield event
        if isinstance(event, Finished) and event.reason == "stopped":
            return
        save_scores(run, {**load_scores(run), "memory": peak_memory()})
    yield Judged(judge(contender.name, recipe, run, device), fresh=True)


def without_test(recipe: Recipe) -> Recipe:
    """The recipe as it is trained: the test text is the judge's, and need not be translated twice."""
    if recipe.data.valid is None:
        return recipe
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"test": None})})


def peak_memory() -> float:
    """Bytes at the worst moment so far: of the GPU where there is one in use, else of this process."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return float(torch.cuda.max_memory_allocated())
    status = Path("/proc/self/status")
    if status.is_file():  # a process's own peak; the one `resource` knows begins with that of its parent
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) * 1024
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(largest) * (1 if sys.platform == "darwin" else 1024)
