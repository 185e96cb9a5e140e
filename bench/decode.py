"""Translation: ours beside Hugging Face's `generate` and CTranslate2, with the same weights and sentences, in one run.

    python bench/decode.py                                       # random weights, output as long as the source
    python bench/decode.py --source test.en --sentences 1000 --rounds 5
    python bench/decode.py --run runs/mine --source test.en      # a trained model: sentences of all lengths
    python bench/decode.py --device cuda                         # vocabulary 32,000, 30 source and 30 target tokens

Each contender is a process of its own, so that they share neither memory nor threads. They take turns, and the best
round counts, because other work on the machine can only make a round slower. CTranslate2 is measured with its default
instruction set and with AVX512. Random weights never generate the end symbol, so output lengths are fixed for them and
sentences are grouped by exact length.
"""

import argparse
import json
import multiprocessing
import os
import random
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

from measure import peak_memory, percentile
from regard.data.phrasebook import phrases
from regard.files import read_lines
from regard.tasks import load_bundle
from regard.text import END
from translation_contenders import SIZES, Batch, Setting, Translate, ctranslate2, hf_model, hugging_face, regard

__all__ = ["hf_model"]

CPU = "regard-float32,regard-bfloat16,regard-int8,hf-float32,hf-bfloat16,ct2-float32,ct2-int8,ct2x-float32,ct2x-int8"
CUDA = "regard-bfloat16,hf-bfloat16"


# The processes


def serve(connection: Connection, name: str, setting: Setting) -> None:
    """Translate batches from a connection until it sends None, and send back seconds and tokens."""
    kind, precision = name.split("-")
    if kind == "ct2x":
        os.environ["CT2_FORCE_CPU_ISA"] = "AVX512"
    builders: dict[str, Callable[..., Translate]] = {"regard": regard, "hf": hugging_face, "ct2": ctranslate2}
    try:
        translate = builders[kind.rstrip("x")](setting, precision)
        connection.send(None)
        while (work := connection.recv()) is not None:
            batches, beam, alone = work
            seconds, cpu_start, tokens = [], time.process_time(), 0
            for part in [[batch] for batch in batches] if alone else [batches]:
                start = time.perf_counter()
                tokens += translate(part, beam, alone)
                seconds.append(time.perf_counter() - start)
            peak = peak_memory(torch.device(setting.device)) / 1e9
            connection.send((seconds, time.process_time() - cpu_start, tokens, peak))
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")


class Contender:
    """A process that translates, and its measurements."""

    def __init__(self, name: str, setting: Setting) -> None:
        """Start the process, and wait until its model is ready."""
        self.name, self.rounds = name, defaultdict[str, list[tuple[list[float], float, int]]](list)
        self.memory = 0.0
        context = multiprocessing.get_context("spawn")
        self.connection, remote = context.Pipe()
        self.process = context.Process(target=serve, args=(remote, name, setting), daemon=True)
        self.process.start()
        remote.close()
        self.failure: str | None = self._receive()

    def work(self, task: str, batches: Sequence[Batch], beam: int, alone: bool) -> None:
        """Translate, and store the measurements; a warm-up has an empty task."""
        if self.failure is not None:
            return
        self.connection.send((batches, beam, alone))
        answer = self._receive()
        if isinstance(answer, str):
            self.failure = answer
            return
        seconds, cpu, tokens, self.memory = answer
        if task:
            self.rounds[task].append((seconds, cpu, tokens))

    def _receive(self) -> Any:
        try:
            return self.connection.recv()
        except EOFError:
            return "its process ended"

    def end(self) -> None:
        """End the process."""
        if self.failure is None:
            with suppress(OSError):  # Ctrl-C has ended all processes
                self.connection.send(None)
        self.process.join(10)

    def result(self, sentences: int) -> dict[str, Any]:
        """Return the throughput in the best round of each task, and the latencies over all rounds."""
        if self.failure is not None:
            return {"failure": self.failure}
        result: dict[str, Any] = {"memory_gb": round(self.memory, 2)}
        for task, rounds in self.rounds.items():
            if task.startswith("latency"):
                latencies = [1e3 * latency for seconds, _, _ in rounds for latency in seconds]
                result[task] = {
                    "p50_ms": statistics.median(latencies),
                    "p95_ms": percentile(latencies, 0.95),
                    "cpu_ms": min(1e3 * cpu / len(seconds) for seconds, cpu, _ in rounds),
                }
            else:
                seconds, _, tokens = min(rounds, key=lambda measured: measured[0][0])
                result[task] = {
                    "sentences_per_second": sentences / seconds[0],
                    "tokens_per_second": tokens / seconds[0],
                    "sentences_per_cpu_second": sentences / min(cpu for _, cpu, _ in rounds),
                }
        return result


# The sentences


