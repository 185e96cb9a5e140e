import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from regard.nn import cross_entropy
from regard.nn.capacity import filled
from regard.nn.cross_entropy import IGNORED, smoothed_cross_entropy
from regard.nn.ragged import Ragged


def given_scores(tokens: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(tokens)
    return torch.randn(tokens, vocabulary, dtype=torch.float64) * 5, torch.randint(-1, vocabulary, (tokens,))


def gradient(loss: Tensor, of: Tensor) -> Tensor:
    return torch.autograd.grad(loss, of)[0]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@given(tokens=st.integers(1, 40), vocabulary=st.integers(1, 30))
@settings(max_examples=20)
def test_loss_and_gradient_are_torchs(smoothing: float, tokens: int, vocabulary: int) -> None:
    logits, labels = given_scores(tokens, vocabulary)
    mine, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss = smoothed_cross_entropy(mine, labels, smoothing)
    expected = functional.cross_entropy(
        theirs, labels, ignore_index=IGNORED, label_smoothing=smoothing, reduction="sum"
    )
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient(3 * loss, mine), gradient(3 * expected, theirs))


def test_many_chunks_give_what_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = given_scores(50, 7)
    logits.requires_grad_()
    whole = gradient(smoothed_cross_entropy(logits, labels, 0.1), logits)
    monkeypatch.setattr(cross_entropy, "CHUNK", 20)
    torch.testing.assert_close(gradient(smoothed_cross_entropy(logits, labels, 0.1), logits), whole)


def test_the_gradient_against_finite_differences() -> None:
    logits, labels = given_scores(5, 6)
    assert torch.autograd.gradcheck(lambda z: smoothed_cross_entropy(z, labels, 0.2), logits.requires_grad_())


def test_half_precision_scores_keep_a_single_precision_loss_and_a_half_precision_gradient() -> None:
    logits, labels = given_scores(9, 11)
    half = logits.bfloat16().requires_grad_()
    loss = smoothed_cross_entropy(half, labels, 0.1)
    assert loss.dtype == torch.float32
    assert gradient(loss, half).dtype == torch.bfloat16
    torch.testing.assert_close(
        loss.double(), smoothed_cross_entropy(half.detach().double(), labels, 0.1), rtol=1e-5, atol=1e-4
    )


def test_no_tokens_cost_nothing() -> None:
    logits = torch.zeros(0, 5, requires_grad=True)
    loss = smoothed_cross_entropy(logits, torch.zeros(0, dtype=torch.int64), 0.1)
    assert gradient(loss, logits).shape == (0, 5)
    assert float(loss.detach()) == 0


def test_a_filled_batch_has_the_size_asked_for_and_begins_with_what_it_was() -> None:
    batch = Ragged.from_list([[3, 4], [], [5]])
    full = filled(batch, tokens=8, sequences=6, value=9)
    assert [each.tolist() for each in full.to_list()] == [[3, 4], [], [5], [9] * 5, [], []]


@pytest.mark.parametrize(("tokens", "sequences"), [(2, 9), (9, 3)])
def test_a_batch_that_does_not_fit_is_refused(tokens: int, sequences: int) -> None:
    with pytest.raises(ValueError, match="3 tokens in 3 sequences does not leave room"):
        filled(Ragged.from_list([[3, 4], [], [5]]), tokens, sequences, 0)
