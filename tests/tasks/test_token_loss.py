"""Losses of models that predict tokens, compared with torch and with the paper of R-Drop."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.testing import assert_close

from regard.models.build import build
from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import Ragged
from regard.recipe import Transformer, parse
from regard.tasks import token_loss as losses
from regard.tasks.token_loss import rdrop_loss, token_sums
from regard.tasks.translation import TranslationBatch, TranslationTask

VOCABULARY = 23


@pytest.fixture
def model() -> Seq2Seq:
    torch.manual_seed(0)
    settings = Transformer(width=16, inner=32, heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0)
    return build(settings, VOCABULARY, VOCABULARY).double()


def task(smoothing: float, rdrop: float = 0.0) -> TranslationTask:
    settings = [f"train.smoothing={smoothing}", f"train.rdrop={rdrop}"]
    return TranslationTask(parse('[data]\ntrain = [{ to = "de" }]', settings))


def batch(*lengths: int) -> TranslationBatch:
    generator = torch.Generator().manual_seed(1)
    side = [torch.randint(0, VOCABULARY, (n,), generator=generator) for n in lengths]
    labels = torch.randint(0, VOCABULARY, (sum(lengths),), generator=generator)
    return TranslationBatch(Ragged.from_list(side), Ragged.from_list(side), labels, torch.arange(len(lengths)))


def test_the_loss_equals_that_of_torch_summed_over_tokens(model: Seq2Seq) -> None:
    pairs = batch(5, 2, 7)
    logits = model(pairs.source, pairs.target)
    expected = functional.cross_entropy(logits, pairs.labels_N, label_smoothing=0.1, reduction="sum")
    assert_close(task(0.1).loss(model, pairs), expected)


def test_r_drop_without_dropout_is_the_plain_loss(model: Seq2Seq) -> None:
    pairs = batch(5, 2)
    assert_close(task(0.1, rdrop=5.0).loss(model, pairs), task(0.1).loss(model, pairs))


def test_r_drop_adds_the_symmetric_divergence_of_its_two_passes(
    model: Seq2Seq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "CHUNK", 4 * VOCABULARY)  # several chunks
    labels = torch.arange(11)
    one, other = (torch.randn(11, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(n)) for n in (1, 2))
    p, q = (functional.log_softmax(model.output(states), -1) for states in (one, other))
    entropy = functional.nll_loss(p, labels, reduction="sum") + functional.nll_loss(q, labels, reduction="sum")
    apart = functional.kl_div(q, p, reduction="sum", log_target=True)
    apart += functional.kl_div(p, q, reduction="sum", log_target=True)
    # Liang et al. 2021, eq. 4: both entropies, and α times half of both divergences; halved, as of one pass.
    states = torch.cat([one, other])
    assert_close(rdrop_loss(model.output, states, labels, 0.0, 3.0), (entropy + 3.0 * apart / 2) / 2)


def test_the_gradient_of_r_drop_reaches_every_weight(model: Seq2Seq) -> None:
    model.get_submodule("encoder.embedding").drop = nn.Dropout(0.3)
    torch.autograd.backward(task(0.1, rdrop=5.0).loss(model.train(), batch(5, 2)))
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []


def test_token_sums_are_cross_entropy_and_correct_tokens(model: Seq2Seq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "CHUNK", 4 * VOCABULARY)
    pairs = batch(5, 2, 7)
    labels, logits = pairs.labels_N, model(pairs.source, pairs.target)
    labels[:6] = logits.argmax(-1)[:6]
    loss, correct = token_sums(model.output, model.states(pairs.source, pairs.target), labels)
    assert_close(loss, functional.cross_entropy(logits, labels, reduction="sum"))
    assert int(correct) == int((logits.argmax(-1) == labels).sum())
