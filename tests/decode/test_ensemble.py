"""Ensembles of steppers, reranking and minimum Bayes risk."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.decode.table import BEGIN, Table, assert_same_hypotheses, forced
from tests.decode.test_beam import PLAIN, run, seeds
from tests.decode.test_stream import StepperWithoutJoin

from regard.decode import JoinableStepper, SentenceOptions, ensemble, minimum_bayes_risk, rerank, search, stream


@given(seeds, st.integers(1, 4))
def test_an_ensemble_of_a_stepper_with_itself_is_that_stepper(seed: int, beam: int) -> None:
    table, options = Table(5, seed), replace(PLAIN, beam=beam, nbest=beam)
    pair = ensemble([table, table])
    found = search(pair, (table.start([0, 1], beam), table.start([0, 1], beam)), [SentenceOptions()] * 2, options)
    assert_same_hypotheses(found, run(table, options, [SentenceOptions()] * 2))


def test_an_ensemble_averages_probabilities_or_log_probabilities() -> None:
    one, other, history = Table(5, 1), Table(5, 2), (0, BEGIN)
    first, second = (table.logprobs((table.seed, *history)).exp() for table in (one, other))
    state = one.start([0], 1), other.start([0], 1)
    arithmetic, _ = ensemble([one, other], [3, 1]).step(torch.tensor([BEGIN]), state)
    torch.testing.assert_close(arithmetic[0].exp(), 0.75 * first + 0.25 * second)
    geometric, _ = ensemble([one, other], [3, 1], "log-probabilities").step(torch.tensor([BEGIN]), state)
    product = first**0.75 * second**0.25
    torch.testing.assert_close(geometric[0].exp(), product / product.sum())


@given(seeds)
def test_the_score_of_an_ensemble_is_that_of_the_mean_probabilities(seed: int) -> None:
    members = Table(5, seed), Table(5, seed + 1)
    options = replace(PLAIN, length_penalty=0.0)
    (found,) = search(
        ensemble(members), tuple(member.start([0], 3) for member in members), [SentenceOptions()], options
    )
    logprobs = zip(*(forced(member, 0, found[0].tokens) for member in members), strict=True)
    assert found[0].score == pytest.approx(sum(math.log(sum(map(math.exp, pair)) / 2) for pair in logprobs))


def test_an_ensemble_is_joinable_if_all_its_members_are() -> None:
    one, other = Table(5, 1), Table(5, 2)
    pair = ensemble([one, other])
    assert isinstance(pair, JoinableStepper)
    assert not isinstance(ensemble([one, StepperWithoutJoin(other)]), JoinableStepper)
    arrivals = (((one.start([i], 3), other.start([i], 3)), [SentenceOptions()]) for i in range(5))
    found = dict(stream(pair, arrivals, PLAIN, room=3))
    sentences = range(5)
    together = search(pair, (one.start(sentences, 3), other.start(sentences, 3)), [SentenceOptions()] * 5, PLAIN)
    assert [found[number] for number in range(5)] == together


def test_members_with_different_vocabularies_are_refused() -> None:
    members = Table(5), Table(6)
    with pytest.raises(ValueError, match=r"share one vocabulary, but theirs have \[5, 6\] tokens"):
        search(ensemble(members), tuple(member.start([0], 3) for member in members), [SentenceOptions()], PLAIN)


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, -1.0]])
def test_missing_zero_and_negative_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="as many positive weights"):
        ensemble([Table(), Table()], weights)


def test_reranking_sorts_by_another_score_and_keeps_equals_in_order() -> None:
    (found,) = run(Table(6, 4), replace(PLAIN, beam=6, nbest=6), [SentenceOptions()])
    ranked = rerank(found, lambda hypothesis: -float(len(hypothesis.tokens)))
    assert [hypothesis.score for hypothesis in ranked] == sorted(
        (-float(len(hypothesis.tokens)) for hypothesis in found), reverse=True
    )
    shortest = [hypothesis.tokens for hypothesis in found if -len(hypothesis.tokens) == ranked[0].score]
    assert [hypothesis.tokens for hypothesis in ranked[: len(shortest)]] == shortest
    assert {hypothesis.tokens for hypothesis in ranked} == {hypothesis.tokens for hypothesis in found}


def overlap(one: str, other: str) -> float:
    return len({*one.split()} & {*other.split()}) / max(len({*one.split()} | {*other.split()}), 1)


@given(st.lists(st.text(st.sampled_from("ab "), max_size=5), max_size=6))
def test_candidates_are_ranked_by_their_mean_utility(candidates: list[str]) -> None:
    ranked = minimum_bayes_risk(candidates, overlap)
    means = {one: sum(overlap(one, other) for other in candidates) / len(candidates) for one in candidates}
    assert dict(ranked) == pytest.approx(means)
    assert [value for _, value in ranked] == pytest.approx(sorted(means.values(), reverse=True))


def test_candidates_can_have_other_references_and_the_utility_of_each_pair_is_computed_once() -> None:
    compared: list[tuple[str, str]] = []

    def utility(one: str, other: str) -> float:
        compared.append((one, other))
        return overlap(one, other)

    ranked = minimum_bayes_risk(["a b", "a", "a b"], utility, references=["a", "a", "b"])
    assert [candidate for candidate, _ in ranked] == ["a", "a b"]
    assert [value for _, value in ranked] == pytest.approx([2 / 3, 1 / 2])
    assert len(compared) == len(set(compared)) == 4
