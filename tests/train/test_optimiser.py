"""Which weights each optimiser has, and their state before the first update."""

import pytest
import torch
from torch import nn
from torch.optim import Adam, AdamW

from regard.models.build import build, build_classifier
from regard.recipe import Classification, Transformer
from regard.train.muon import Muon
from regard.train.optimiser import build_optimisers, set_learning_rate, state_tensors
from regard.train.schedule import ResolvedTrain


@pytest.fixture
def model() -> nn.Module:
    return build(Transformer(width=16, inner=32, heads=2, encoder_layers=1, decoder_layers=1), 23, 23)


def train_settings(**settings: object) -> ResolvedTrain:
    return ResolvedTrain.model_validate(settings)


@pytest.mark.parametrize("name", ["adam", "adamw", "muon"])
def test_every_weight_is_in_one_parameter_group(model: nn.Module, name: str) -> None:
    held = [
        id(weight)
        for optimiser in build_optimisers(model, train_settings(optimiser=name))
        for group in optimiser.param_groups
        for weight in group["params"]
    ]
    assert sorted(held) == sorted(map(id, model.parameters()))


def test_the_rows_of_classes_and_ngrams_are_no_matrix_for_muon() -> None:
    settings = Transformer(width=16, inner=32, heads=2, encoder_layers=1)
    model = build_classifier(settings, 23, 4, Classification(pooling="first", ngrams=2, ngram_buckets=8))
    muon, _ = build_optimisers(model, train_settings(optimiser="muon"))
    held = {id(weight) for group in muon.param_groups for weight in group["params"]}
    assert id(model.output.weight) not in held
    assert id(model.get_parameter("ngrams.weight")) not in held
    assert id(model.get_parameter("pooling.dense.weight")) in held


def test_adam_has_the_settings_of_the_paper(model: nn.Module) -> None:
    (adam,) = build_optimisers(model, train_settings(optimiser="adam"))
    assert type(adam) is Adam
    assert (adam.defaults["betas"], adam.defaults["eps"]) == ((0.9, 0.98), 1e-9)


def test_muon_has_matrices_but_no_embeddings(model: nn.Module) -> None:
    muon, rest = build_optimisers(model, train_settings(optimiser="muon"))
    assert isinstance(muon, Muon)
    assert isinstance(rest, AdamW)
    shapes = [weight.shape for group in muon.param_groups for weight in group["params"]]
    assert shapes
    assert torch.Size([23, 16]) not in shapes


def test_weight_decay_applies_to_matrices_only(model: nn.Module) -> None:
    (optimiser,) = build_optimisers(model, train_settings(decay=0.1))
    assert {
        (weight.ndim >= 2, group["weight_decay"]) for group in optimiser.param_groups for weight in group["params"]
    } == {
        (True, 0.1),
        (False, 0.0),
    }


@pytest.mark.parametrize("name", ["adam", "adamw", "muon"])
def test_initialising_the_state_early_does_not_change_the_update(name: str) -> None:
    """The initial state equals the one that the optimisers create at their first step."""
    after = []
    for early in (True, False):
        torch.manual_seed(0)
        model = build(Transformer(width=16, inner=32, heads=2, encoder_layers=1, decoder_layers=1), 23, 23)
        optimisers = build_optimisers(model, train_settings(optimiser=name))
        if early:
            state_tensors(model, optimisers)
        set_learning_rate(optimisers, 1e-2)
        for weight in model.parameters():
            weight.grad = torch.ones_like(weight).normal_(generator=torch.Generator().manual_seed(weight.numel()))
        for optimiser in optimisers:
            optimiser.step()
        after.append([weight.detach().clone() for weight in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*after, strict=True))
