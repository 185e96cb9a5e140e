"""Train a run that is killed at random moments until it finishes. Run by `test_resume.py`."""

import os
import random
import signal
import sys
import threading
from pathlib import Path

import torch

from regard.recipe import load
from regard.train.loop import train


def attempt(recipe: str, run: str, seconds: float) -> bool:
    """Train in a child process that is killed after some seconds; return whether it finished before that."""
    child = os.fork()
    if child == 0:
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
        for _ in train(load(recipe), Path(run), "cpu"):
            pass
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def main(recipe: str, run: str, seed: str) -> None:
    generator = random.Random(int(seed))
    torch.set_num_threads(1)
    kills = 0
    # A little longer each time, so that a slow machine finishes too.
    while not attempt(recipe, run, generator.uniform(0.05, 0.5) * (1 + kills / 4)):
        kills += 1
    print(kills)


if __name__ == "__main__":
    main(*sys.argv[1:])
