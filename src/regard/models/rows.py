"""The rows of a decoding batch: the beams of a sentence are adjacent, sentence after sentence."""

from functools import lru_cache

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray
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
    # The usual case, in one check. NumPy takes a quarter of the time of torch for so few numbers.
    if rows_R.shape[0] == rows and bool((rows_R.numpy() // beams == _sentences(rows, beams)).all()):
        return
    sentences = rows_R // beams
    whole = rows_R.shape[0] % beams == 0 and bool((sentences.view(-1, beams) == sentences[::beams, None]).all())
    if not whole or rows_R.shape[0] >= rows:
        raise ValueError(
            f"rows {rows_R.tolist()} mix sentences: the {beams} rows of a sentence stay together, "
            "and sentences keep their order unless some leave"
        )


def check_mixed_rows(rows_R: Int[Tensor, " R"], sentence_R: Int[Tensor, " R2"]) -> None:
    """Raise an error if selecting these rows would mix sentences that have different numbers of rows.

    Args:
        rows_R: The rows to continue from.
        sentence_R: The sentence of each row there is now.
    """
    chosen_R, rows_B = sentence_R[rows_R], sentence_R.bincount()
    chosen_B = chosen_R.bincount(minlength=rows_B.shape[0])
    whole = bool(((chosen_B == rows_B) | (chosen_B == 0)).all())
    if not whole or not bool((chosen_R[1:] >= chosen_R[:-1]).all()):
        raise ValueError(
            f"rows {rows_R.tolist()} mix sentences, which have {rows_B.tolist()} rows: the rows of a sentence stay "
            "together, and sentences keep their order"
        )


@lru_cache
def _sentences(rows: int, beams: int) -> NDArray[np.int64]:
    """Return the sentence of each row."""
    return np.arange(rows) // beams
