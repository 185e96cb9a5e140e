import pytest
import torch

from regard.nn.dropout import Dropout, dropout


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(300, 1001), (7, 11, 13, 99)])
def test_the_share_asked_for_is_dropped_and_the_others_keep_the_mean(share: float, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    out = dropout(torch.ones(shape, dtype=torch.float64), share)
    gone = out == 0
    assert float(gone.double().mean()) == pytest.approx(share, abs=0.01)
    torch.testing.assert_close(out[~gone], torch.full_like(out[~gone], 1 / (1 - share)), rtol=2e-4, atol=0)
    assert float(out.mean()) == pytest.approx(1, abs=0.03)


def test_every_place_is_as_likely_to_be_dropped_as_any_other() -> None:
    """Four numbers share one throw of the dice; each sixteen bits of it must be fair."""
    torch.manual_seed(0)
    gone = (dropout(torch.ones(40_000, 4), 0.3) == 0).double()
    assert bool(((gone.mean(0) - 0.3).abs() < 0.01).all())
    together = torch.corrcoef(gone.T) - torch.eye(4, dtype=torch.float64)
    assert float(together.abs().max()) < 0.03


def test_what_is_dropped_has_no_gradient_and_the_rest_its_scale() -> None:
    x = torch.ones(1000, requires_grad=True)
    out = dropout(x, 0.25)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(gradient, out.detach())


def test_the_seed_decides() -> None:
    torch.manual_seed(5)
    first, second = dropout(torch.ones(100), 0.5), dropout(torch.ones(100), 0.5)
    torch.manual_seed(5)
    assert torch.equal(dropout(torch.ones(100), 0.5), first)
    assert not torch.equal(first, second)


def test_it_falls_in_training_only_and_zero_and_one_are_exact() -> None:
    x = torch.randn(10)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert torch.equal(dropout(x, 1.0), torch.zeros(10))
    assert dropout(torch.zeros(0, 4), 0.5).shape == (0, 4)
    assert dropout(x.bfloat16(), 0.5).dtype == torch.bfloat16
