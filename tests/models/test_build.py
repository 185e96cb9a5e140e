"""Models are built from the `[model]` section of a recipe, and wrong settings or inputs are refused."""

from typing import Any

import pytest
import torch
from pydantic import TypeAdapter

from regard.models.build import build
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Stack
from regard.nn.ragged import Layout, Ragged
from regard.recipe import Bahdanau, ConvS2S, Luong, Model, Sutskever, Transformer

TINY: dict[str, Any] = {"width": 8, "inner": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
BATCH = Ragged.from_list([[1, 2, 3], [4]])


def transformer(source_vocabulary: int = 9, target_vocabulary: int = 9, **chosen: Any) -> Seq2Seq:
    return build(Transformer.model_validate(TINY | chosen), source_vocabulary, target_vocabulary)


@pytest.mark.parametrize("size", ["tiny", "small", "base", "big"])
def test_every_preset_builds_a_model_of_its_size(size: str) -> None:
    settings = Transformer.model_validate({"size": size})
    with torch.device("meta"):
        model = build(settings, 100, 100)
    assert isinstance(model.encoder, Stack)
    assert isinstance(model.decoder, Stack)
    assert len(model.encoder.layers) == settings.encoder_layers
    assert len(model.decoder.layers) == settings.decoder_layers
    assert model.output.weight.shape == (100, settings.width)


@pytest.mark.parametrize(
    ("settings", "published"),
    [
        # Vaswani et al. 2017, table 3.
        (Transformer(size="base"), {"width": 512, "inner": 2048, "heads": 8, "encoder_layers": 6, "dropout": 0.1}),
        (Transformer(size="big"), {"width": 1024, "inner": 4096, "heads": 16, "decoder_layers": 6, "dropout": 0.3}),
        # Sutskever et al. 2014, §3.4.
        (Sutskever(size="base"), {"width": 1000, "embedding": 1000, "layers": 4, "cell": "lstm", "backwards": True}),
        # Bahdanau et al. 2015, §A.2.
        (Bahdanau(size="base"), {"width": 1000, "embedding": 620, "readout_width": 500, "cell": "gru"}),
        # Luong et al. 2015, §4.1.
        (Luong(size="base"), {"width": 1000, "embedding": 1000, "layers": 4, "feeding": True, "dropout": 0.2}),
        # Gehring et al. 2017, §4.2.
        (ConvS2S(size="base"), {"width": 512, "embedding": 512, "encoder_layers": 20, "kernel": 3, "dropout": 0.2}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_base_and_big_are_the_published_models(settings: Model, published: dict[str, Any]) -> None:
    assert settings.model_dump(include=set(published)) == published


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "alibi", "none"])
@pytest.mark.parametrize("norm", ["layer", "rms", "scale"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "swiglu"])
def test_every_combination_of_mechanisms_builds_a_model_that_runs(position: str, norm: str, activation: str) -> None:
    model = transformer(position=position, norm=norm, activation=activation, window=3)
    assert model(BATCH, BATCH).shape == (4, 9)


@pytest.mark.parametrize(
    ("chosen", "module", "expected"),
    [
        ({"score": "additive", "key_size": 3}, "encoder.layers.0.self.score", "AdditiveScore"),
        ({"score": "bilinear", "key_size": 3, "value_size": 5}, "decoder.layers.0.cross.score", "BilinearScore"),
        ({"position": "learned", "positions": 3}, "encoder.embedding.position", "LearnedPositions"),
        ({"position": "rotary"}, "decoder.layers.0.self.rotary", "RotaryPositions"),
        ({"norm": "rms"}, "decoder.norm", "RMSNorm"),
        ({"norm_first": False}, "decoder.norm", "Identity"),
    ],
)
def test_a_setting_selects_its_mechanism(chosen: dict[str, Any], module: str, expected: str) -> None:
    model = transformer(**chosen)
    assert type(model.get_submodule(module)).__name__ == expected
    assert bool(model(BATCH, BATCH).isfinite().all())


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"position": "rotary", "position_width": 4}, "has no vector to concatenate"),
        ({"position_width": 8, "tied": "none"}, "must be even and less than width = 8"),
        ({"position_width": 3, "tied": "none"}, "must be even and less than width = 8"),
        ({"position_width": 4}, "set tied = 'embeddings' or 'none'"),
        ({"heads": 3}, "width = 8 does not divide into heads = 3"),
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        transformer(**chosen)


