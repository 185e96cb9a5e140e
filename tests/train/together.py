"""What two processes do in `test_workers.py`, started by torchrun: one run after the other, in double precision.

At their first start one of them kills itself in the middle of the first run; torchrun then starts both again.
"""

import os
import signal
import sys
from pathlib import Path

import torch

from regard.recipe import load
from regard.train.events import Saved
from regard.train.loop import train
from regard.train.workers import joined

RUNS = {
    "muon-sharded": ["train.optimiser=muon", "train.sharding=fsdp", "train.steps=4"],
    "muon-whole": ["train.optimiser=muon"],
    "whole": [],
    "sharded": ["train.sharding=fsdp", "train.steps=4"],
    "alone": [],  # begun by one process
}


def main(recipe: str, folder: str) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    doomed = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1"
    with joined("cpu"):
        for name, told in RUNS.items():
            for event in train(load(recipe, told), Path(folder, name), "cpu"):
                if doomed and isinstance(event, Saved):
                    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
