"""The tree of a search tells what became of every candidate."""

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.table import BEGIN, END, Table, scored
from tests.decode.test_beam import PLAIN, STOPPINGS, run, seeds

from regard.decode import LengthLimits, SamplingOptions, SearchOptions, SearchTree, SentenceOptions, explore


def grown(table: Table, options: SearchOptions, sentences: int) -> list[SearchTree]:
    """The trees of a few sentences, after a look at whether the search found what it always finds."""
    requests = [SentenceOptions(seed=1)] * sentences
    found = explore(table, table.start(range(sentences), options.rows), requests, options)
    assert [hypotheses for hypotheses, _ in found] == run(table, options, requests)
    return [tree for _, tree in found]


def spelled(tree: SearchTree, number: int | None) -> tuple[int, ...]:
    """The tokens that lead to a node."""
    if number is None:
        return ()
    node = tree.nodes[number]
    return (*spelled(tree, node.parent), node.token)


@given(seeds, st.integers(1, 4), st.sampled_from(STOPPINGS), st.integers(1, 5))
@settings(max_examples=30)
def test_every_node_is_worth_what_its_tokens_say(
    seed: int, beam: int, stopping: Literal["exact", "full"], sentences: int
) -> None:
    table, options = Table(5, seed), replace(PLAIN, beam=beam, nbest=beam, stopping=stopping)
    for sentence, tree in enumerate(grown(table, options, sentences)):
        for number, node in enumerate(tree.nodes):
            line = spelled(tree, number)
            assert node.position == len(line) - 1
            said = float(table.logprobs((seed, sentence, BEGIN, *line[:-1]))[line[-1]])
            assert node.logprob == pytest.approx(said)
            if node.token == END:
                assert node.score == pytest.approx(scored(table, sentence, line[:-1], SentenceOptions(), options))


@given(seeds, st.integers(2, 4))
@settings(max_examples=30)
def test_fates_are_as_the_search_decides(seed: int, beam: int) -> None:
    table, options = Table(5, seed), replace(PLAIN, beam=beam, nbest=beam)
    (tree,) = grown(table, options, 1)
    parents = {node.parent for node in tree.nodes}
    ended = {spelled(tree, i)[:-1] for i, node in enumerate(tree.nodes) if node.fate == "ended"}
    assert {each.tokens for each in run(table, options, [SentenceOptions()])[0]} <= ended
    for number, node in enumerate(tree.nodes):
        assert (number in parents) == (node.fate == "kept")
        assert node.rank < beam or node.fate != "ended"
    for place in {node.position for node in tree.nodes}:
        step = [node for node in tree.nodes if node.position == place]
        assert sum(node.fate in ("kept", "stopped") for node in step) <= beam
        assert [node.rank for node in step] == sorted(node.rank for node in step)


def test_trees_of_samples_and_groups_grow_too() -> None:
    table = Table(5, 3)
    (sampled,) = grown(table, replace(PLAIN, nbest=3, sampling=SamplingOptions()), 1)
    assert {node.fate for node in sampled.nodes} == {"kept", "ended"}
    (grouped,) = grown(
        table, replace(PLAIN, beam=4, groups=2, nbest=2, diversity=1.0, limits=LengthLimits(maximum=3)), 1
    )
    assert {node.group for node in grouped.nodes} == {0, 1}
