"""Muon: the updates of `torch.optim.Muon`, with merged projections orthogonalised separately."""

import pytest
import torch
from torch import Tensor

from regard.train.cpu_threads import CpuThreads
from regard.train.muon import Muon, orthogonalise


def weights(*shapes: tuple[int, int]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    made = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
    for weight in made:
        weight.grad = torch.randn(weight.shape, generator=generator)
    return made


def moved(optimiser: torch.optim.Optimizer, steps: int = 2) -> list[Tensor]:
    for _ in range(steps):
        optimiser.step()
    return [weight.detach() for group in optimiser.param_groups for weight in group["params"]]


def test_singular_values_become_about_one() -> None:
    orthogonal = orthogonalise(torch.randn(3, 24, 40, generator=torch.Generator().manual_seed(0)))
    values = torch.linalg.svdvals(orthogonal.float())
    assert 0.5 < float(values.min()) < float(values.max()) < 1.3


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_updates_are_those_of_torch(decay: float) -> None:
    shapes = [(16, 16), (16, 48), (48, 16), (16, 16)]
    ours = moved(Muon(weights(*shapes), 0.1, decay))
    theirs = moved(torch.optim.Muon(weights(*shapes), 0.1, decay, adjust_lr_fn="match_rms_adamw"))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=5e-3)  # products in bfloat16, moves of about 0.04


def test_merged_projections_are_orthogonalised_separately() -> None:
    apart = weights((16, 16), (16, 16), (8, 16))
    merged = torch.cat([weight.detach() for weight in apart]).requires_grad_()
    merged.grad = torch.cat([weight.grad for weight in apart if weight.grad is not None])
    (updated,) = moved(Muon([merged], 0.1, merged_rows={id(merged): (16, 16, 8)}))
    torch.testing.assert_close(updated, torch.cat(moved(Muon(apart, 0.1))), rtol=0.0, atol=5e-3)


def test_threads_do_not_change_the_updates() -> None:
    shapes = [(16, 16), (16, 48), (48, 16), (16, 16), (32, 16)]
    alone, shared = Muon(weights(*shapes), 0.1), Muon(weights(*shapes), 0.1)
    with CpuThreads(2) as shared.threads:
        updated = moved(shared)
    for one, other in zip(moved(alone), updated, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=5e-3)


def test_a_weight_without_a_gradient_does_not_change() -> None:
    one, other = weights((8, 8), (8, 8))
    other.grad = None
    before = other.detach().clone()
    moved(Muon([one, other], 0.1))
    assert torch.equal(other.detach(), before)


def test_step_calls_the_closure_and_returns_its_loss() -> None:
    (weight,) = weights((8, 8))
    weight.grad = None
    before = weight.detach().clone()

    def closure() -> float:
        loss = weight.square().sum()
        (weight.grad,) = torch.autograd.grad(loss, [weight])
        return float(loss.detach())

    assert Muon([weight], 0.1).step(closure) == pytest.approx(float(before.square().sum()))
    assert not torch.equal(weight.detach(), before)
