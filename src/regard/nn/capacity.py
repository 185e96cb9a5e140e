"""Batches of one fixed size, for kernels compiled once: what is missing is filled up with sequences of their own."""

from dataclasses import replace

import numpy as np
import torch

from regard.nn.ragged import Layout, Ragged

PIECE = 64  # tokens of a filling sequence: short ones cost attention least


def filled(batch: Ragged, tokens: int, sequences: int, value: int, longest: int) -> Ragged:
    """The batch followed by sequences of `value`s and by empty ones, so that it has so many tokens and sequences.

    No token looks into another sequence, so the filling changes nothing for the rest; its loss is to be ignored. Every
    batch filled so claims the same `longest` sequence, so that nothing compiled sees a difference between them.
    """
    room, rows = tokens - batch.tokens, sequences - len(batch)
    piece = min(PIECE, longest)
    if room < 0 or rows * piece < room:
        raise ValueError(
            f"a batch of {batch.tokens} tokens in {len(batch)} sequences does not leave room in {tokens} tokens and "
            f"{sequences} sequences to fill them up; raise them, or lower the batch's budget"
        )
    if batch.longest > longest:
        raise ValueError(f"a sequence of {batch.longest} tokens is longer than the {longest} that were announced")
    ends = np.minimum(batch.tokens + piece * np.arange(1, rows + 1), tokens)
    layout = Layout.from_offsets(np.concatenate([batch.offsets.cpu().numpy(), ends]))
    values = torch.cat([batch.values, batch.values.new_full((room,), value)])
    return Ragged(values, replace(layout, longest=longest).to(values.device))
