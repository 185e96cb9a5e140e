"""Which weights go to which optimiser, and that what they remember has a place before the first update."""

import pytest
import torch
from torch import nn
from torch.optim import Adam, AdamW

from regard.models.outline import Outline
from regard.recipe import Train
from regard.train.muon import Muon
from regard.train.optimiser import build_optimisers, set_rate, state_tensors


@pytest.fixture
def model() -> nn.Module:
    return Outline(width=16, inner=32, heads=2, encoder_layers=1, decoder_layers=1).seq2seq(23, 23)


def told(**settings: object) -> Train:
    return Train.model_validate(settings)


@pytest.mark.parametrize("name", ["adam", "adamw", "muon"])
def test_every_weight_is_learnt_once(model: nn.Module, name: str) -> None:
    held = [
        id(each)
        for optimiser in build_optimisers(model, told(optimiser=name))
        for group in optimiser.param_groups
        for each in group["params"]
    ]
    assert sorted(held) == sorted(map(id, model.parameters()))


def test_adam_is_the_papers(model: nn.Module) -> None:
    (adam,) = build_optimisers(model, told(optimiser="adam"))
    assert type(adam) is Adam
    assert (adam.defaults["betas"], adam.defaults["eps"]) == ((0.9, 0.98), 1e-9)


def test_muon_takes_matrices_but_no_vocabulary(model: nn.Module) -> None:
    muon, rest = build_optimisers(model, told(optimiser="muon"))
    assert isinstance(muon, Muon)
    assert isinstance(rest, AdamW)
    shapes = [each.shape for group in muon.param_groups for each in group["params"]]
    assert shapes
    assert torch.Size([23, 16]) not in shapes


def test_decay_falls_on_matrices_alone(model: nn.Module) -> None:
    (optimiser,) = build_optimisers(model, told(decay=0.1))
    assert {
        (each.ndim >= 2, group["weight_decay"]) for group in optimiser.param_groups for each in group["params"]
    } == {
        (True, 0.1),
        (False, 0.0),
    }


@pytest.mark.parametrize("name", ["adam", "adamw", "muon"])
def test_a_state_begun_early_changes_no_update(name: str) -> None:
    """What we begin with is what torch's optimisers would begin with themselves."""
    after = []
    for early in (True, False):
        torch.manual_seed(0)
        model = Outline(width=16, inner=32, heads=2, encoder_layers=1, decoder_layers=1).seq2seq(23, 23)
        optimisers = build_optimisers(model, told(optimiser=name))
        if early:
            state_tensors(model, optimisers)
        set_rate(optimisers, 1e-2)
        for each in model.parameters():
            each.grad = torch.ones_like(each).normal_(generator=torch.Generator().manual_seed(each.numel()))
        for optimiser in optimisers:
            optimiser.step()
        after.append([each.detach().clone() for each in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*after, strict=True))
