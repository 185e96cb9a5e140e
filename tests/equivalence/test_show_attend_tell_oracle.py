"""Soft attention to regions equals plain loops in numpy, written from the equations of Xu et al. 2015.

REINFORCE is compared with the exact gradient, from the enumeration of all sequences of regions.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Literal

import numpy as np
import pytest
import torch
from tests.equivalence.test_recurrent_oracle import Array, cell_of, randomised, sigmoid, softmax, vectors
from torch import Tensor

from regard.models.build import build_captioner
from regard.models.memory import Memory
from regard.models.seq2seq import Seq2Seq
from regard.models.show_attend_tell import AttendedTokens, RegionDecoder, RewardBaseline
from regard.nn.ragged import Layout, Ragged
from regard.nn.tap import recording, replacing
from regard.recipe import Captioning, ImageSettings, ShowAttendTell
from regard.tasks.captioning import attentive_loss, reinforce_terms

WIDTH, REGIONS = 5, 4
TARGETS = [[1, 8, 2, 7], [1], [1, 4, 4]]
LABELS = torch.tensor([8, 2, 7, 2, 2, 4, 4, 2])


def captioner(attention: Literal["soft", "hard"], cell: Literal["gru", "lstm"] = "lstm") -> Seq2Seq:
    """Return a small model in float64, with random weights."""
    settings = ShowAttendTell(
        width=WIDTH, embedding=4, annotation=6, patch=4, cell=cell, attention=attention, dropout=0.0, stem_layers=1
    )
    model = build_captioner(settings, ImageSettings(size=8), 10)
    randomised(model)
    return model


def encoded(model: Seq2Seq, pictures: int = 3) -> Memory:
    """Return the memory of random pictures."""
    draw = torch.Generator().manual_seed(3)
    return model.encode(torch.randint(0, 256, (pictures, 3, 8, 8), generator=draw, dtype=torch.uint8))


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_soft_attention_with_its_gate_equals_the_loop(cell: Literal["gru", "lstm"]) -> None:
    model = captioner("soft", cell)
    w, memory, c = {name: x.detach().numpy() for name, x in model.state_dict().items()}, encoded(model), "decoder.cell"
    with recording(model, f"{c}.cross.weights") as seen:
        states = model.decoder(Ragged.from_list(TARGETS), memory)
    logits, alphas = model.output(states).detach().numpy(), seen[f"{c}.cross.weights"][0][:, 0].detach().numpy()
    expected = []
    for number, target in enumerate(TARGETS):
        regions = memory.states_ND.detach().numpy()[number * REGIONS : (number + 1) * REGIONS]
        mean = regions.mean(0)
        state = [np.tanh(w["decoder.bridge.weight"] @ mean + w["decoder.bridge.bias"])]
        if cell == "lstm":
            state.append(np.tanh(w["decoder.cell_bridge.weight"] @ mean + w["decoder.cell_bridge.bias"]))
        for step, y in enumerate(vectors(w, "decoder", target)):
            q, k = w[f"{c}.cross.score.from_query.weight"], w[f"{c}.cross.score.from_key.weight"]
            v = w[f"{c}.cross.score.outer.weight"][0]
            alpha = softmax(np.array([v @ np.tanh(q @ state[0] + k @ a) for a in regions]))
            beta = sigmoid(w[f"{c}.gate.weight"] @ state[0] + w[f"{c}.gate.bias"])
            z = beta * (alpha @ regions)
            state = cell_of(w, f"{c}.recurrence.cells", "l0")(np.concatenate([y, z]), state)
            t = w["decoder.readout.mix.weight"] @ np.concatenate([state[0], y, z]) + w["decoder.readout.mix.bias"]
            expected.append(w["output.weight"] @ t)
            np.testing.assert_allclose(alphas[number, step], alpha)
    np.testing.assert_allclose(logits, expected)


def test_the_doubly_stochastic_term_is_the_squared_distance_of_summed_weights_from_one() -> None:
    model, captions = captioner("soft"), Ragged.from_list(TARGETS)
    assert isinstance(model.decoder, RegionDecoder)
    attended = model.decoder.attended(captions, encoded(model))
    plain, spread = (
        attentive_loss(model, captions, attended, LABELS, Captioning(spread=weight)).item() for weight in (0.0, 0.7)
    )
    tables = np.split(attended.probabilities_NL.detach().numpy(), np.cumsum([len(target) for target in TARGETS])[:-1])
    assert spread - plain == pytest.approx(0.7 * sum(((1 - table.sum(0)) ** 2).sum() for table in tables))


def test_hard_attention_attends_to_one_region_which_is_the_most_probable_one_after_training() -> None:
    model, memory = captioner("hard"), encoded(captioner("hard"))
    assert isinstance(model.decoder, RegionDecoder)
    model.decoder.expected = 0.5
    trained = model.eval().decoder
    assert isinstance(trained, RegionDecoder)
    after = trained.attended(Ragged.from_list(TARGETS), memory)
    assert after.sampled_B is None
    assert after.weights_NL.argmax(-1).tolist() == after.probabilities_NL.argmax(-1).tolist()
    assert sorted(after.weights_NL.unique().tolist()) == [0.0, 1.0]
    training, captions = model.train().decoder, Ragged.from_list([[1, 4]] * 300)
    assert isinstance(training, RegionDecoder)
    torch.manual_seed(0)
    attended = training.attended(captions, memory.take(torch.zeros(300, dtype=torch.int64)))
    assert attended.sampled_B is not None
    sampled_N = attended.sampled_B[captions.sequence_N.long()]
    assert 0.4 < attended.sampled_B.double().mean() < 0.6
    one_hot = (attended.weights_NL == 1).sum(-1) == 1
    assert torch.equal(one_hot, sampled_N)
    torch.testing.assert_close(attended.weights_NL[~sampled_N], attended.probabilities_NL[~sampled_N])
    frequencies = attended.weights_NL[sampled_N & (captions.position_N == 0)].mean(0)
    torch.testing.assert_close(frequencies, attended.probabilities_NL[0].detach(), atol=0.1, rtol=0)


def samples(model: Seq2Seq, memory: Memory, target: Sequence[int]) -> Iterator[tuple[AttendedTokens, Ragged]]:
    """Yield what teacher forcing returns for every sequence of regions, as if each had been sampled."""
    captions = Ragged.from_list([list(target)])
    decoder = model.decoder
    assert isinstance(decoder, RegionDecoder)
    for places in product(range(REGIONS), repeat=len(target)):
        steps = iter(places)

        def choose(_: str, weights: Tensor, steps: Iterator[int] = steps) -> Tensor:
            return torch.zeros_like(weights).index_fill(-1, torch.tensor([next(steps)]), 1.0)

        with replacing(model, "decoder.cell.cross.weights", choose):
            attended = decoder.attended(captions, memory)
        yield attended._replace(sampled_B=torch.tensor([True])), captions


def test_the_expected_gradient_of_reinforce_is_that_of_the_expected_loss() -> None:
    model = captioner("hard").eval()
    memory = encoded(model, 1)
    memory = Memory(memory.states_ND.detach(), memory.layout)
    weights = [weight for weight in model.decoder.parameters() if weight.requires_grad]
    labels, options = LABELS[:3], Captioning(reinforce=1.0, entropy=0.0)
    exact, estimated, total = torch.zeros(()).double(), torch.zeros(()).double(), 0.0
    for attended, captions in samples(model, memory, TARGETS[0][:3]):
        nats = -model.output(attended.states_ND).log_softmax(-1).gather(-1, labels[:, None]).sum()
        logp_s = (attended.weights_NL * attended.probabilities_NL.log()).sum()
        exact = exact + logp_s.exp() * nats  # its gradient sees the probability of the sample
        advantage = (-nats.detach() + 4.2)[None]  # any baseline
        surrogate = nats + reinforce_terms(attended, captions, advantage, options)
        estimated = estimated + logp_s.exp().detach() * surrogate  # an expectation over samples
        total += logp_s.exp().item()
    assert total == pytest.approx(1)
    for one, other in zip(
        torch.autograd.grad(exact, weights, retain_graph=True, allow_unused=True),
        torch.autograd.grad(estimated, weights, allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_the_entropy_term_is_the_weighted_entropy_of_sampled_captions() -> None:
    p = torch.tensor([[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]]).double()
    attended = AttendedTokens(p, p, torch.eye(2).double()[[0, 1, 0]], torch.tensor([True, False]))
    captions = Ragged(torch.tensor([1, 3, 1]), Layout.from_lengths([2, 1]))
    term = reinforce_terms(attended, captions, torch.zeros(2).double(), Captioning(entropy=2.0))
    assert term.item() == pytest.approx(-2 * (np.log(2) - 0.25 * np.log(0.25) - 0.75 * np.log(0.75)))


def test_the_baseline_is_a_moving_average_without_bias_at_its_start() -> None:
    baseline = RewardBaseline()
    assert baseline.value.item() == 0
    baseline.update(torch.tensor([-4.0, -6.0]))
    assert baseline.value.item() == pytest.approx(-5)
    baseline.update(torch.tensor([-15.0]))
    assert baseline.value.item() == pytest.approx((0.09 * -5 + 0.1 * -15) / 0.19)


def test_training_with_hard_attention_updates_the_baseline() -> None:
    model, captions = captioner("hard").train(), Ragged.from_list(TARGETS)
    assert isinstance(model.decoder, RegionDecoder)
    model.decoder.baseline = RewardBaseline()
    attended = model.decoder.attended(captions, encoded(model))
    attentive_loss(model, captions, attended, LABELS, Captioning()).backward()
    nats = -model.output(attended.states_ND).log_softmax(-1).gather(-1, LABELS[:, None])[:, 0]
    sums: Array = np.array([part.sum().item() for part in torch.split(nats, [4, 1, 3])])
    assert model.decoder.baseline.value.item() == pytest.approx(-sums.mean())
