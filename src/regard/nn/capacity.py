"""Batches of one fixed size, for kernels compiled once: what is missing is filled up and taken for a sequence."""

import numpy as np
import torch

from regard.nn.ragged import Layout, Ragged


def filled(batch: Ragged, tokens: int, sequences: int, value: int) -> Ragged:
    """The batch followed by one sequence of `value`s and by empty ones, so that it has so many tokens and sequences.

    No token looks into another sequence, so the filling changes nothing for the rest; its loss is to be ignored.
    """
    room, rows = tokens - batch.tokens, sequences - len(batch)
    if room < 0 or rows < 1:
        raise ValueError(
            f"a batch of {batch.tokens} tokens in {len(batch)} sequences does not leave room in {tokens} tokens and "
            f"{sequences} sequences for one more; raise them, or lower the batch's budget"
        )
    offsets = np.append(batch.offsets.cpu().numpy(), np.full(rows, tokens))
    values = torch.cat([batch.values, batch.values.new_full((room,), value)])
    return Ragged(values, Layout.from_offsets(offsets).to(values.device))
