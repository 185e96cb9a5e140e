"""The rows of a decoding batch: the beams of a sentence are adjacent, sentence after sentence."""

from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor


def check_rows(rows_R: Int[Tensor, " R"], beams: int, rows: int) -> None:
    """Raise an error if selecting these rows would mix sentences.

    Rows on another device than the CPU are not checked, because reading them would wait for the device.

    Args:
        rows_R: The rows to continue from.
        beams: Rows of each sentence.
        rows: Rows there are now.
    """
    if rows_R.device.type != "cpu":
        return
    sentences = rows_R // beams
    if rows_R.shape[0] == rows and torch.equal(sentences, _sentences(rows, beams)):  # the usual case, in one check
        return
    whole = rows_R.shape[0] % beams == 0 and bool((sentences.view(-1, beams) == sentences[::beams, None]).all())
    if not whole or rows_R.shape[0] >= rows:
        raise ValueError(
            f"rows {rows_R.tolist()} mix sentences: the {beams} rows of a sentence stay together, "
            "and sentences keep their order unless some leave"
        )


@lru_cache
def _sentences(rows: int, beams: int) -> Int[Tensor, " R"]:
    """Return the sentence of each row."""
    return torch.arange(rows) // beams
