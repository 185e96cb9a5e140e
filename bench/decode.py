"""Translating: ours beside Hugging Face's `generate` and CTranslate2, on the same weights and sentences, in one run.

    python bench/decode.py                                       # random weights, output as long as the source
    python bench/decode.py --source test.en --sentences 1000 --rounds 5
    python bench/decode.py --run runs/mine --source test.en      # a trained model: text of mixed length, real endings
    python bench/decode.py --device cuda                         # 32,000 tokens, 30 to read and exactly 30 to write

Everybody is a process of its own, so that nobody's memory or threads are another's; they work in turns, round after
round, and the best round counts, since a busy machine only ever takes time. CTranslate2 is measured as it comes and
with AVX512 forced. Random weights have no use for an end, so output lengths are fixed there and sentences are grouped
by exact length; a trained model ends where it ends.
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.bundle import load_bundle
from regard.data.phrasebook import phrases
from regard.files import read_lines
from regard.text.settings import END
from translators import SIZES, Batch, Setting, Translate, ctranslate2, hf_model, hugging_face, regard

__all__ = ["hf_model"]

CPU = "regard-float32,regard-bfloat16,regard-int8,hf-float32,hf-bfloat16,ct2-float32,ct2-int8,ct2x-float32,ct2x-int8"
CUDA = "regard-bfloat16,hf-bfloat16"


# A process for each, in turns.


def serve(connection: Connection, name: str, setting: Setting) -> None:
    """Do what is asked until nothing more is: batches, beam and whether alone in; seconds and tokens out."""
    who, precision = name.split("-")
    if who == "ct2x":
        os.environ["CT2_FORCE_CPU_ISA"] = "AVX512"
    makers: dict[str, Callable[..., Translate]] = {"regard": regard, "hf": hugging_face, "ct2": ctranslate2}
    try:
        translate = makers[who.rstrip("x")](setting, precision)
        connection.send(None)
        while (asked := connection.recv()) is not None:
            batches, beam, alone = asked
            seconds, busy, tokens = [], time.process_time(), 0
            for each in [[batch] for batch in batches] if alone else [batches]:
                begin = time.perf_counter()
                tokens += translate(each, beam, alone)
                seconds.append(time.perf_counter() - begin)
            connection.send((seconds, time.process_time() - busy, tokens, peak(setting.device)))
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")


def peak(device: str) -> float:
    """The most memory this process ever had, in GB."""
    if device != "cpu":
        return torch.cuda.max_memory_allocated() / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


class Contender:
    """A process that translates, and what it took."""

    def __init__(self, name: str, setting: Setting) -> None:
        """Start it, and wait until its model is ready."""
        self.name, self.rounds = name, defaultdict[str, list[tuple[list[float], float, int]]](list)
        self.memory = 0.0
        context = multiprocessing.get_context("spawn")
        self.connection, there = context.Pipe()
        self.process = context.Process(target=serve, args=(there, name, setting), daemon=True)
        self.process.start()
        there.close()
        self.failure: str | None = self._receive()

    def work(self, task: str, batches: Sequence[Batch], beam: int, alone: bool) -> None:
        """Translate, and note what it took; an empty task is warming up."""
        if self.failure is not None:
            return
        self.connection.send((batches, beam, alone))
        answer = self._receive()
        if isinstance(answer, str):
            self.failure = answer
            return
        seconds, busy, tokens, self.memory = answer
        if task:
            self.rounds[task].append((seconds, busy, tokens))

    def _receive(self) -> Any:
        try:
            return self.connection.recv()
        except EOFError:
            return "its process died"

    def end(self) -> None:
        """Let the process go."""
        if self.failure is None:
            with suppress(OSError):  # who presses Ctrl-C stops everybody at once
                self.connection.send(None)
        self.process.join(10)

    def result(self, sentences: int) -> dict[str, Any]:
        """The best round of each task, as rates; latencies over all rounds."""
        if self.failure is not None:
            return {"failure": self.failure}
        found: dict[str, Any] = {"memory_gb": round(self.memory, 2)}
        for task, rounds in self.rounds.items():
            if task.startswith("latency"):
                every = sorted(1e3 * each for seconds, _, _ in rounds for each in seconds)
                found[task] = {
                    "p50_ms": statistics.median(every),
                    "p95_ms": every[round(0.95 * (len(every) - 1))],
                    "processor_ms": min(1e3 * busy / len(seconds) for seconds, busy, _ in rounds),
                }
            else:
                seconds, _, tokens = min(rounds, key=lambda one: one[0][0])
                found[task] = {
                    "sentences_per_second": sentences / seconds[0],
                    "tokens_per_second": tokens / seconds[0],
                    "sentences_per_processor_second": sentences / min(one[1] for one in rounds),
                }
        return found


# What is translated.


def sentences(arguments: argparse.Namespace) -> list[list[int]]:
    """Ids of the sentences: a trained model's own, or random ones, as many as a line has words and one for the end."""
    if arguments.length is not None:
        shape = arguments.sentences, arguments.length
        drawn = np.random.default_rng(2).integers(4, arguments.vocabulary, shape).tolist()
        return [[*ids[:-1], END] for ids in drawn]
    if arguments.source is None:
        dice = random.Random(1)
        lines = [phrase.source for phrase in phrases("de", "train", arguments.sentences, seed=dice.randrange(99))]
    else:
        every = (line for block in read_lines(Path(arguments.source)) for line in block)
        lines = list(islice(every, arguments.sentences))
    if arguments.run is not None:
        tokenizer = load_bundle(Path(arguments.run)).tokenizers.source
        return [[*ids, END] for ids in map(tokenizer.encode, lines) if ids]
    numbers = np.random.default_rng(2)
    return [numbers.integers(4, arguments.vocabulary, len(line.split()) + 1).tolist() for line in lines if line.split()]


