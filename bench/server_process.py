"""A run of random weights, and a server in a process of its own, for the benchmarks of servers."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from regard.bundle import save_bundle
from regard.data.fields import with_tokenizers
from regard.data.phrasebook import phrases
from regard.models.build import build
from regard.recipe import parse
from regard.text import Tokenizers

RECIPE = """
[data]
train = [{ to = "de", pairs = 1000 }]
[text]
size = 1200
"""
LISTENS = "on http://127.0.0.1:"  # what a server prints before its port once it is ready


@dataclass(frozen=True)
class Server:
    """A running server."""

    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """Return the CPU time of all its threads in seconds."""
        return time.clock_gettime(~self.pid << 3 | 2)  # Linux: the clock id of another process

    def memory(self) -> float:
        """Return its resident memory in MiB."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def served(command: list[str], **environment: str) -> Iterator[Server]:
    """Run a server on loopback inside the context; if it does not start, raise an error with its output."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}) as process:
        try:
            assert process.stderr is not None
            output: list[str] = []
            for line in process.stderr:
                output.append(line)
                if LISTENS in line:
                    yield Server(int(line.split(LISTENS)[1].split()[0].rstrip(",/")), process.pid)
                    break
            else:
                raise RuntimeError("".join(output))
        finally:
            process.terminate()


def make_run(folder: Path, size: str, beam: int, longest: float) -> None:
    """Save a run with random weights, always the same."""
    recipe = parse(RECIPE, [f"model.size={size}", f"decode.beam={beam}", f"decode.longest={longest}"], name="random")
    pairs = [(phrase.source, phrase.target) for phrase in phrases("de", "train", 20_000)]
    tokenizers = Tokenizers.learn(pairs, size=recipe.text.size)
    torch.manual_seed(0)
    model = build(recipe.model, len(tokenizers["source"]), len(tokenizers["target"]))
    save_bundle(folder, recipe, with_tokenizers(tokenizers), model, {})
