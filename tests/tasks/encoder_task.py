"""A task defined outside the package that reads texts with an encoder of the package: the class of a text."""

from collections.abc import Mapping

import numpy as np
import torch
from tests.tasks.sum_task import SumBatch
from torch import Tensor, nn
from torch.nn import functional

from regard.bundle import Bundle
from regard.data.batch import Batch
from regard.data.rows import Lengths, Numbers, Rows
from regard.models.build import build_encoder
from regard.nn.cross_entropy import IGNORED
from regard.nn.pooling import MeanPooling
from regard.nn.ragged import Ragged
from regard.recipe import FieldKind, Model
from regard.tasks import Task
from regard.text import END, START


class TextClasses(nn.Module):
    def __init__(self, settings: Model, vocabulary: int, classes: int) -> None:
        super().__init__()
        self.encoder, width = build_encoder(settings, vocabulary)
        self.pooling, self.output = MeanPooling(), nn.Linear(width, classes)

    def forward(self, text: Ragged) -> Tensor:
        memory = self.encoder.encode(text)
        logits_BC: Tensor = self.output(self.pooling(memory.states_ND, memory.layout))
        return logits_BC


class TextClassesTask(Task):
    @property
    def kinds(self) -> Mapping[str, FieldKind]:
        return {"words": "text", "class": "label"}

    def sequence_lengths(self, lengths: Mapping[str, Lengths]) -> tuple[Numbers, ...]:
        return (lengths["words"] + np.int64(2),)

    def collate(self, rows: Mapping[str, Rows], index: Numbers) -> SumBatch:
        classes = torch.from_numpy(rows["class"].ids.astype(np.int64))
        return SumBatch(rows["words"].prepend(START).append(END).to_ragged(), classes)

    def build(self, sizes: Mapping[str, int]) -> TextClasses:
        return TextClasses(self.recipe.model, sizes["words"], sizes["class"])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(batch, SumBatch)
        return functional.cross_entropy(model(batch.numbers), batch.total_B, reduction="sum", ignore_index=IGNORED)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(batch, SumBatch)
        return torch.stack([self.loss(model, batch), (model(batch.numbers).argmax(-1) == batch.total_B).sum()])

    def units(self, lengths: Mapping[str, Lengths]) -> int:
        return len(lengths["words"])

    def predictor(self, bundle: Bundle, precision: str = "auto") -> Bundle:
        return bundle
