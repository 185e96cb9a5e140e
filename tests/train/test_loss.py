"""The loss: one number for a batch, however it is cut, and R-Drop as its paper writes it."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from regard.models.outline import Outline
from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import Ragged
from regard.train import loss as losses
from regard.train.loss import Learner, agreeing_loss, judge

VOCABULARY = 23


@pytest.fixture
def model() -> Seq2Seq:
    torch.manual_seed(0)
    outline = Outline(width=16, inner=32, heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0)
    return outline.seq2seq(VOCABULARY, VOCABULARY).double()


def batch(*lengths: int) -> tuple[Ragged, Ragged, Tensor]:
    dice = torch.Generator().manual_seed(1)
    side = [torch.randint(0, VOCABULARY, (n,), generator=dice) for n in lengths]
    return Ragged.from_list(side), Ragged.from_list(side), torch.randint(0, VOCABULARY, (sum(lengths),), generator=dice)


def test_the_loss_is_torchs_summed_over_tokens(model: Seq2Seq) -> None:
    source, target, labels = batch(5, 2, 7)
    expected = functional.cross_entropy(model(source, target), labels, label_smoothing=0.1, reduction="sum")
    assert_close(Learner(model, 0.1)(source, target, labels), expected)


def test_r_drop_without_dropout_is_the_plain_loss(model: Seq2Seq) -> None:
    inputs = batch(5, 2)
    assert_close(Learner(model, 0.1, rdrop=5.0)(*inputs), Learner(model, 0.1)(*inputs))


def test_r_drop_adds_the_symmetric_divergence_of_its_two_passes(
    model: Seq2Seq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "CHUNK", 4 * VOCABULARY)  # several chunks
    labels = torch.arange(11)
    one, other = (torch.randn(11, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(n)) for n in (1, 2))
    p, q = (functional.log_softmax(model.output(each), -1) for each in (one, other))
    entropy = functional.nll_loss(p, labels, reduction="sum") + functional.nll_loss(q, labels, reduction="sum")
    apart = functional.kl_div(q, p, reduction="sum", log_target=True)
    apart += functional.kl_div(p, q, reduction="sum", log_target=True)
    # Liang et al. 2021, eq. 4: both entropies, and α times half of both divergences; halved, as of one pass.
    assert_close(agreeing_loss(model.output, one, other, labels, 0.0, 3.0), (entropy + 3.0 * apart / 2) / 2)


def test_the_gradient_of_r_drop_reaches_every_weight(model: Seq2Seq) -> None:
    model.encoder.embedding.drop.p = 0.3
    Learner(model.train(), 0.1, rdrop=5.0)(*batch(5, 2)).backward()
    assert [name for name, each in model.named_parameters() if each.grad is None] == []


def test_a_judgement_counts_nats_and_right_tokens(model: Seq2Seq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "CHUNK", 4 * VOCABULARY)
    source, target, labels = batch(5, 2, 7)
    scores = model(source, target)
    labels[:6] = scores.argmax(-1)[:6]
    found = judge(model, source, target, labels)
    assert_close(found.loss, functional.cross_entropy(scores, labels, reduction="sum"))
    assert int(found.correct) == int((scores.argmax(-1) == labels).sum())
