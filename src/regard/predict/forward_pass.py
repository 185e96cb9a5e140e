"""Batches and precision of predictors that read each text once, without a search."""

from collections.abc import Iterator, Sequence

import torch

from regard.predict.search import batches_by_length

BATCH_TOKENS = 4096
"""Tokens that are read in one forward pass."""


def token_batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the indices of sequences that are read together: of similar length, and not too many tokens."""
    return batches_by_length(lengths, rows=1, budget=BATCH_TOKENS)


def plain_precision(precision: str, device: torch.device) -> str:
    """Return the precision of matrix products: `auto` is bfloat16 on a GPU and float32 elsewhere.

    Raises:
        ValueError: There is no such precision without an engine.
    """
    if precision not in ("auto", "float32", "bfloat16"):
        raise ValueError(f"this model has no precision '{precision}'; choose auto, float32 or bfloat16")
    return ("bfloat16" if device.type == "cuda" else "float32") if precision == "auto" else precision
