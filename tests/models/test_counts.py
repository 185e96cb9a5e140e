"""The numbers of parameters of the papers' models (Vaswani et al. 2017, table 3; Sutskever et al. 2014, §3.4)."""

from typing import Any

import pytest
import torch

from regard.models.build import build
from regard.nn.cost import count_parameters
from regard.recipe import Sutskever, Transformer

# The rows for which the paper lists the parameters: their changes of the base model, and the millions of parameters.
ROWS: dict[str, tuple[dict[str, Any], int]] = {
    "base": ({}, 65),
    "B: d_k 16": ({"key_size": 16, "value_size": 64}, 58),
    "B: d_k 32": ({"key_size": 32, "value_size": 64}, 60),
    "C: N 2": ({"encoder_layers": 2, "decoder_layers": 2}, 36),
    "C: N 4": ({"encoder_layers": 4, "decoder_layers": 4}, 50),
    "C: N 8": ({"encoder_layers": 8, "decoder_layers": 8}, 80),
    "C: d_model 256": ({"width": 256}, 28),
    "C: d_model 1024": ({"width": 1024}, 168),
    "C: d_ff 1024": ({"inner": 1024}, 53),
    "C: d_ff 4096": ({"inner": 4096}, 90),
    "big": ({"width": 1024, "inner": 4096, "heads": 16}, 213),
}
STATED = 37_000  # entries of the shared vocabulary, as the paper says (§5.1)
FITTING = 41_000  # as fits every row but big
FITTING_BIG = 36_000


def counted(row: str, vocabulary: int) -> int:
    """Return the number of parameters of a row's model, with all embeddings tied, built on the meta device."""
    with torch.device("meta"):
        model = build(Transformer(size="base", norm_first=False, **ROWS[row][0]), vocabulary, vocabulary)
    return count_parameters(model)


@pytest.mark.parametrize("row", ROWS)
def test_the_parameters_are_the_matrices_biases_and_norms_of_the_paper(row: str) -> None:
    settings = Transformer(size="base", **ROWS[row][0])
    d, f, h = settings.width, settings.inner, settings.heads
    k, v = (settings.key_size or d // h) * h, (settings.value_size or d // h) * h
    attention, feedforward, norm = (d + 1) * (2 * k + v) + (v + 1) * d, (d + 1) * f + (f + 1) * d, 2 * d
    encoder = settings.encoder_layers * (attention + feedforward + 2 * norm)
    decoder = settings.decoder_layers * (2 * attention + feedforward + 3 * norm)
    assert counted(row, STATED) == STATED * d + encoder + decoder


@pytest.mark.parametrize("row", [row for row in ROWS if row != "big"])
def test_with_41_000_tokens_every_row_but_big_has_the_millions_the_paper_lists(row: str) -> None:
    assert round(counted(row, FITTING) / 1e6) == ROWS[row][1]


def test_with_the_stated_37_000_tokens_base_has_63_million_and_big_fits_about_36_000() -> None:
    assert counted("base", STATED) == 63_082_496
    assert round(counted("big", FITTING) / 1e6) == 218
    assert round(counted("big", FITTING_BIG) / 1e6) == ROWS["big"][1]


@pytest.mark.parametrize("row", [row for row, (changes, _) in ROWS.items() if "width" not in changes and changes])
def test_the_difference_of_a_row_to_base_is_that_of_the_paper_for_any_vocabulary(row: str) -> None:
    exact = counted(row, STATED) - counted("base", STATED)
    assert exact == counted(row, FITTING) - counted("base", FITTING)
    assert abs(exact / 1e6 - (ROWS[row][1] - ROWS["base"][1])) < 1  # two listed figures, each rounded by up to a half


@pytest.mark.parametrize("heads", [1, 4, 16, 32])
def test_the_number_of_heads_does_not_change_the_number_of_parameters(heads: int) -> None:
    """The paper's rows (A)."""
    with torch.device("meta"):
        model = build(Transformer(size="base", heads=heads, norm_first=False), STATED, STATED)
    assert count_parameters(model) == counted("base", STATED)


def test_the_lstm_of_sutskever_has_the_384_million_parameters_its_paper_lists() -> None:
    """§3.4: 384 million, of which 64 million in the recurrences, 32 in each; 160,000 source and 80,000 target words."""
    with torch.device("meta"):
        model = build(Sutskever(size="base"), 160_000, 80_000)
    recurrent = [
        sum(weight.numel() for name, weight in side.named_parameters() if "recurrence" in name)
        for side in (model.get_submodule("encoder"), model.get_submodule("decoder"))
    ]
    assert [round(count / 1e6) for count in recurrent] == [32, 32]
    assert round(count_parameters(model) / 1e6) == 384
