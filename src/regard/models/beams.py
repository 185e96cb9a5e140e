"""The rows of a search: the W beams of a sentence in a line, line after line."""

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
    whole = rows_R.shape[0] % beams == 0 and bool((lines.view(-1, beams) == lines[::beams, None]).all())
    leave = rows_R.shape[0] < rows
    if not whole or (not leave and not torch.equal(lines, torch.arange(rows_R.shape[0]) // beams)):
        raise ValueError(
            f"rows {rows_R.tolist()} mix sentences: the {beams} rows of a sentence stay together, "
            "and sentences keep their order unless some leave"
        )
