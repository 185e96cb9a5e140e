"""A task defined outside the package: the sum of a list of numbers. Also a program that trains it until it is killed.

python tests/tasks/sum_task.py RECIPE RUN [STEP]     # train; SIGKILL itself after the checkpoint of that step
"""

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.bundle import Bundle
from regard.data.batch import Batch, per_sequence, sequences
from regard.data.fields import Fields
from regard.data.rows import Lengths, Numbers, Rows
from regard.nn.cross_entropy import IGNORED
from regard.nn.ragged import Ragged
from regard.recipe import FieldKind, load
from regard.tasks import Task
from regard.train.events import Saved
from regard.train.loop import train


@dataclass(frozen=True, eq=False)
class SumBatch(Batch):
    numbers: Ragged = sequences()
    total_B: Tensor = per_sequence(fill=IGNORED)

    @property
    def units(self) -> int:
        return len(self)


class Adder(nn.Module):
    def __init__(self, numbers: int, totals: int) -> None:
        super().__init__()
        self.values = nn.Embedding(numbers, 8)
        self.output = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, totals))

    def forward(self, numbers: Ragged) -> Tensor:
        values_ND = self.values(numbers.values)
        sums_BD = values_ND.new_zeros(len(numbers), 8).index_add(0, numbers.sequence_N, values_ND)
        logits: Tensor = self.output(sums_BD)
        return logits


class SumTask(Task):
    @property
    def kinds(self) -> Mapping[str, FieldKind]:
        return {"numbers": "text", "total": "label"}

    def sequence_lengths(self, lengths: Mapping[str, Lengths]) -> tuple[Numbers, ...]:
        return (lengths["numbers"].astype(np.int64),)

    def collate(self, rows: Mapping[str, Rows], index: Numbers) -> SumBatch:
        return SumBatch(rows["numbers"].to_ragged(), torch.from_numpy(rows["total"].ids.astype(np.int64)))

    def build(self, sizes: Mapping[str, int]) -> Adder:
        return Adder(sizes["numbers"], sizes["total"])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(batch, SumBatch)
        return functional.cross_entropy(model(batch.numbers), batch.total_B, reduction="sum", ignore_index=IGNORED)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(batch, SumBatch)
        logits = model(batch.numbers)
        return torch.stack([self.loss(model, batch), (logits.argmax(-1) == batch.total_B).sum()])

    def units(self, lengths: Mapping[str, Lengths]) -> int:
        return len(lengths["numbers"])

    def predictor(self, bundle: Bundle, precision: str = "auto") -> "SumPredictor":
        return SumPredictor(bundle.model, bundle.fields)


@dataclass
class SumPredictor:
    model: nn.Module
    fields: Fields

    def __call__(self, numbers: str) -> str:
        logits = self.model(self.fields["numbers"].encode([numbers]).to_ragged())
        return self.fields["total"].decode([int(logits.argmax())])


if __name__ == "__main__":
    torch.set_num_threads(1)
    recipe = load(sys.argv[1])
    for event in train(recipe, Path(sys.argv[2]), "cpu", task=SumTask(recipe)):
        if len(sys.argv) > 3 and isinstance(event, Saved) and event.step == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