def sentences(options: argparse.Namespace) -> list[list[int]]:
    """Return the ids of the sentences, encoded for a trained model, or random ids, one for each word and the end."""
    if options.length is not None:
        shape = options.sentences, options.length
        drawn = np.random.default_rng(2).integers(4, options.vocabulary, shape).tolist()
        return [[*ids[:-1], END] for ids in drawn]
    if options.source is None:
        seed = random.Random(1).randrange(99)
        lines = [phrase.source for phrase in phrases("de", "train", options.sentences, seed=seed)]
    else:
        read = (line for block in read_lines(Path(options.source)) for line in block)
        lines = list(islice(read, options.sentences))
    if options.run is not None:
        tokenizer = load_bundle(Path(options.run)).tokenizers["source"]
        return [[*ids, END] for ids in map(tokenizer.encode, lines) if ids]
    draw = np.random.default_rng(2)
    return [draw.integers(4, options.vocabulary, len(line.split()) + 1).tolist() for line in lines if line.split()]


def batched(ids: list[list[int]], most: int, fixed: bool) -> Iterator[Batch]:
    """Yield batches of similar length, the longest first; `fixed` gives batches of exactly one length."""
    batch: Batch = []
    for sentence in sorted(ids, key=len, reverse=True):
        if batch and (len(batch) == most or (fixed and len(sentence) != len(batch[0]))):
            yield batch
            batch = []
        batch.append(sentence)
    if batch:
        yield batch


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--size", default="base", choices=SIZES)
    parser.add_argument("--vocabulary", type=int, help="default: 10,000, on CUDA 32,000")
    parser.add_argument("--run", help="a trained run, instead of random weights")
    parser.add_argument("--source", help="a file of sentences; default: the phrasebook")
    parser.add_argument("--length", type=int, help="use random sentences of this length; default on CUDA: 30")
    parser.add_argument("--sentences", type=int, help="default: 200, on CUDA 1,024")
    parser.add_argument("--latencies", type=int, default=20, help="number of sentences translated one by one")
    parser.add_argument("--batch", help="batch sizes, separated by commas; default: 32, on CUDA 1024,256")
    parser.add_argument("--beams", default="1,5")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help=f"contenders, separated by commas, of {CPU}")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    on_cuda = options.device == "cuda"
    defaults = {"batch": ("32", "1024,256"), "vocabulary": (10_000, 32_000), "sentences": (200, 1024)}
    for name, pair in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, pair[on_cuda])
    if on_cuda and options.length is None and options.run is None and options.source is None:
        options.length = 30
    return options


Work = dict[str, tuple[list[Batch], int]]
"""The batches and the beam width of each task."""


def plan_work(options: argparse.Namespace, ids: list[list[int]], fixed: bool) -> Work:
    """Combine every batch size with every beam width, and add sentences one by one."""
    work: Work = {}
    for beam in map(int, options.beams.split(",")):
        for most in map(int, options.batch.split(",")):
            work[f"beam {beam} batch {most}"] = list(batched(ids, most, fixed)), beam
        work[f"latency {beam}"] = [[sentence] for sentence in ids[: options.latencies]], beam
    return work


def take_turns(contenders: list[Contender], number: int, options: argparse.Namespace, work: Work) -> None:
    """Run one round; round 0 is a warm-up."""
    few = number == 0 and options.device == "cpu"
    for task, (batches, beam) in work.items():
        for contender in contenders:
            print(f"\rround {number} of {options.rounds}, {task}: {contender.name:<16}", end="", file=sys.stderr)
            alone = task.startswith("latency")
            contender.work(task if number else "", batches[:2] if few else batches, beam, alone)


def main() -> None:
    options = parse_arguments()
    setting = Setting(options.size, options.vocabulary, options.run, options.device, options.workers)
    ids = sentences(options)
    work = plan_work(options, ids, setting.fixed)
    names = (options.only or (CPU if options.device == "cpu" else CUDA)).split(",")
    contenders = [Contender(name, setting) for name in names]
    try:
        for number in range(options.rounds + 1):
            take_turns(contenders, number, options, work)
    except KeyboardInterrupt:
        print("\nstopped; results of the complete rounds:", file=sys.stderr)
    print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
    results = {contender.name: contender.result(len(ids)) for contender in contenders}
    for contender in contenders:
        contender.end()
    facts = {"sentences": len(ids), "source_tokens": sum(map(len, ids)), **vars(options)}
    print(json.dumps(facts | {"results": results}) if options.json else table(results, work, facts))


def table(results: dict[str, Any], work: Work, facts: dict[str, Any]) -> str:
    """Return a table for each task, with a line for each contender."""
    lines = [f"{facts['sentences']} sentences, {facts['source_tokens']} source tokens, {facts['device']}"]
    for task in work:
        columns = ("p50 ms", "p95 ms", "cpu ms") if task.startswith("latency") else ("sent/s", "tok/s", "sent/cpu-s")
        lines.append(f"\n{task:<18}" + "".join(f"{column:>12}" for column in columns))
        for name, result in results.items():
            if task in result:
                lines.append(f"{name:<18}" + "".join(f"{value:12.1f}" for value in result[task].values()))
    lines.append(
        "\nmemory, GB: " + ", ".join(f"{name} {result.get('memory_gb', '–')}" for name, result in results.items())
    )
    lines += [f"{name}: {result['failure']}" for name, result in results.items() if "failure" in result]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
