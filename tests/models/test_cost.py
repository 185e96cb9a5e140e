"""The FLOPs of a pass, compared with torch's own counter."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.models.build import build, build_language_model
from regard.models.seq2seq import Seq2Seq
from regard.nn.cost import count_parameters
from regard.nn.ragged import Layout, Ragged
from regard.nn.tap import named_taps, recording
from regard.recipe import Bahdanau, ConvS2S, Luong, Sutskever, Transformer

SIZES: dict[str, Any] = {"width": 16, "inner": 24, "heads": 2, "encoder_layers": 2, "decoder_layers": 3}
MODELS = {
    "transformer": build(Transformer(**SIZES), 30, 30),
    "bilinear": build(Transformer(**SIZES, score="bilinear", key_size=6, value_size=4), 30, 30),
    "additive, swiglu": build(Transformer(**SIZES, score="additive", activation="swiglu"), 30, 30),
}
MODELS |= {
    "sutskever": build(Sutskever(width=8, embedding=6, layers=2, tied="none"), 30, 30),
    "sutskever, gru": build(Sutskever(width=8, layers=1, cell="gru", tied="none"), 30, 30),
    "bahdanau": build(Bahdanau(width=8, embedding=6, readout_width=5, tied="none"), 30, 30),
    "luong": build(Luong(width=8, layers=2, tied="none"), 30, 30),
    "luong, additive, local": build(
        Luong(width=8, embedding=6, layers=1, score="additive", reach=2, tied="none"), 30, 30
    ),
    "luong, dot, not fed": build(Luong(width=8, layers=2, score="dot", feeding=False, tied="none"), 30, 30),
    "convs2s": build(
        ConvS2S(width=8, embedding=6, encoder_layers=2, decoder_layers=2, kernel=3, positions=20, tied="none"), 30, 30
    ),
}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
SOURCE, TARGET = 7, 5


def drawn(length: int) -> Ragged:
    return Ragged(torch.randint(30, (length,)), Layout.from_lengths([length]))


def has_attention(model: Seq2Seq) -> bool:
    """Return whether a model has attention."""
    return any(name.endswith(".weights") for name in named_taps(model))


def counted(model: Seq2Seq, backward: bool) -> int:
    """Return what torch counts for one pair, which needs no padding; when taps are watched, no fused kernel is used."""
    source, target = drawn(SOURCE), drawn(TARGET)
    watched = recording(model, "*.weights") if has_attention(model) else nullcontext()
    with watched, FlopCounterMode(display=False) as counter:
        # In double precision, because torch does not count inside oneDNN's LSTM.
        logits = model.double().eval()(source, target)
        if backward:
            logits.sum().backward()
    model.zero_grad()
    return int(counter.get_total_flops())


@every_model
def test_the_operations_of_a_forward_pass_are_those_torch_counts(model: Seq2Seq) -> None:
    assert model.forward_flops([SOURCE], [TARGET]) == counted(model, backward=False)


@every_model
def test_a_backward_pass_costs_about_twice_a_forward_pass(model: Seq2Seq) -> None:
    # No gradient is computed for the inputs of the first layers, which is the difference.
    assert 0.93 < counted(model, backward=True) / (3 * model.forward_flops([SOURCE], [TARGET])) <= 1


@every_model
def test_the_cost_of_a_batch_is_that_of_its_pairs(model: Seq2Seq) -> None:
    separate = model.forward_flops([3], [9]) + model.forward_flops([8], [1]) + model.forward_flops([0], [2])
    assert model.forward_flops([3, 8, 0], [9, 1, 2]) == separate


def test_sources_without_targets_are_refused() -> None:
    with pytest.raises(ValueError, match="2 sources do not fit 1 targets"):
        MODELS["transformer"].forward_flops([1, 2], [1])


def test_a_tied_matrix_counts_once() -> None:
    tied, free = (build(Transformer(**SIZES, tied=how), 30, 30) for how in ("all", "none"))
    assert count_parameters(free) - count_parameters(tied) == 2 * 30 * 16


@pytest.mark.parametrize("score", ["scaled", "additive", "bilinear"])
def test_the_operations_of_a_language_model_are_those_torch_counts(score: str) -> None:
    model = build_language_model(Transformer.model_validate(SIZES | {"score": score}), 30).double().eval()
    with recording(model, "*.weights"), FlopCounterMode(display=False) as counter:
        model(drawn(TARGET))
    assert model.forward_flops([TARGET]) == counter.get_total_flops()
    assert model.forward_flops([TARGET, 2]) == model.forward_flops([TARGET]) + model.forward_flops([2])
