import pytest
import torch

from regard.nn.dropout import Dropout, dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(300, 1001), (7, 11, 13, 99)])
def test_values_are_dropped_with_probability_p_and_the_others_keep_the_mean(p: float, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    out = dropout(torch.ones(shape, dtype=torch.float64), p)
    dropped = out == 0
    assert float(dropped.double().mean()) == pytest.approx(p, abs=0.01)
    torch.testing.assert_close(out[~dropped], torch.full_like(out[~dropped], 1 / (1 - p)), rtol=2e-4, atol=0)
    assert float(out.mean()) == pytest.approx(1, abs=0.03)


def test_every_index_is_dropped_with_equal_probability() -> None:
    """Four values share one 64-bit draw; each sixteen bits of it must be uniform and independent."""
    torch.manual_seed(0)
    dropped = (dropout(torch.ones(40_000, 4), 0.3) == 0).double()
    assert bool(((dropped.mean(0) - 0.3).abs() < 0.01).all())
    correlation = torch.corrcoef(dropped.T) - torch.eye(4, dtype=torch.float64)
    assert float(correlation.abs().max()) < 0.03


def test_dropped_values_have_no_gradient_and_the_others_their_scale() -> None:
    x = torch.ones(1000, requires_grad=True)
    out = dropout(x, 0.25)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(gradient, out.detach())


def test_the_seed_determines_what_is_dropped() -> None:
    torch.manual_seed(5)
    first, second = dropout(torch.ones(100), 0.5), dropout(torch.ones(100), 0.5)
    torch.manual_seed(5)
    assert torch.equal(dropout(torch.ones(100), 0.5), first)
    assert not torch.equal(first, second)


def test_dropout_applies_in_training_only_and_is_exact_for_zero_and_one() -> None:
    x = torch.randn(10)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert torch.equal(dropout(x, 1.0), torch.zeros(10))
    assert dropout(torch.zeros(0, 4), 0.5).shape == (0, 4)
    assert dropout(x.bfloat16(), 0.5).dtype == torch.bfloat16
