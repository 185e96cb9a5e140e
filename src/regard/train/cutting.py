"""Subwords sampled by processes of their own: lines in, ids of random segmentations out, the same whoever cuts them.

Sampling is Python and would hold the interpreter against the thread that launches CUDA's kernels. Lines are cut in
blocks, each by a seed of its own, so that any process may cut any block; on a CPU, where batches are made far quicker
than they are learnt, the training process does it itself.

    python -m regard.train.cutting FOLDER     # what such a process runs; it ends when its input does
"""

import json
import os
import subprocess
import sys
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import IO, BinaryIO, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from regard.text import Tokenizers

BLOCK = 2048  # lines cut by one seed
MOST = 4  # processes; each cuts some 35,000 lines a second

Cut = tuple[NDArray[np.int32], NDArray[np.int64]]
"""The ids of many lines end to end, and where each begins; the last offset is the end."""


class Task(NamedTuple):
    """A block of lines of one side, `source` or `target`."""

    side: str
    lines: Sequence[str]
    amount: float
    seed: int


class Cutter(Protocol):
    """Whoever cuts blocks."""

    def cut(self, tasks: Sequence[Task]) -> list[Cut]:
        """The segmentation of each block, in order."""


class Here:
    """Blocks cut in this process."""

    def __init__(self, tokenizers: Tokenizers) -> None:
        """By these tokenizers."""
        self.tokenizers = {"source": tokenizers.source, "target": tokenizers.target}

    def cut(self, tasks: Sequence[Task]) -> list[Cut]:
        """The segmentation of each block, in order."""
        return [self.tokenizers[task.side].sample_batch(task.lines, task.amount, task.seed) for task in tasks]


class Apart:
    """Blocks cut by other processes, which begin when there is something to cut and end with this object."""

    def __init__(self, folder: Path, count: int | None = None) -> None:
        """By the tokenizers of a run's folder, in so many processes; half of the cores unless told, but few."""
        self.folder = folder
        self.count = count or max(1, min(MOST, (os.cpu_count() or 1) // 2))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._free: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._close = weakref.finalize(self, _end, self._processes)

    def cut(self, tasks: Sequence[Task]) -> list[Cut]:
        """The segmentation of each block, in order."""
        while len(self._processes) < self.count:
            self._processes.append(_started(self.folder))
            self._free.put(self._processes[-1])
        with ThreadPoolExecutor(self.count, "regard-cutting") as pool:
            return list(pool.map(self._ask, tasks))

    def close(self) -> None:
        """End the processes."""
        self._close()

    def _ask(self, task: Task) -> Cut:
        """Have one block cut by whoever is free."""
        process = self._free.get()
        try:
            return _asked(process, task)
        finally:
            self._free.put(process)


class Side:
    """What a stream of batches asks for subwords: one side of whoever cuts."""

    def __init__(self, cutter: Cutter, side: str) -> None:
        """`side` is `source` or `target`."""
        self.cutter, self.side = cutter, side

    def sample_batch(self, lines: Sequence[str], amount: float, seed: int, threads: int | None = None) -> Cut:
        """A random segmentation of each line, the same for the same seed; nobody has a use for threads here."""
        starts = range(0, len(lines), BLOCK)
        seeds = np.random.SeedSequence(seed).generate_state(len(starts)).tolist()
        tasks = [
            Task(self.side, lines[start : start + BLOCK], amount, number)
            for start, number in zip(starts, seeds, strict=True)
        ]
        blocks = self.cutter.cut(tasks)
        lengths = np.concatenate([np.zeros(1, np.int64), *(np.diff(offsets) for _, offsets in blocks)])
        ids = np.concatenate([np.zeros(0, np.int32), *(ids for ids, _ in blocks)])
        return ids, np.cumsum(lengths)


def _started(folder: Path) -> "subprocess.Popen[bytes]":
    """A new process; Ctrl-C does not reach it, because it ends with its input anyway."""
    return subprocess.Popen(
        [sys.executable, "-m", "regard.train.cutting", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
        start_new_session=True,
    )


def _asked(process: "subprocess.Popen[bytes]", task: Task) -> Cut:
    """What a process makes of a block."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(task).encode() + b"\n")
        process.stdin.flush()
        sizes = np.frombuffer(_read(process.stdout, 16), np.int64)
        ids, offsets = (_read(process.stdout, int(size)) for size in sizes)
    except OSError as error:
        raise OSError(
            f"the process that samples subwords has ended ({error}); the same command goes on from the last checkpoint"
        ) from error
    return np.frombuffer(ids, np.int32), np.frombuffer(offsets, np.int64)


def _read(pipe: IO[bytes], size: int) -> bytes:
    """So many bytes."""
    data = pipe.read(size)
    if len(data) < size:
        raise OSError("nothing more came from it")
    return data


def _end(processes: "list[subprocess.Popen[bytes]]") -> None:
    """Close their input, at which they end, and wait until they have."""
    for process in processes:
        process.communicate()


def serve(tokenizers: Tokenizers, asked: BinaryIO, answers: BinaryIO) -> None:
    """Cut block after block until there are no more: a line of JSON in, two sizes and the bytes of two arrays out."""
    here = Here(tokenizers)
    for line in asked:
        ((ids, offsets),) = here.cut([Task(*json.loads(line))])
        answers.write(np.array([ids.nbytes, offsets.nbytes], np.int64).tobytes() + ids.tobytes() + offsets.tobytes())
        answers.flush()


if __name__ == "__main__":
    serve(Tokenizers.load(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
