"""Sample subword segmentations (BPE dropout, subword regularisation), in this process or in processes of their own.

Sampling is Python code, and would hold the interpreter lock against the thread that launches CUDA kernels. With a GPU
it therefore runs in other processes. On a CPU, preparing batches takes little time compared with training on them, so
the training process samples itself. Lines are segmented in blocks with one seed each, so the result does not depend on
which process segments which block.

    python -m regard.train.subword_sampling FOLDER FIELD...     # such a process; it exits when its stdin is closed
"""

import json
import os
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, BinaryIO, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from regard.text import Tokenizer, Tokenizers

if TYPE_CHECKING:  # a sampling process does without torch
    from regard.data.fields import TextField

BLOCK = 2048  # lines that share a seed
MAX_PROCESSES = 4  # each segments about 35,000 lines per second

Segmentation = tuple[NDArray[np.int32], NDArray[np.int64]]
"""The ids of many lines end to end, and the offset of each line; the last offset is the end."""


class SamplingTask(NamedTuple):
    """A block of lines of one field, to be segmented with one seed."""

    field: str
    lines: Sequence[str]
    amount: float
    seed: int


class BlockSampler(Protocol):
    """Segments blocks of lines at random."""

    def segment(self, tasks: Sequence[SamplingTask]) -> list[Segmentation]:
        """Return the segmentation of each block, in order."""


class LocalSampler:
    """Segments blocks in this process."""

    def __init__(self, tokenizers: Mapping[str, Tokenizer]) -> None:
        """Segment with these tokenizers, by field."""
        self.tokenizers = tokenizers

    def segment(self, tasks: Sequence[SamplingTask]) -> list[Segmentation]:
        """Return the segmentation of each block, in order."""
        return [self.tokenizers[task.field].sample_batch(task.lines, task.amount, task.seed) for task in tasks]


class SubprocessSampler:
    """Segments blocks in other processes, which start at the first call and exit with this object."""

    def __init__(self, folder: Path, fields: Sequence[str], count: int | None = None) -> None:
        """Segment with the tokenizers of a run.

        Args:
            folder: Folder of the run.
            fields: Text fields to segment.
            count: Number of processes; default: half of the cores, at most 4.
        """
        self.folder, self.fields = folder, tuple(fields)
        self.count = count or max(1, min(MAX_PROCESSES, (os.cpu_count() or 1) // 2))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._close = weakref.finalize(self, _stop_processes, self._processes)

    def segment(self, tasks: Sequence[SamplingTask]) -> list[Segmentation]:
        """Return the segmentation of each block, in order."""
        while len(self._processes) < self.count:
            self._processes.append(_start_process(self.folder, self.fields))
            self._idle.put(self._processes[-1])
        with ThreadPoolExecutor(self.count, "regard-sampling") as pool:
            return list(pool.map(self._segment_block, tasks))

    def close(self) -> None:
        """Stop the processes."""
        self._close()

    def _segment_block(self, task: SamplingTask) -> Segmentation:
        """Send a block to an idle process, and wait for the result."""
        process = self._idle.get()
        try:
            return _request(process, task)
        finally:
            self._idle.put(process)


class FieldSampler:
    """Samples segmentations of the values of one field, for `regard.data.pool.SubwordSampling`."""

    def __init__(self, sampler: BlockSampler, name: str, field: "TextField") -> None:
        """Sample for the field `field`, whose name is `name`."""
        self.sampler, self.name, self.field = sampler, name, field

    def sample_batch(self, lines: Sequence[str], amount: float, seed: int, threads: int | None = None) -> Segmentation:
        """Return a random segmentation of each value; equal seeds give equal ids. `threads` has no effect."""
        rows = self.field.encode_with(lambda texts: self._segment(texts, amount, seed), lines)
        return rows.ids, rows.offsets

    def _segment(self, lines: Sequence[str], amount: float, seed: int) -> Segmentation:
        """Return a random segmentation of each line."""
        starts = range(0, len(lines), BLOCK)
        seeds = np.random.SeedSequence(seed).generate_state(len(starts)).tolist()
        tasks = [
            SamplingTask(self.name, lines[start : start + BLOCK], amount, block_seed)
            for start, block_seed in zip(starts, seeds, strict=True)
        ]
        blocks = self.sampler.segment(tasks)
        lengths = np.concatenate([np.zeros(1, np.int64), *(np.diff(offsets) for _, offsets in blocks)])
        ids = np.concatenate([np.zeros(0, np.int32), *(ids for ids, _ in blocks)])
        return ids, np.cumsum(lengths)


def _start_process(folder: Path, fields: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Start a sampling process in a new session, so that Ctrl-C does not reach it; it exits with its stdin."""
    return subprocess.Popen(
        [sys.executable, "-m", "regard.train.subword_sampling", str(folder), *fields],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        start_new_session=True,
    )


def _stop_processes(processes: "list[subprocess.Popen[bytes]]") -> None:
    """Close the stdin of the processes, at which they exit, and wait for them."""
    for process in processes:
        process.communicate()


def _request(process: "subprocess.Popen[bytes]", task: SamplingTask) -> Segmentation:
    """Have a process segment a block."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(task).encode() + b"\n")
        process.stdin.flush()
        sizes = np.frombuffer(_read(process.stdout, 16), np.int64)
        ids, offsets = (_read(process.stdout, int(size)) for size in sizes)
    except OSError as error:
        raise OSError(
            f"a process that samples subwords has exited ({error}); "
            "repeat the command to resume from the last checkpoint"
        ) from error
    return np.frombuffer(ids, np.int32), np.frombuffer(offsets, np.int64)


def _read(pipe: IO[bytes], size: int) -> bytes:
    """Read exactly `size` bytes."""
    data = pipe.read(size)
    if len(data) < size:
        raise OSError("its output ended early")
    return data


def serve_requests(tokenizers: Tokenizers, requests: BinaryIO, responses: BinaryIO) -> None:
    """Segment blocks until `requests` ends.

    A request is a line of JSON with the values of a `SamplingTask`. A response is the number of bytes of ids and
    offsets as two 64-bit integers, then the bytes of both arrays.
    """
    sampler = LocalSampler(tokenizers)
    for line in requests:
        ((ids, offsets),) = sampler.segment([SamplingTask(*json.loads(line))])
        responses.write(np.array([ids.nbytes, offsets.nbytes], np.int64).tobytes() + ids.tobytes() + offsets.tobytes())
        responses.flush()


if __name__ == "__main__":
    serve_requests(Tokenizers.load(sys.argv[1], sys.argv[2:]), sys.stdin.buffer, sys.stdout.buffer)
