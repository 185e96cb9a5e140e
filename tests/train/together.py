"""Program that torchrun starts in `test_distributed.py`: trains one run after the other, in double precision.

The recipe of a translator with some overrides comes first, then each recipe in the folder `tasks`.

At the first start one process kills itself in the middle of the first run; torchrun then restarts both.
"""

import os
import signal
import sys
from pathlib import Path

import torch

from regard.recipe import load
from regard.train.distributed import join_worker_group
from regard.train.events import Saved
from regard.train.loop import train

RUNS = {
    "muon-sharded": ["train.optimiser=muon", "train.sharding=fsdp", "train.steps=4"],
    "muon-whole": ["train.optimiser=muon"],
    "whole": [],
    "sharded": ["train.sharding=fsdp", "train.steps=4"],
    "alone": [],  # started by one process
}


def main(recipe: str, folder: str) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    doomed = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == "1"
    with join_worker_group("cpu"):
        for name, overrides in RUNS.items():
            for event in train(load(recipe, overrides), Path(folder, name), "cpu"):
                if doomed and isinstance(event, Saved):
                    os.kill(os.getpid(), signal.SIGKILL)
        for path in sorted(Path(folder, "tasks").glob("*.toml")):
            list(train(load(path), Path(folder, path.stem), "cpu"))


if __name__ == "__main__":
    main(*sys.argv[1:])