def batched(every: list[list[int]], most: int, fixed: bool) -> Iterator[Batch]:
    """Batches of like length, the longest first; of exactly one length where that is what the output gets."""
    batch: Batch = []
    for ids in sorted(every, key=len, reverse=True):
        if batch and (len(batch) == most or (fixed and len(ids) != len(batch[0]))):
            yield batch
            batch = []
        batch.append(ids)
    if batch:
        yield batch


def parse() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--size", default="base", choices=SIZES)
    parser.add_argument("--vocabulary", type=int, help="tokens; 10,000 unless told, 32,000 on CUDA")
    parser.add_argument("--run", help="a trained bundle, for text of mixed length with real endings")
    parser.add_argument("--source", help="a file of sentences; the phrasebook's unless told")
    parser.add_argument("--length", type=int, help="random sentences of so many tokens; on CUDA 30 unless told")
    parser.add_argument("--sentences", type=int, help="200 unless told, 1,024 on CUDA")
    parser.add_argument("--latencies", type=int, default=20, help="sentences translated one by one")
    parser.add_argument("--batch", help="sentences side by side at most, a list; 32 unless told, 1024,256 on CUDA")
    parser.add_argument("--beams", default="1,5")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help=f"contenders, of {CPU}")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    on_cuda = asked.device == "cuda"
    defaults = {"batch": ("32", "1024,256"), "vocabulary": (10_000, 32_000), "sentences": (200, 1024)}
    for name, pair in defaults.items():
        if getattr(asked, name) is None:
            setattr(asked, name, pair[on_cuda])
    if on_cuda and asked.length is None and asked.run is None and asked.source is None:
        asked.length = 30
    return asked


Work = dict[str, tuple[list[Batch], int]]
"""What there is to do: batches and a beam under the name of a task."""


def planned(asked: argparse.Namespace, every: list[list[int]], fixed: bool) -> Work:
    """Every batch size with every beam, and sentences one by one."""
    plan: Work = {}
    for beam in map(int, asked.beams.split(",")):
        for most in map(int, asked.batch.split(",")):
            plan[f"beam {beam} batch {most}"] = list(batched(every, most, fixed)), beam
        plan[f"latency {beam}"] = [[ids] for ids in every[: asked.latencies]], beam
    return plan


def take_turns(contenders: list[Contender], number: int, asked: argparse.Namespace, plan: Work) -> None:
    """One round; the first, number 0, only warms up."""
    few = number == 0 and asked.device == "cpu"
    for task, (batches, beam) in plan.items():
        for each in contenders:
            print(f"\rround {number} of {asked.rounds}, {task}: {each.name:<16}", end="", file=sys.stderr)
            alone = task.startswith("latency")
            each.work(task if number else "", batches[:2] if few else batches, beam, alone)


def main() -> None:
    """Everybody in turns, round after round, and a table."""
    asked = parse()
    setting = Setting(asked.size, asked.vocabulary, asked.run, asked.device, asked.workers)
    every = sentences(asked)
    plan = planned(asked, every, setting.fixed)
    names = (asked.only or (CPU if asked.device == "cpu" else CUDA)).split(",")
    contenders = [Contender(name, setting) for name in names]
    try:
        for number in range(asked.rounds + 1):
            take_turns(contenders, number, asked, plan)
    except KeyboardInterrupt:
        print("\nstopped; what whole rounds found:", file=sys.stderr)
    print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
    found = {each.name: each.result(len(every)) for each in contenders}
    for each in contenders:
        each.end()
    tokens = sum(len(ids) for ids in every)
    facts = {"sentences": len(every), "source_tokens": tokens, **vars(asked)}
    print(json.dumps(facts | {"found": found}) if asked.json else table(found, plan, facts))


def table(found: dict[str, Any], plan: Work, facts: dict[str, Any]) -> str:
    """A table for each task, a line for each contender."""
    lines = [f"{facts['sentences']} sentences, {facts['source_tokens']} source tokens, {facts['device']}"]
    for task in plan:
        columns = ("p50 ms", "p95 ms", "cpu ms") if task.startswith("latency") else ("sent/s", "tok/s", "sent/cpu-s")
        lines.append(f"\n{task:<18}" + "".join(f"{column:>12}" for column in columns))
        for name, each in found.items():
            if task in each:
                lines.append(f"{name:<18}" + "".join(f"{value:12.1f}" for value in each[task].values()))
    lines.append("\nmemory, GB: " + ", ".join(f"{name} {each.get('memory_gb', '–')}" for name, each in found.items()))
    return "\n".join([*lines, *(f"{name}: {each['failure']}" for name, each in found.items() if "failure" in each)])


if __name__ == "__main__":
    main()
