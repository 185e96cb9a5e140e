"""What the benches of the servers share: a run of random weights, a server in a process of its own, and percentiles."""

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from regard.bundle import save_bundle
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
LISTENS = "on http://127.0.0.1:"  # what a server says before its port, once it answers


@dataclass(frozen=True)
class Server:
    """A process that listens."""

    port: int
    pid: int

    def processor(self) -> float:
        """Seconds of processor time it has taken, all its threads together."""
        return time.clock_gettime(~self.pid << 3 | 2)  # how Linux numbers the clock of another process

    def memory(self) -> float:
        """MiB of memory it has."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def served(command: list[str]) -> Iterator[Server]:
    """A server on loopback while the context lasts; its last words where it does not start."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said: list[str] = []
            for line in process.stderr:
                said.append(line)
                if LISTENS in line:
                    yield Server(int(line.split(LISTENS)[1].split()[0].rstrip(",/")), process.pid)
                    break
            else:
                raise RuntimeError("".join(said))
        finally:
            process.terminate()


def make_run(folder: Path, size: str, beam: int, longest: float) -> None:
    """A run with random weights, always the same."""
    recipe = parse(RECIPE, [f"model.size={size}", f"decode.beam={beam}", f"decode.longest={longest}"], name="random")
    pairs = [(each.source, each.target) for each in phrases("de", "train", 20_000)]
    tokenizers = Tokenizers.learn(pairs, size=recipe.text.size)
    torch.manual_seed(0)
    model = build(recipe.model, len(tokenizers.source), len(tokenizers.target))
    save_bundle(folder, recipe, tokenizers, model, {})


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, round(share * (len(ranked) - 1)))]
