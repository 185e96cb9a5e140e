"""Word alignments from attention weights, and the choice of the attention head."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.bundle import Bundle
from regard.predict import AlignmentHead, Translator
from regard.predict.alignment import AttentionMatrix, align_words, best_alignment_head
from regard.predict.scoring import choose_alignment_head, read_pairs, score_pairs, validated_alignment_head
from regard.predict.teacher_forcing import cross_attention_taps
from regard.score import Alignment, alignment_error_rate

matrices = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32 - 1)).map(
    lambda sizes: np.random.default_rng(sizes[2]).dirichlet(np.full(sizes[1], 0.3), sizes[0])
)


def test_a_permutation_matrix_gives_its_links() -> None:
    weights = np.eye(3)[[0, 2, 1]]
    assert align_words(weights, [0, 1, 2], [0, 1, 2]) == ((0, 0), (1, 2), (2, 1))


def test_weights_of_a_words_tokens_are_combined() -> None:
    weights = np.array([[0.6, 0.4, 0.0], [0.0, 0.45, 0.55], [0.0, 0.1, 0.9]])
    assert align_words(weights, [0, 1, 1], [0, 1, 1]) == ((0, 0), (1, 1))


def test_two_source_words_may_align_to_one_target_word() -> None:
    assert align_words(np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]), [0, 1, 2], [0, 1]) == ((0, 0), (1, 0), (2, 1))


def test_a_token_without_a_word_has_no_link() -> None:
    assert align_words(np.array([[0.9, 0.1], [0.8, 0.2]]), [None, 1], [0, 1]) == ((1, 0), (1, 1))


def test_words_keep_the_indices_of_a_long_line() -> None:
    # A table of all words of such a line would not fit into memory.
    assert align_words(np.eye(2), [10**12, 10**12 + 1], [7, 10**12]) == ((10**12, 7), (10**12 + 1, 10**12))


def test_an_empty_sentence_has_no_links() -> None:
    assert align_words(np.zeros((0, 3)), [0, 1, 2], []) == ()
    assert align_words(np.zeros((2, 1)), [None], [0, 0]) == ()


@given(matrices)
def test_links_contain_the_intersection_of_both_directions_and_lie_in_their_union(weights: AttentionMatrix) -> None:
    targets, sources = weights.shape
    links = set(align_words(weights, range(sources), range(targets)))
    forward = {(int(source), target) for target, source in enumerate(weights.argmax(1))}
    backward = {(source, int(target)) for source, target in enumerate(weights.argmax(0))}
    assert forward & backward <= links <= forward | backward
    strongest = np.unravel_index(weights.argmax(), weights.shape)
    assert (int(strongest[1]), int(strongest[0])) in links


@given(matrices)
def test_links_do_not_change_if_each_word_is_split_into_equal_tokens(weights: AttentionMatrix) -> None:
    targets, sources = weights.shape
    twice = np.repeat(np.repeat(weights, 2, 0), 2, 1) / 2
    doubled = [number // 2 for number in range(2 * max(sources, targets))]
    links = align_words(twice, doubled[: 2 * sources], doubled[: 2 * targets])
    assert links == align_words(weights, range(sources), range(targets))


def test_the_head_with_the_lowest_error_rate_on_gold_links_is_chosen() -> None:
    generator = torch.Generator().manual_seed(1)
    truth = [torch.randperm(5, generator=generator) for _ in range(10)]

    def attention(order: torch.Tensor) -> dict[str, torch.Tensor]:
        noise = torch.rand(2, 6, 6, generator=generator)
        good = noise.clone()
        good[0, 1:, :5] += 1.6 * torch.eye(5)[order.roll(1)]
        good[1, 1:, :5] += 2 * torch.eye(5)[order]
        return {"first": noise, "second": good}

    tables = [attention(order) for order in truth]
    gold = [Alignment(frozenset((int(source), target) for target, source in enumerate(order))) for order in truth]
    words = [(range(5), range(5))] * 10
    assert best_alignment_head(tables, words, gold) == AlignmentHead("second", 1, shifted=True, reason="gold links")


def test_a_head_is_stored_in_the_scores_and_read_back() -> None:
    head = AlignmentHead("decoder.layers.1.cross.weights", 3, True, "gold links")
    taps = ["decoder.layers.0.cross.weights", "decoder.layers.1.cross.weights"]
    assert AlignmentHead.from_scores({"alignment": head.to_scores()}, taps) == head
    assert AlignmentHead.from_scores({}, taps) == AlignmentHead(taps[0])
    assert AlignmentHead.from_scores({"alignment": {"tap": "gone"}}, taps) == AlignmentHead(taps[0])
    assert AlignmentHead.from_scores({}, []) is None


def test_the_chosen_head_has_a_lower_error_rate_than_the_default(translator: Translator, bundle: Bundle) -> None:
    pairs, gold = read_pairs(bundle.recipe.data.train[0], bundle.recipe)
    assert gold is not None

    def error_rate(head: AlignmentHead | None) -> float:
        aligner = Translator(translator.model, translator.tokenizers, alignment_head=head)
        scored = score_pairs(aligner, pairs, alignments=True)
        return alignment_error_rate([pair.alignment or () for pair in scored], gold or []).aer

    default = AlignmentHead.default(cross_attention_taps(translator.model))
    assert error_rate(choose_alignment_head(translator, pairs, gold)) < error_rate(default)
    assert choose_alignment_head(translator, pairs).reason == "agreement"
    assert validated_alignment_head(translator, bundle.recipe) == choose_alignment_head(translator, pairs, gold)


def test_gold_links_of_a_tagged_corpus_are_shifted_by_the_tag(bundle: Bundle) -> None:
    corpus = bundle.recipe.data.train[0]
    (plain,), gold = read_pairs(corpus, bundle.recipe, 1)
    (tagged,), moved = read_pairs(corpus.model_copy(update={"tag": "<2de>"}), bundle.recipe, 1)
    assert tagged == (f"<2de> {plain[0]}", plain[1])
    assert gold is not None
    assert moved is not None
    assert moved[0].possible == {(source + 1, target) for source, target in gold[0].possible}


def test_the_taps_of_cross_attention_are_found(bundle: Bundle) -> None:
    assert cross_attention_taps(bundle.model) == [f"decoder.layers.{layer}.cross.weights" for layer in range(2)]


def test_pairs_of_any_length_are_scored(translator: Translator) -> None:
    empty, short, long = score_pairs(translator, [("", ""), ("a cat", "Hund"), ("a cat " * 300, "Hund " * 300)], True)
    assert (len(empty.token_logprobs), empty.alignment) == (1, ())
    assert short.alignment
    assert len(long.token_logprobs) > 300
    assert long.perplexity == pytest.approx(np.exp(-long.logprob / len(long.tokens)))


def test_a_pair_that_is_too_long_to_score_is_refused_before_any_work(translator: Translator) -> None:
    with pytest.raises(ValueError, match=r"the target of pair 2 has \d+ tokens, and a pair may have 4096"):
        list(score_pairs(translator, [("a cat", "eine Katze"), ("a cat", "x" * 5000)], alignments=True))
