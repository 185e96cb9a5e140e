import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from regard.nn import cross_entropy
from regard.nn.cross_entropy import IGNORED, fused_cross_entropy, smoothed_cross_entropy


def random_logits(tokens: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(tokens)
    return torch.randn(tokens, vocabulary, dtype=torch.float64) * 5, torch.randint(-1, vocabulary, (tokens,))


def gradient(loss: Tensor, of: Tensor) -> Tensor:
    return torch.autograd.grad(loss, of)[0]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@given(tokens=st.integers(1, 40), vocabulary=st.integers(1, 30))
@settings(max_examples=20)
def test_loss_and_gradient_equal_those_of_torch(smoothing: float, tokens: int, vocabulary: int) -> None:
    logits, labels = random_logits(tokens, vocabulary)
    mine, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss = smoothed_cross_entropy(mine, labels, smoothing)
    expected = functional.cross_entropy(
        theirs, labels, ignore_index=IGNORED, label_smoothing=smoothing, reduction="sum"
    )
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient(3 * loss, mine), gradient(3 * expected, theirs))


def test_many_chunks_give_the_gradient_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = random_logits(50, 7)
    logits.requires_grad_()
    whole = gradient(smoothed_cross_entropy(logits, labels, 0.1), logits)
    monkeypatch.setattr(cross_entropy, "CPU_CHUNK", 20)
    torch.testing.assert_close(gradient(smoothed_cross_entropy(logits, labels, 0.1), logits), whole)


def test_the_gradient_agrees_with_finite_differences() -> None:
    logits, labels = random_logits(5, 6)
    assert torch.autograd.gradcheck(lambda z: smoothed_cross_entropy(z, labels, 0.2), logits.requires_grad_())


def test_half_precision_logits_give_a_float32_loss_and_a_half_precision_gradient() -> None:
    logits, labels = random_logits(9, 11)
    half = logits.bfloat16().requires_grad_()
    loss = smoothed_cross_entropy(half, labels, 0.1)
    assert loss.dtype == torch.float32
    assert gradient(loss, half).dtype == torch.bfloat16
    torch.testing.assert_close(
        loss.double(), smoothed_cross_entropy(half.detach().double(), labels, 0.1), rtol=1e-5, atol=1e-4
    )


def test_the_loss_of_no_tokens_is_zero() -> None:
    logits = torch.zeros(0, 5, requires_grad=True)
    loss = smoothed_cross_entropy(logits, torch.zeros(0, dtype=torch.int64), 0.1)
    assert gradient(loss, logits).shape == (0, 5)
    assert float(loss.detach()) == 0


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("chunk", [1, 30, 2**20])
def test_projecting_in_chunks_gives_the_loss_and_gradients_of_projecting_at_once(
    bias: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_entropy, "CPU_CHUNK", chunk)
    torch.manual_seed(0)
    labels = torch.tensor([3, IGNORED, 0, 9, 4])
    parts = [torch.randn(5, 4).double(), torch.randn(10, 4).double(), torch.randn(10).double()]
    mine = [part.clone().requires_grad_() for part in parts]
    theirs = [part.clone().requires_grad_() for part in parts]
    loss = fused_cross_entropy(mine[0], mine[1], mine[2] if bias else None, labels, 0.1)
    expected = smoothed_cross_entropy(functional.linear(theirs[0], theirs[1], theirs[2] if bias else None), labels, 0.1)
    torch.testing.assert_close(loss, expected)
    torch.autograd.backward([loss * 0.5, expected * 0.5])
    for ours, reference in zip(mine[: 2 + bias], theirs[: 2 + bias], strict=True):
        torch.testing.assert_close(ours.grad, reference.grad)


def test_under_autocast_the_loss_and_the_gradients_are_float32() -> None:
    torch.manual_seed(0)
    states, weight = torch.randn(6, 8, requires_grad=True), torch.randn(11, 8, requires_grad=True)
    labels = torch.randint(11, (6,))
    with torch.autocast("cpu", torch.bfloat16):
        loss = fused_cross_entropy(states, weight, None, labels, 0.1)
    assert loss.dtype == torch.float32
    exact = smoothed_cross_entropy(states.double() @ weight.double().t(), labels, 0.1)
    torch.testing.assert_close(loss.double(), exact, rtol=0.02, atol=0.02)
    torch.autograd.backward(loss)
    assert states.grad is not None
    assert weight.grad is not None
    assert states.grad.dtype == weight.grad.dtype == torch.float32


def test_without_gradients_no_gradient_is_computed() -> None:
    states, weight = torch.randn(3, 4), torch.randn(5, 4)
    assert not fused_cross_entropy(states, weight, None, torch.tensor([1, 2, 3])).requires_grad
