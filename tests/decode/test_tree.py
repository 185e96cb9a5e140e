"""The tree of a search records every candidate and whether it was kept."""

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.table import BEGIN, END, Table, scored
from tests.decode.test_beam import PLAIN, STOPPINGS, run, seeds

from regard.decode import LengthLimits, SamplingOptions, SearchOptions, SearchTree, SentenceOptions, explore


def trees_of(table: Table, options: SearchOptions, sentences: int) -> list[SearchTree]:
    """Return the trees of a few sentences, and check that the hypotheses are those of a search without trees."""
    requests = [SentenceOptions(seed=1)] * sentences
    found = explore(table, table.start(range(sentences), options.rows), requests, options)
    assert [hypotheses for hypotheses, _ in found] == run(table, options, requests)
    return [tree for _, tree in found]


def tokens_of(tree: SearchTree, number: int | None) -> tuple[int, ...]:
    """Return the tokens that lead to a node."""
    if number is None:
        return ()
    node = tree.nodes[number]
    return (*tokens_of(tree, node.parent), node.token)


@given(seeds, st.integers(1, 4), st.sampled_from(STOPPINGS), st.integers(1, 5))
@settings(max_examples=30)
def test_every_node_has_the_log_probability_of_its_token_and_the_score_of_its_tokens(
    seed: int, beam: int, stopping: Literal["exact", "full"], sentences: int
) -> None:
    table, options = Table(5, seed), replace(PLAIN, beam=beam, nbest=beam, stopping=stopping)
    for sentence, tree in enumerate(trees_of(table, options, sentences)):
        for number, node in enumerate(tree.nodes):
            tokens = tokens_of(tree, number)
            assert node.position == len(tokens) - 1
            logprob = float(table.logprobs((seed, sentence, BEGIN, *tokens[:-1]))[tokens[-1]])
            assert node.logprob == pytest.approx(logprob)
            if node.token == END:
                assert node.score == pytest.approx(scored(table, sentence, tokens[:-1], SentenceOptions(), options))


@given(seeds, st.integers(2, 4))
@settings(max_examples=30)
def test_the_fate_of_every_node_agrees_with_the_search(seed: int, beam: int) -> None:
    table, options = Table(5, seed), replace(PLAIN, beam=beam, nbest=beam)
    (tree,) = trees_of(table, options, 1)
    parents = {node.parent for node in tree.nodes}
    ended = {tokens_of(tree, i)[:-1] for i, node in enumerate(tree.nodes) if node.fate == "ended"}
    assert {hypothesis.tokens for hypothesis in run(table, options, [SentenceOptions()])[0]} <= ended
    for number, node in enumerate(tree.nodes):
        assert (number in parents) == (node.fate == "kept")
        assert node.rank < beam or node.fate != "ended"
    for position in {node.position for node in tree.nodes}:
        step = [node for node in tree.nodes if node.position == position]
        assert sum(node.fate in ("kept", "stopped") for node in step) <= beam
        assert [node.rank for node in step] == sorted(node.rank for node in step)


def test_sampling_and_groups_give_trees_too() -> None:
    table = Table(5, 3)
    (sampled,) = trees_of(table, replace(PLAIN, nbest=3, sampling=SamplingOptions()), 1)
    assert {node.fate for node in sampled.nodes} == {"kept", "ended"}
    (grouped,) = trees_of(
        table, replace(PLAIN, beam=4, groups=2, nbest=2, diversity=1.0, limits=LengthLimits(maximum=3)), 1
    )
    assert {node.group for node in grouped.nodes} == {0, 1}
