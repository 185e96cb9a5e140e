"""Run models of Hugging Face on ragged batches, and compare their attention weights with ours."""

from typing import Any

import torch
from hypothesis import strategies as st
from torch import nn

from regard.nn.ragged import Ragged
from regard.nn.tap import recording

VOCABULARY, POSITIONS = 19, 16

texts = st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=POSITIONS), min_size=1, max_size=4)


def randomise(model: nn.Module) -> None:
    """Draw all weights at random: norms and biases begin at 1 and 0, which would hide much."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0, 0.3)


def output_of(model: Any, batch: Ragged, **options: Any) -> Any:
    """Return what a model of Hugging Face computes for a padded batch."""
    mask = batch.with_values(torch.ones_like(batch.values)).to_padded()
    with torch.no_grad():
        return model(input_ids=batch.to_padded(), attention_mask=mask, output_attentions=True, **options)


def assert_equal_attention(ours: nn.Module, stack: str, theirs: Any, sequences: list[list[int]]) -> None:
    """Compare the weights of each self-attention of a stack, `encoder` or `decoder`."""
    batch = Ragged.from_list(sequences)
    with recording(ours, f"{stack}.layers.*.self.weights") as seen:
        ours(batch)
    for layer, weights in enumerate(output_of(theirs, batch).attentions):
        mine = seen[f"{stack}.layers.{layer}.self.weights"][0]
        torch.testing.assert_close(
            batch.layout.unpad(mine.transpose(1, 2)), batch.layout.unpad(weights.transpose(1, 2))
        )
