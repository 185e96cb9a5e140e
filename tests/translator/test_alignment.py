"""Weights to word links, and which attention they are read from."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.bundle import Bundle
from regard.score import Alignment, alignment_error_rate
from regard.translator import Look, Translator
from regard.translator.alignment import Weights, choose, links
from regard.translator.forced import Forced, cross_taps
from regard.translator.given import choose_look, choose_look_for, pairs_of, weigh

matrices = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32 - 1)).map(
    lambda told: np.random.default_rng(told[2]).dirichlet(np.full(told[1], 0.3), told[0])
)


def test_a_clear_matrix_gives_its_clear_links() -> None:
    weights = np.eye(3)[[0, 2, 1]]
    assert links(weights, [0, 1, 2], [0, 1, 2]) == ((0, 0), (1, 2), (2, 1))


def test_tokens_of_a_word_speak_with_one_voice() -> None:
    weights = np.array([[0.6, 0.4, 0.0], [0.0, 0.45, 0.55], [0.0, 0.1, 0.9]])
    assert links(weights, [0, 1, 1], [0, 1, 1]) == ((0, 0), (1, 1))


def test_two_words_may_become_one() -> None:
    assert links(np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]), [0, 1, 2], [0, 1]) == ((0, 0), (1, 0), (2, 1))


def test_a_token_without_a_word_links_to_nothing() -> None:
    assert links(np.array([[0.9, 0.1], [0.8, 0.2]]), [None, 1], [0, 1]) == ((1, 0), (1, 1))


def test_nothing_links_to_nothing() -> None:
    assert links(np.zeros((0, 3)), [0, 1, 2], []) == ()
    assert links(np.zeros((2, 1)), [None], [0, 0]) == ()


@given(matrices)
def test_links_lie_between_what_both_ways_agree_on_and_what_one_way_says(weights: Weights) -> None:
    targets, sources = weights.shape
    found = set(links(weights, range(sources), range(targets)))
    forward = {(int(source), target) for target, source in enumerate(weights.argmax(1))}
    backward = {(source, int(target)) for source, target in enumerate(weights.argmax(0))}
    assert forward & backward <= found <= forward | backward
    strongest = np.unravel_index(weights.argmax(), weights.shape)
    assert (int(strongest[1]), int(strongest[0])) in found


@given(matrices)
def test_links_do_not_depend_on_how_words_are_cut_into_equal_tokens(weights: Weights) -> None:
    targets, sources = weights.shape
    twice = np.repeat(np.repeat(weights, 2, 0), 2, 1) / 2
    doubled = [number // 2 for number in range(2 * max(sources, targets))]
    found = links(twice, doubled[: 2 * sources], doubled[: 2 * targets])
    assert found == links(weights, range(sources), range(targets))


def test_the_attention_with_the_fewest_errors_is_chosen_where_there_is_gold() -> None:
    generator = torch.Generator().manual_seed(1)
    truth = [torch.randperm(5, generator=generator) for _ in range(10)]

    def forced(order: torch.Tensor) -> Forced:
        noise = torch.rand(2, 6, 6, generator=generator)
        good = noise.clone()
        good[0, 1:, :5] += 1.6 * torch.eye(5)[order.roll(1)]
        good[1, 1:, :5] += 2 * torch.eye(5)[order]
        return Forced((), {"first": noise, "second": good})

    seen = [forced(order) for order in truth]
    gold = [Alignment(frozenset((int(source), target) for target, source in enumerate(order))) for order in truth]
    words = [(range(5), range(5))] * 10
    assert choose(seen, words, gold) == Look("second", head=1, read=True, reason="gold links")


def test_a_choice_goes_into_the_scores_and_comes_back() -> None:
    look = Look("decoder.layers.1.cross.weights", 3, True, "gold links")
    taps = ["decoder.layers.0.cross.weights", "decoder.layers.1.cross.weights"]
    assert Look.from_scores({"alignment": look.to_scores()}, taps) == look
    assert Look.from_scores({}, taps) == Look(taps[0])
    assert Look.from_scores({"alignment": {"tap": "gone"}}, taps) == Look(taps[0])
    assert Look.from_scores({}, []) is None


def test_what_is_chosen_makes_no_more_errors_than_the_default(translator: Translator, bundle: Bundle) -> None:
    pairs, gold = pairs_of(bundle.recipe.data.train[0], bundle.recipe)
    assert gold is not None

    def errors(look: Look | None) -> float:
        told = Translator(translator.model, translator.tokenizers, aligned_by=look)
        return alignment_error_rate([each.alignment or () for each in weigh(told, pairs, alignments=True)], gold).aer

    assert errors(choose_look(translator, pairs, gold)) < errors(Look.default(cross_taps(translator.model)))
    assert choose_look(translator, pairs).reason == "agreement"
    assert choose_look_for(translator, bundle.recipe) == choose_look(translator, pairs, gold)


def test_gold_links_of_a_tagged_corpus_are_moved_by_the_tag(bundle: Bundle) -> None:
    corpus = bundle.recipe.data.train[0]
    (plain,), gold = pairs_of(corpus, bundle.recipe, 1)
    (tagged,), moved = pairs_of(corpus.model_copy(update={"tag": "<2de>"}), bundle.recipe, 1)
    assert tagged == (f"<2de> {plain[0]}", plain[1])
    assert gold is not None
    assert moved is not None
    assert moved[0].possible == {(source + 1, target) for source, target in gold[0].possible}


def test_the_taps_of_cross_attention_are_found(bundle: Bundle) -> None:
    assert cross_taps(bundle.model) == [f"decoder.layers.{layer}.cross.weights" for layer in range(2)]


def test_given_pairs_of_any_length_are_weighed(translator: Translator) -> None:
    empty, short, long = weigh(translator, [("", ""), ("a cat", "Hund"), ("a cat " * 300, "Hund " * 300)], True)
    assert (len(empty.token_logprobs), empty.alignment) == (1, ())
    assert short.alignment
    assert len(long.token_logprobs) > 300
    assert long.perplexity == pytest.approx(np.exp(-long.logprob / len(long.tokens)))
