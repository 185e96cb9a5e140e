"""Several steppers as one, and choosing among what was found."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.decode.table import BEGIN, Table, forced
from tests.decode.test_beam import PLAIN, run, seeds
from tests.decode.test_stream import Walker

from regard.decode import JoinableStepper, SentenceOptions, ensemble, minimum_bayes_risk, rerank, search, stream


@given(seeds, st.integers(1, 4))
def test_a_stepper_with_itself_is_itself(seed: int, beam: int) -> None:
    table, options = Table(5, seed), replace(PLAIN, beam=beam, nbest=beam)
    pair = ensemble([table, table])
    found = search(pair, (table.start([0, 1], beam), table.start([0, 1], beam)), [SentenceOptions()] * 2, options)
    for together, alone in zip(found, run(table, options, [SentenceOptions()] * 2), strict=True):
        assert [each.tokens for each in together] == [each.tokens for each in alone]
        assert [each.score for each in together] == pytest.approx([each.score for each in alone])


def test_a_mean_of_probabilities_is_one_and_so_is_one_of_log_probabilities() -> None:
    one, other, history = Table(5, 1), Table(5, 2), (0, BEGIN)
    first, second = (table.logprobs((table.seed, *history)).exp() for table in (one, other))
    state = one.start([0], 1), other.start([0], 1)
    arithmetic, _ = ensemble([one, other], [3, 1]).step(torch.tensor([BEGIN]), state)
    torch.testing.assert_close(arithmetic[0].exp(), 0.75 * first + 0.25 * second)
    geometric, _ = ensemble([one, other], [3, 1], "log-probabilities").step(torch.tensor([BEGIN]), state)
    product = first**0.75 * second**0.25
    torch.testing.assert_close(geometric[0].exp(), product / product.sum())


@given(seeds)
def test_a_score_of_an_ensemble_is_the_mean_of_what_its_members_say(seed: int) -> None:
    members = Table(5, seed), Table(5, seed + 1)
    options = replace(PLAIN, length_penalty=0.0)
    (found,) = search(ensemble(members), tuple(each.start([0], 3) for each in members), [SentenceOptions()], options)
    said = zip(*(forced(member, 0, found[0].tokens) for member in members), strict=True)
    assert found[0].score == pytest.approx(sum(math.log(sum(map(math.exp, pair)) / 2) for pair in said))


def test_an_ensemble_joins_if_all_its_members_do() -> None:
    one, other = Table(5, 1), Table(5, 2)
    both = ensemble([one, other])
    assert isinstance(both, JoinableStepper)
    assert not isinstance(ensemble([one, Walker(other)]), JoinableStepper)
    arrivals = (((one.start([i], 3), other.start([i], 3)), [SentenceOptions()]) for i in range(5))
    found = dict(stream(both, arrivals, PLAIN, room=3))
    sentences = range(5)
    together = search(both, (one.start(sentences, 3), other.start(sentences, 3)), [SentenceOptions()] * 5, PLAIN)
    assert [found[number] for number in range(5)] == together


def test_members_that_know_other_tokens_are_refused() -> None:
    members = Table(5), Table(6)
    with pytest.raises(ValueError, match=r"share one vocabulary, but theirs have \[5, 6\] tokens"):
        search(ensemble(members), tuple(each.start([0], 3) for each in members), [SentenceOptions()], PLAIN)


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, -1.0]])
def test_weights_that_are_none_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="as many positive weights"):
        ensemble([Table(), Table()], weights)


def test_reranking_sorts_by_another_score_and_keeps_equals_in_order() -> None:
    (found,) = run(Table(6, 4), replace(PLAIN, beam=6, nbest=6), [SentenceOptions()])
    ranked = rerank(found, lambda each: -float(len(each.tokens)))
    assert [each.score for each in ranked] == sorted((-float(len(each.tokens)) for each in found), reverse=True)
    shortest = [each.tokens for each in found if -len(each.tokens) == ranked[0].score]
    assert [each.tokens for each in ranked[: len(shortest)]] == shortest
    assert {each.tokens for each in ranked} == {each.tokens for each in found}


def overlap(one: str, other: str) -> float:
    return len({*one.split()} & {*other.split()}) / max(len({*one.split()} | {*other.split()}), 1)


@given(st.lists(st.text(st.sampled_from("ab "), max_size=5), max_size=6))
def test_the_least_risky_candidate_agrees_most_with_all(candidates: list[str]) -> None:
    ranked = minimum_bayes_risk(candidates, overlap)
    means = {one: sum(overlap(one, other) for other in candidates) / len(candidates) for one in candidates}
    assert dict(ranked) == pytest.approx(means)
    assert [value for _, value in ranked] == pytest.approx(sorted(means.values(), reverse=True))


def test_candidates_can_be_held_to_other_references_and_each_pair_is_asked_about_once() -> None:
    asked: list[tuple[str, str]] = []

    def utility(one: str, other: str) -> float:
        asked.append((one, other))
        return overlap(one, other)

    ranked = minimum_bayes_risk(["a b", "a", "a b"], utility, references=["a", "a", "b"])
    assert [candidate for candidate, _ in ranked] == ["a", "a b"]
    assert [value for _, value in ranked] == pytest.approx([2 / 3, 1 / 2])
    assert len(asked) == len(set(asked)) == 4
