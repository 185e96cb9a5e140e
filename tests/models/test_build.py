"""From a recipe to a model, and what is refused on the way."""

from typing import Any

import pytest
import torch
from pydantic import TypeAdapter

from regard.models.build import AnyOutline, build, outline
from regard.models.convolutional import outline as convolutional
from regard.models.outline import Outline
from regard.models.recurrent import outline as recurrent
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Stack
from regard.nn.ragged import Layout, Ragged
from regard.recipe import Bahdanau, ConvS2S, Luong, Model, Sutskever, Transformer

TINY: dict[str, Any] = {"width": 8, "inner": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}


def told(**settings: Any) -> Transformer:
    return Transformer.model_validate({**TINY, **settings})


@pytest.mark.parametrize("size", ["tiny", "small", "base", "big"])
def test_every_preset_builds_the_model_its_size_says(size: str) -> None:
    settings = Transformer.model_validate({"size": size})
    with torch.device("meta"):
        model = build(settings, 100, 100)
    assert isinstance(model.encoder, Stack)
    assert isinstance(model.decoder, Stack)
    assert len(model.encoder.layers) == settings.encoder_layers
    assert len(model.decoder.layers) == settings.decoder_layers
    assert model.output.weight.shape == (100, settings.width)


def test_base_and_big_are_the_papers() -> None:
    """Table 3: N 6, d_model 512 and 1024, d_ff 2048 and 4096, h 8 and 16, dropout .1 and .3."""
    for size, drawn in (("base", Outline()), ("big", Outline(width=1024, inner=4096, heads=16, dropout=0.3))):
        with torch.device("meta"):
            ours, papers = build(Transformer.model_validate({"size": size}), 50, 50), drawn.seq2seq(50, 50)
        assert {k: v.shape for k, v in ours.state_dict().items()} == {
            k: v.shape for k, v in papers.state_dict().items()
        }
        assert str(ours) == str(papers)


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "alibi", "none"])
@pytest.mark.parametrize("norm", ["layer", "rms", "scale"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
def test_every_setting_of_a_recipe_builds_a_model_that_runs(position: str, norm: str, activation: str) -> None:
    model = build(told(position=position, norm=norm, activation=activation, window=3), 9, 9)
    batch = Ragged.from_list([[1, 2, 3], [4]])
    assert model(batch, batch).shape == (4, 9)


@pytest.mark.parametrize(
    "settings",
    [
        {"score": "dot"},
        {"score": "bilinear", "key_size": 3, "value_size": 5},
        {"score": "additive", "key_size": 3},
        {"position": "learned", "positions": 3},
        {"position_width": 4, "tied": "none"},
        {"position": "learned", "position_width": 2, "tied": "embeddings"},
        {"tied": "outer"},
        {"attention_dropout": 0.2, "activation_dropout": 0.3, "word_dropout": 0.1},
    ],
)
def test_a_recipe_reaches_every_mechanism_of_an_outline(settings: dict[str, Any]) -> None:
    built, drawn = build(told(**settings), 9, 9), Outline(**{**TINY, **settings}).seq2seq(9, 9)
    assert {k: v.shape for k, v in built.state_dict().items()} == {k: v.shape for k, v in drawn.state_dict().items()}
    assert str(built) == str(drawn)
    batch = Ragged.from_list([[1, 2, 3], [4]])
    assert bool(built(batch, batch).isfinite().all())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"position": "rotary", "position_width": 4}, "has no vector to set beside"),
        ({"position_width": 8, "tied": "none"}, "must be even and below width = 8"),
        ({"position_width": 3, "tied": "none"}, "must be even and below width = 8"),
        ({"position_width": 4}, "say tied = 'embeddings' or 'none'"),
    ],
)
def test_positions_set_beside_the_tokens_need_room(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        told(**settings)


RUNS: list[dict[str, Any]] = [
    {"kind": "sutskever", "width": 8, "layers": 3, "cell": "gru", "backwards": False},
    {"kind": "bahdanau", "width": 8, "embedding": 6, "readout": "linear", "readout_width": 5, "tied": "none"},
    {"kind": "luong", "width": 8, "layers": 1, "score": "additive", "feeding": False, "reach": 3, "backwards": False},
    {"kind": "convs2s", "width": 8, "embedding": 6, "encoder_layers": 1, "decoder_layers": 2, "kernel": 5},
]


@pytest.mark.parametrize("told", RUNS, ids=lambda told: str(told["kind"]))
def test_a_recipe_reaches_every_setting_of_an_ancestor(told: dict[str, Any]) -> None:
    settings: Model = TypeAdapter(Model).validate_python({**told, "dropout": 0.25})
    assert vars(outline(settings)) == {name: value for name, value in settings if name not in ("kind", "size")}
    batch = Ragged.from_list([[1, 2, 3], [4]])
    assert build(settings, 9, 9)(batch, batch).shape == (4, 9)


@pytest.mark.parametrize(
    ("told", "drawn"),
    [
        (Sutskever(size="base"), recurrent.Sutskever()),
        (Bahdanau(size="base"), recurrent.Bahdanau()),
        (Luong(size="base"), recurrent.Luong()),
        (ConvS2S(size="base"), convolutional.ConvS2S()),
    ],
    ids=lambda each: type(each).__name__,
)
def test_the_base_of_an_ancestor_is_its_papers(told: Model, drawn: AnyOutline) -> None:
    with torch.device("meta"):
        ours, papers = build(told, 50, 50), drawn.seq2seq(50, 50)
    assert {k: v.shape for k, v in ours.state_dict().items()} == {k: v.shape for k, v in papers.state_dict().items()}
    assert str(ours) == str(papers)


def weights(model: Seq2Seq) -> tuple[int, int, int]:
    return id(model.encoder.embedding.weight), id(model.decoder.embedding.weight), id(model.output.weight)


def test_embeddings_are_tied_in_any_combination() -> None:
    """Press & Wolf 2017: which of source, target and output are one matrix."""
    together = {}
    for tied in ("all", "decoder", "embeddings", "outer", "none"):
        source, target, output = weights(Outline(**TINY, tied=tied).seq2seq(9, 9))
        together[tied] = (source == target, target == output, source == output)
    assert together == {
        "all": (True, True, True),
        "decoder": (False, True, False),
        "embeddings": (True, False, False),
        "outer": (False, False, True),
        "none": (False, False, False),
    }


def test_a_tied_matrix_learns_from_all_its_uses() -> None:
    model = Outline(**TINY, dropout=0.0).seq2seq(9, 9)
    model(Ragged.from_list([[3]]), Ragged.from_list([[4]])).sum().backward()
    gradient = model.output.weight.grad
    assert gradient is not None
    assert bool((gradient != 0).any(1).all())  # as output all rows, and rows 3 and 4 as source and target too
    assert not torch.allclose(gradient[3], gradient[5])


@pytest.mark.parametrize("tied", ["all", "embeddings"])
def test_vocabularies_of_unequal_size_cannot_be_one(tied: str) -> None:
    with pytest.raises(ValueError, match="vocabularies of 9 and 10 cannot share one embedding; use a joint vocabulary"):
        Outline(**TINY, tied=tied).seq2seq(9, 10)


def test_source_and_output_of_unequal_size_cannot_be_one() -> None:
    with pytest.raises(ValueError, match=r"cannot share an embedding of \(9, 8\); untie them"):
        Outline(**TINY, tied="outer").seq2seq(9, 10)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"tied": "both"}, "'both' ties nothing; it may be all, decoder, embeddings, outer or none"),
        ({"position": "spiral"}, "no position 'spiral'"),
        ({"score": "cosine"}, "no attention score 'cosine'"),
        ({"norm": "batch"}, "no norm 'batch'"),
        ({"activation": "tanh"}, "no activation 'tanh'"),
        ({"heads": 3}, "width 8 does not divide into 3 heads"),
        ({"position": "alibi", "position_width": 4}, "'alibi' positions have no vector"),
        ({"position_width": 4}, "cannot share an embedding of"),
    ],
)
def test_what_cannot_be_built_is_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Outline(**{**TINY, **wrong}).seq2seq(9, 9)


