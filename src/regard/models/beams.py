"""The rows of a search: the W beams of a sentence in a line, line after line."""

from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor


def check_lines(rows_R: Int[Tensor, " R"], beams: int, rows: int) -> None:
    """Refuse to go on with rows that tear a sentence's beams apart; `rows` says how many there are now.

    Other devices than the CPU are not waited for.
    """
    if rows_R.device.type != "cpu":
        return
    lines = rows_R // beams
    if rows_R.shape[0] == rows and torch.equal(lines, _lines(rows, beams)):  # the usual case, in one look
        return
    whole = rows_R.shape[0] % beams == 0 and bool((lines.view(-1, beams) == lines[::beams, None]).all())
    if not whole or rows_R.shape[0] >= rows:
        raise ValueError(
            f"rows {rows_R.tolist()} mix sentences: the {beams} rows of a sentence stay together, "
            "and sentences keep their order unless some leave"
        )


@lru_cache
def _lines(rows: int, beams: int) -> Int[Tensor, " R"]:
    """The sentence of each row."""
    return torch.arange(rows) // beams
