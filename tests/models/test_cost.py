"""What a pass costs, beside torch's own counter."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.models.convolutional.outline import ConvS2S
from regard.models.cost import forward_flops, parameters, training_flops
from regard.models.outline import Outline
from regard.models.recurrent.outline import Bahdanau, Luong, Sutskever
from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import Layout, Ragged
from regard.nn.tap import recording, taps

TOLD: dict[str, Any] = {"width": 16, "inner": 24, "heads": 2, "encoder_layers": 2, "decoder_layers": 3}
MODELS = {
    "transformer": Outline(**TOLD).seq2seq(30, 30),
    "bilinear": Outline(**TOLD, score="bilinear", key_size=6, value_size=4).seq2seq(30, 30),
    "additive, swiglu": Outline(**TOLD, score="additive", activation="swiglu").seq2seq(30, 30),
}
MODELS |= {
    "sutskever": Sutskever(8, 6, layers=2).seq2seq(30, 30),
    "sutskever, gru": Sutskever(8, layers=1, cell="gru").seq2seq(30, 30),
    "bahdanau": Bahdanau(8, 6, readout_width=5).seq2seq(30, 30),
    "luong": Luong(8, layers=2).seq2seq(30, 30),
    "luong, additive, local": Luong(8, 6, layers=1, score="additive", reach=2).seq2seq(30, 30),
    "luong, dot, not fed": Luong(8, layers=2, score="dot", feeding=False).seq2seq(30, 30),
    "convs2s": ConvS2S(8, 6, encoder_layers=2, decoder_layers=2, kernel=3, positions=20).seq2seq(30, 30),
}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
SOURCE, TARGET = 7, 5


def drawn(length: int) -> Ragged:
    return Ragged(torch.randint(30, (length,)), Layout.from_lengths([length]))


def matching_any(model: Seq2Seq) -> bool:
    """Whether it has attention at all."""
    return any(name.endswith(".weights") for name in taps(model))


def counted(model: Seq2Seq, backward: bool) -> int:
    """What torch counts for one pair, which needs no padding; watched, no product hides in a fused kernel."""
    source, target = drawn(SOURCE), drawn(TARGET)
    watched = recording(model, "*.weights") if matching_any(model) else nullcontext()
    with watched, FlopCounterMode(display=False) as counter:
        # In double precision, because torch does not look into oneDNN's LSTM.
        logits = model.double().eval()(source, target)
        if backward:
            logits.sum().backward()
    model.zero_grad()
    return int(counter.get_total_flops())


@every_model
def test_the_products_of_a_pass_forward_are_those_torch_counts(model: Seq2Seq) -> None:
    assert forward_flops(model, [SOURCE], [TARGET]) == counted(model, backward=False)


@every_model
def test_a_pass_backward_is_about_twice_that(model: Seq2Seq) -> None:
    # Nothing is computed backward into the embeddings' inputs, which is the little that lacks.
    assert 0.93 < counted(model, backward=True) / training_flops(model, [SOURCE], [TARGET]) <= 1


@every_model
def test_the_cost_of_a_batch_is_that_of_its_pairs(model: Seq2Seq) -> None:
    apart = training_flops(model, [3], [9]) + training_flops(model, [8], [1]) + training_flops(model, [0], [2])
    assert training_flops(model, [3, 8, 0], [9, 1, 2]) == apart


def test_sources_without_targets_are_refused() -> None:
    with pytest.raises(ValueError, match="2 sources do not fit 1 targets"):
        training_flops(MODELS["transformer"], [1, 2], [1])


def test_a_tied_matrix_counts_once() -> None:
    tied, free = (Outline(**TOLD, tied=how).seq2seq(30, 30) for how in ("all", "none"))
    assert parameters(free) - parameters(tied) == 2 * 30 * 16