RUNS: list[dict[str, Any]] = [
    {"kind": "sutskever", "width": 8, "layers": 3, "cell": "gru", "backwards": False},
    {"kind": "bahdanau", "width": 8, "embedding": 6, "readout": "linear", "readout_width": 5, "tied": "none"},
    {"kind": "luong", "width": 8, "layers": 1, "score": "additive", "feeding": False, "reach": 3, "backwards": False},
    {"kind": "convs2s", "width": 8, "embedding": 6, "encoder_layers": 1, "decoder_layers": 2, "kernel": 5},
]


@pytest.mark.parametrize("chosen", RUNS, ids=lambda chosen: str(chosen["kind"]))
def test_every_other_family_builds_a_model_that_runs(chosen: dict[str, Any]) -> None:
    settings: Model = TypeAdapter(Model).validate_python({**chosen, "dropout": 0.25})
    assert build(settings, 9, 9)(BATCH, BATCH).shape == (4, 9)


def test_embeddings_are_tied_in_any_combination() -> None:
    """Press & Wolf 2017: which of source, target and output are one matrix."""
    shared = {}
    names = "encoder.embedding.weight", "decoder.embedding.weight", "output.weight"
    for tied in ("all", "decoder", "embeddings", "outer", "none"):
        model = transformer(tied=tied)
        source, target, output = (id(model.get_parameter(name)) for name in names)
        shared[tied] = (source == target, target == output, source == output)
    assert shared == {
        "all": (True, True, True),
        "decoder": (False, True, False),
        "embeddings": (True, False, False),
        "outer": (False, False, True),
        "none": (False, False, False),
    }


def test_a_tied_matrix_learns_from_all_its_uses() -> None:
    model = transformer(dropout=0.0)
    model(Ragged.from_list([[3]]), Ragged.from_list([[4]])).sum().backward()
    gradient = model.output.weight.grad
    assert gradient is not None
    assert bool((gradient != 0).any(1).all())  # as output all rows, and rows 3 and 4 as source and target too
    assert not torch.allclose(gradient[3], gradient[5])


@pytest.mark.parametrize("tied", ["all", "embeddings"])
def test_vocabularies_of_different_sizes_cannot_share_an_embedding(tied: str) -> None:
    with pytest.raises(ValueError, match="vocabularies of 9 and 10 tokens cannot share one embedding"):
        transformer(9, 10, tied=tied)


def test_a_source_embedding_of_another_size_cannot_be_the_output() -> None:
    with pytest.raises(ValueError, match=r"cannot share an embedding of shape \(9, 8\); untie them"):
        transformer(9, 10, tied="outer")


def test_different_numbers_of_sources_and_targets_are_refused() -> None:
    with pytest.raises(ValueError, match="2 sources do not fit 1 targets"):
        transformer()(Ragged.from_list([[1], [2]]), Ragged.from_list([[1]]))


@pytest.mark.parametrize(("source", "target"), [([[1, 9]], [[1]]), ([[1]], [[2, 11]]), ([[-3]], [[2]])])
def test_ids_outside_the_vocabulary_are_refused_on_both_sides(source: list[list[int]], target: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="is outside the vocabulary of 9"):
        transformer()(Ragged.from_list(source), Ragged.from_list(target))


def test_decoding_refuses_the_ids_and_lengths_that_teacher_forcing_refuses() -> None:
    model = transformer(position="learned", positions=2).eval()
    assert (model.encoder.max_positions, model.decoder.max_positions) == (2, 2)
    state = model.start(Ragged.from_list([[1]]))
    with pytest.raises(ValueError, match="token id 9 is outside"):
        model.step(torch.tensor([9]), state)
    for _ in range(2):
        _, state = model.step(torch.tensor([1]), state)
    with pytest.raises(ValueError, match="a sequence of 3 tokens is longer than the 2 learned positions"):
        model.step(torch.tensor([1]), state)


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sequence"):
        Layout.from_lengths([])


def test_dropout_acts_in_training_only_and_everywhere_it_was_asked_for() -> None:
    batch = Ragged.from_list([[1, 2, 3]])
    for kind in ("dropout", "attention_dropout", "activation_dropout", "word_dropout"):
        settings: dict[str, Any] = {"dropout": 0.0} | {kind: 0.5}
        model = transformer(**settings)
        torch.manual_seed(0)
        assert len({model(batch, batch).sum().item() for _ in range(8)}) > 1, kind
        assert len({model.eval()(batch, batch).sum().item() for _ in range(3)}) == 1, kind
