"""The search works with every family of models, and with an ensemble of all families."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from regard.decode import (
    Hypothesis,
    LengthLimits,
    SamplingOptions,
    SearchOptions,
    SentenceOptions,
    alternatives,
    branching,
    ensemble,
    explore,
    search,
)
from regard.models.build import build
from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import Ragged
from regard.recipe import Bahdanau, ConvS2S, Luong, Model, Sutskever, Transformer

BEGIN, END, VOCABULARY = 0, 1, 6
SETTINGS: dict[str, Model] = {
    "transformer": Transformer(width=8, inner=12, heads=2, encoder_layers=1, decoder_layers=2, position="rotary"),
    "sutskever": Sutskever(width=8, layers=1, tied="none"),
    "bahdanau": Bahdanau(width=8, embedding=6, readout_width=5, tied="none"),
    "luong": Luong(width=8, layers=1, tied="none"),
    "convs2s": ConvS2S(width=8, encoder_layers=1, decoder_layers=2, positions=40, tied="none"),
}
SOURCES = [[2, 3, 4, 5], [5], [3, 3, 2]]
PLAIN = SearchOptions(begin=BEGIN, end=END, beam=3, nbest=3, limits=LengthLimits(maximum=8))


def built(settings: Model) -> Seq2Seq:
    """Build a model with enlarged weights, because the distributions of small ones are almost uniform."""
    torch.manual_seed(3)
    model = build(settings, VOCABULARY, VOCABULARY).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2)
    return model


MODELS = {name: built(settings) for name, settings in SETTINGS.items()}
every_family = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


def forced(model: Seq2Seq, source: list[int], tokens: Sequence[int]) -> list[float]:
    """Return the log-probability of each token and of the end symbol in one teacher-forced pass."""
    with torch.no_grad():
        logprobs = model(Ragged.from_list([source]), Ragged.from_list([[BEGIN, *tokens]])).log_softmax(-1)
    return [float(logprobs[position, token]) for position, token in enumerate((*tokens, END))]


def find(model: Seq2Seq, options: SearchOptions, requested: SentenceOptions) -> list[list[Hypothesis]]:
    return search(model, model.start(Ragged.from_list(SOURCES), options.rows), [requested] * len(SOURCES), options)


SEARCHES = {
    "beam": (PLAIN, SentenceOptions()),
    "greedy": (replace(PLAIN, beam=1, nbest=1), SentenceOptions()),
    "diverse": (replace(PLAIN, beam=4, groups=2, nbest=2, diversity=0.7), SentenceOptions()),
    "samples": (replace(PLAIN, sampling=SamplingOptions(temperature=1.5)), SentenceOptions(seed=4)),
    "requests": (replace(PLAIN, no_repeat=2), SentenceOptions(prefix=(4, 2), constraints=((5, 3),), avoid=((2, 2),))),
}


@every_family
@pytest.mark.parametrize(("options", "requested"), SEARCHES.values(), ids=SEARCHES.keys())
def test_a_score_is_the_teacher_forced_log_probability(
    model: Seq2Seq, options: SearchOptions, requested: SentenceOptions
) -> None:
    for source, hypotheses in zip(SOURCES, find(model, options, requested), strict=True):
        assert hypotheses
        for hypothesis in hypotheses:
            assert hypothesis.token_logprobs == pytest.approx(forced(model, source, hypothesis.tokens), rel=1e-9)
            assert hypothesis.logprob == pytest.approx(sum(hypothesis.token_logprobs))


@every_family
def test_a_beam_as_wide_as_the_tree_equals_enumeration_of_all_sequences(model: Seq2Seq) -> None:
    others = [token for token in range(VOCABULARY) if token != END]
    sequences = [tokens for length in range(3) for tokens in itertools.product(others, repeat=length)]
    options = replace(
        PLAIN, beam=len(sequences), nbest=len(sequences), length_penalty=0.0, limits=LengthLimits(maximum=2)
    )
    for source, hypotheses in zip(SOURCES, find(model, options, SentenceOptions()), strict=True):
        totals = {tokens: sum(forced(model, source, tokens)) for tokens in sequences}
        assert {hypothesis.tokens: hypothesis.score for hypothesis in hypotheses} == pytest.approx(totals)
        assert [hypothesis.score for hypothesis in hypotheses] == pytest.approx(sorted(totals.values(), reverse=True))


@every_family
def test_alternatives_begin_with_the_most_probable_tokens_after_the_prefix(model: Seq2Seq) -> None:
    options = branching(replace(PLAIN, nbest=1), 3)
    state = model.start(Ragged.from_list(SOURCES), options.rows)
    for source, hypotheses in zip(
        SOURCES, alternatives(model, state, [SentenceOptions(prefix=(3,))] * 3, options), strict=True
    ):
        with torch.no_grad():
            logits = model(Ragged.from_list([source]), Ragged.from_list([[BEGIN, 3]]))[-1]
        assert [(*hypothesis.tokens, END)[1] for hypothesis in hypotheses] == logits.topk(3).indices.tolist()


def test_an_ensemble_of_all_families_averages_their_probabilities() -> None:
    members = list(MODELS.values())
    options = replace(PLAIN, length_penalty=0.0)
    state = tuple(member.start(Ragged.from_list(SOURCES), options.rows) for member in members)
    found = explore(ensemble(members), state, [SentenceOptions()] * len(SOURCES), options)
    for source, (hypotheses, tree) in zip(SOURCES, found, strict=True):
        assert tree.nodes
        for hypothesis in hypotheses:
            logprobs = zip(*(forced(member, source, hypothesis.tokens) for member in members), strict=True)
            means = [math.log(sum(map(math.exp, position)) / len(members)) for position in logprobs]
            assert hypothesis.score == pytest.approx(sum(means))
