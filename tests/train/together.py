"""What two processes do in `test_workers.py`, started by torchrun: one run after the other, in double precision."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

from regard.recipe import load
from regard.train.loop import train


def main(recipe: str, folder: str) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    dist.init_process_group("gloo")
    runs = {
        "whole": [],
        "sharded": ["train.sharding=fsdp", "train.steps=4"],
        "alone": [],  # begun by one process
    }
    for name, told in runs.items():
        for _ in train(load(recipe, told), Path(folder, name), "cpu"):
            pass
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