def test_unequal_numbers_of_sources_and_targets_are_refused() -> None:
    model = Outline(**TINY).seq2seq(9, 9)
    with pytest.raises(ValueError, match="2 sources do not fit 1 targets"):
        model(Ragged.from_list([[1], [2]]), Ragged.from_list([[1]]))


@pytest.mark.parametrize(("source", "target"), [([[1, 9]], [[1]]), ([[1]], [[2, 11]]), ([[-3]], [[2]])])
def test_ids_outside_the_vocabulary_are_refused_on_both_sides(source: list[list[int]], target: list[list[int]]) -> None:
    model = Outline(**TINY).seq2seq(9, 9)
    with pytest.raises(ValueError, match="is outside the vocabulary of 9"):
        model(Ragged.from_list(source), Ragged.from_list(target))


def test_a_search_refuses_ids_and_lengths_as_a_pass_does() -> None:
    model = Outline(**TINY, position="learned", positions=2).seq2seq(9, 9).eval()
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


def test_dropout_falls_in_training_only_and_on_every_place_it_was_asked_for() -> None:
    batch = Ragged.from_list([[1, 2, 3]])
    for kind in ("dropout", "attention_dropout", "activation_dropout", "word_dropout"):
        model = Outline(**{**TINY, "dropout": 0.0, kind: 0.5}).seq2seq(9, 9)
        torch.manual_seed(0)
        assert len({model(batch, batch).sum().item() for _ in range(8)}) > 1, kind
        assert len({model.eval()(batch, batch).sum().item() for _ in range(3)}) == 1, kind
