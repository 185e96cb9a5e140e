"""Retrieval equals brute force: BM25 in a plain loop, and inner products of single vectors."""

import logging
import math
import warnings
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from regard.data.fields import Fields, TextField, TurnsField
from regard.models.build import build, build_dual_encoder
from regard.predict import (
    BM25Retriever,
    Chatbot,
    DualEncoderRetriever,
    FusedRetriever,
    KnowledgeBase,
    ReplyRanker,
    RetrievedReply,
    Retriever,
    rank_candidates,
)
from regard.predict.bm25 import search_words
from regard.recipe import ME, YOU, Bahdanau, Chatting, Rnn, Transformer
from regard.tasks import load_retriever
from regard.text import Tokenizer, TokenizerSettings

WORDS = ["red", "green", "blue", "cat", "dog", "runs"]
sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)
bases = st.lists(st.tuples(sentences, sentences), min_size=1, max_size=12).map(KnowledgeBase.of)
histories = st.lists(sentences, min_size=1, max_size=4)


def make_fields() -> Fields:
    settings = TokenizerSettings(kind="word", bytes=False, symbols=(YOU, ME))
    tokenizer = Tokenizer.learn([" ".join(WORDS)], 40, settings)
    return Fields({"history": TurnsField(tokenizer), "reply": TextField(tokenizer)})


FIELDS = make_fields()


def make_ranker(
    shared: bool = True, pooling: str = "mean", kind: str = "transformer", longest: int = 256
) -> ReplyRanker:
    torch.manual_seed(1)
    model = Rnn(width=8, embedding=8) if kind == "rnn" else Transformer(width=8, inner=16, heads=2, encoder_layers=1)
    chat = Chatting.model_validate({"objective": "retrieve", "shared": shared, "pooling": pooling})
    encoder = build_dual_encoder(model, len(FIELDS["reply"]), chat).double().eval()
    return ReplyRanker(encoder, FIELDS, longest=longest)


RANKER = make_ranker()


def bm25_by_loops(questions: Sequence[str], history: Sequence[str], earlier: float) -> list[float]:
    """Return the BM25 scores of Lucene's variant, k1 = 1.2 and b = 0.75, in plain loops."""
    documents = [question.split() for question in questions]
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        counts, score = Counter(document), 0.0
        for age, turn in enumerate(reversed(history)):
            if earlier**age < 0.01:  # such turns are not searched for
                break
            for word in turn.split():
                having = sum(word in other for other in documents)
                idf = math.log(1 + (len(documents) - having + 0.5) / (having + 0.5))
                saturation = 1.2 * (1 - 0.75 + 0.75 * len(document) / mean)
                score += earlier**age * idf * counts[word] / (counts[word] + saturation)
        scores.append(score)
    return scores


def best_by_sorting(base: KnowledgeBase, scores: Sequence[float], top: int) -> list[tuple[str, int]]:
    """Return text and line of the best pairs with distinct replies."""
    ranked = sorted(zip(scores, base.pairs, strict=True), key=lambda entry: (-entry[0], entry[1].line))
    first: dict[str, int] = {}
    for _, pair in ranked:
        first.setdefault(pair.reply, pair.line)
    return list(first.items())[:top]


def texts_and_lines(replies: Sequence[RetrievedReply]) -> list[tuple[str, int]]:
    return [(reply.text, reply.line) for reply in replies]


@given(bases, histories, st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_bm25_scores_are_those_of_the_formula_in_a_plain_loop(
    base: KnowledgeBase, history: list[str], earlier: float
) -> None:
    expected = bm25_by_loops([pair.question for pair in base.pairs], history, earlier)
    (scores,) = BM25Retriever(base, earlier).scores([history])
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


def retrievers(base: KnowledgeBase) -> list[Retriever]:
    bm25, dual = BM25Retriever(base), DualEncoderRetriever(RANKER, base)
    return [bm25, dual, FusedRetriever(bm25, dual)]


@given(bases, histories, st.integers(1, 15))
def test_replies_are_ranked_by_similarity_then_by_line_and_each_text_occurs_once(
    base: KnowledgeBase, history: list[str], top: int
) -> None:
    for retriever in retrievers(base):
        found = retriever.retrieve(history, top)
        (scores,) = retriever.scores([history])
        assert texts_and_lines(found) == best_by_sorting(base, scores.tolist(), top)
        by_line = {pair.line: pair for pair in base.pairs}
        assert all(by_line[reply.line][:2] == (reply.question, reply.text) for reply in found)
        assert len(found) == min(top, len(base.distinct_replies()[0]))


@given(bases, histories)
def test_the_similarity_of_a_dual_encoder_is_the_inner_product_of_vectors_of_texts_encoded_one_by_one(
    base: KnowledgeBase, history: list[str]
) -> None:
    (query,) = RANKER.history_vectors([history])
    vectors = [RANKER.reply_vectors([pair.reply])[0] for pair in base.pairs]
    expected = [sum(float(a) * float(b) for a, b in zip(query, vector, strict=True)) for vector in vectors]
    np.testing.assert_allclose(DualEncoderRetriever(RANKER, base).scores([history])[0], expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose([np.linalg.norm(query), np.linalg.norm(vectors[0])], 1.0)


@given(bases, histories)
def test_fused_scores_are_the_weighted_mean_of_the_standardised_scores(base: KnowledgeBase, history: list[str]) -> None:
    bm25, dual, fused = retrievers(base)

    def standardise(scores: NDArray[np.float64]) -> NDArray[np.float64]:
        deviation = math.sqrt(sum((score - scores.mean()) ** 2 for score in scores) / len(scores))
        return (scores - scores.mean()) / deviation if deviation > 1e-12 else 0 * scores

    expected = 0.3 * standardise(bm25.scores([history])[0]) + 0.7 * standardise(dual.scores([history])[0])
    np.testing.assert_allclose(fused.scores([history])[0], expected, rtol=1e-6, atol=1e-6)


@given(bases, st.lists(histories, min_size=1, max_size=5))
def test_a_batch_of_histories_gives_what_single_ones_give(base: KnowledgeBase, batch: list[list[str]]) -> None:
    for retriever in retrievers(base):
        together, alone = retriever.scores(batch), [retriever.scores([history])[0] for history in batch]
        np.testing.assert_allclose(together, np.stack(alone), rtol=1e-6, atol=1e-6)
    bm25 = BM25Retriever(base)
    assert bm25.retrieve_batch(batch) == [bm25.retrieve(history) for history in batch]
    assert bm25.retrieve_batch([]) == []


def test_retrievers_over_different_knowledge_bases_cannot_be_combined() -> None:
    bases = [KnowledgeBase.of([("red", "a")]) for _ in range(2)]
    with pytest.raises(ValueError, match="different knowledge bases"):
        FusedRetriever(BM25Retriever(bases[0]), DualEncoderRetriever(RANKER, bases[1]))


def test_a_large_base_of_equal_questions_and_few_replies_gives_the_first_lines() -> None:
    base = KnowledgeBase.of([("red cat" + " dog" * (number % 400), f"reply {number % 4}") for number in range(1600)])
    found = BM25Retriever(base).retrieve("cat", top=3)
    assert texts_and_lines(found) == [("reply 0", 1), ("reply 1", 2), ("reply 2", 3)]


def test_without_a_common_word_all_are_equally_dissimilar_and_the_first_lines_are_returned() -> None:
    base = KnowledgeBase.of([("red", "a"), ("green", "b"), ("blue", "c")])
    found = BM25Retriever(base).retrieve("cat", top=2)
    assert [(reply.text, reply.similarity) for reply in found] == [("a", 0.0), ("b", 0.0)]
    silent = BM25Retriever(KnowledgeBase.of([("?!", "a"), ("...", "b")]))
    assert [reply.similarity for reply in silent.retrieve("red ?!")] == [0.0, 0.0]


@pytest.mark.parametrize("history", [[], [""], ["  ", "\t"], ""])
def test_a_history_without_text_is_an_error(history: list[str] | str) -> None:
    base = KnowledgeBase.of([("red", "a")])
    for retriever in retrievers(base):
        with pytest.raises(ValueError, match="the history has no text to reply to"):
            retriever.retrieve(history)
    with pytest.raises(ValueError, match="history 2 has no text"):
        BM25Retriever(base).retrieve_batch([["red"], history])
    with pytest.raises(ValueError, match="the history has no text"):
        rank_candidates(make_chatbot(), history, ["red"])


def test_fewer_than_one_reply_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        BM25Retriever(KnowledgeBase.of([("red", "a")])).retrieve("red", top=0)


@pytest.mark.parametrize("kind", ["transformer", "rnn"])
@pytest.mark.parametrize("shared", [False, True])
def test_a_history_of_500_turns_and_a_reply_of_5000_words_are_read_as_far_as_the_model_reads(
    kind: str, shared: bool
) -> None:
    ranker = make_ranker(shared, "attention", kind, longest=12)
    turns = ["red cat", "green dog runs"] * 250
    np.testing.assert_allclose(ranker.history_vectors([turns]), ranker.history_vectors([turns[-6:]]))
    long = "red " * 5000
    np.testing.assert_allclose(ranker.reply_vectors([long]), ranker.reply_vectors(["red " * 12]))
    base = KnowledgeBase.of([("green dog runs", long), ("blue", "cat")])
    for retriever in (BM25Retriever(base), DualEncoderRetriever(ranker, base)):
        assert len(retriever.retrieve(turns)) == 2


def test_a_single_string_is_a_history_of_one_turn() -> None:
    for retriever in retrievers(KnowledgeBase.of([("red", "a"), ("green", "b")])):
        assert retriever.retrieve("green dog") == retriever.retrieve(["green dog"])


def test_a_ranker_sorts_replies_by_similarity_and_keeps_the_order_of_equal_ones() -> None:
    ranked = RANKER.rank(["red cat"], ["dog", "blue runs", "dog"])
    vectors = RANKER.reply_vectors(["dog", "blue runs"]) @ RANKER.history_vectors(["red cat"])[0]
    assert [reply for reply, _ in ranked] == (
        ["dog", "dog", "blue runs"] if vectors[0] > vectors[1] else ["blue runs", "dog", "dog"]
    )
    assert RANKER.rank(["red cat"], []) == []
    with pytest.raises(ValueError, match="no text"):
        RANKER.rank([], ["dog"])


def test_words_are_those_of_any_language_without_case_and_punctuation() -> None:
    assert search_words("Straße, STRASSE! don't ＡＢＣ") == ["strasse", "strasse", "don", "t", "abc"]
    assert search_words("Где банк? हिन्दी है।") == ["где", "банк", "हिन्दी", "है"]
    assert search_words("我在北京。カフェ") == list("我在北京") + list("カフェ")
    assert search_words("?! …") == []


def test_bm25_is_silent(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings(), caplog.at_level(logging.DEBUG):
        warnings.simplefilter("error")
        BM25Retriever(KnowledgeBase.of([("red cat", "a"), ("...", "b")])).retrieve(["?", "unknown"])
    assert capfd.readouterr() == ("", "")
    assert caplog.messages == []


def test_a_retrieved_reply_becomes_json() -> None:
    (reply,) = BM25Retriever(KnowledgeBase.of([("red", "a")])).retrieve("red")
    assert str(reply) == "a"
    assert reply.to_json() == {"text": "a", "question": "red", "similarity": reply.similarity, "line": 1}
    assert reply.similarity > 0


def test_a_retriever_without_a_run_is_bm25_and_other_methods_need_a_run() -> None:
    base = KnowledgeBase.of([("red", "a")])
    assert isinstance(load_retriever(base), BM25Retriever)
    with pytest.raises(ValueError, match="method = 'both' needs a dual encoder: give a run"):
        load_retriever(base, method="both")
    with pytest.raises(ValueError, match="there is no method 'tfidf' of retrieval; choose bm25, dual or both"):
        load_retriever(base, method="tfidf")  # type: ignore[arg-type]


def make_chatbot(positions: int | None = None) -> Chatbot:
    torch.manual_seed(2)
    size = len(FIELDS["reply"])
    settings: Bahdanau | Transformer = Bahdanau(width=8, embedding=8)
    if positions is not None:
        layers = {"width": 8, "inner": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
        settings = Transformer.model_validate({**layers, "position": "learned", "positions": positions})
    return Chatbot(build(settings, size, size).double().eval(), FIELDS)


@given(st.lists(sentences, max_size=6), histories)
def test_candidates_are_ranked_by_the_log_probability_per_token(candidates: list[str], history: list[str]) -> None:
    chatbot = make_chatbot()
    ranked = rank_candidates(chatbot, history, [*candidates, " ", *candidates])
    assert sorted(reply.text for reply in ranked) == sorted(set(candidates))
    for reply in ranked:
        (logprobs,) = chatbot.token_logprobs([history], [reply.text])
        assert reply.score == pytest.approx(logprobs.sum() / (len(reply.text.split()) + 1))
        assert reply.logprob == pytest.approx(float(logprobs.sum()))
        assert reply.tokens == tuple(
            map(chatbot.reply_field.tokenizer.piece, chatbot.reply_field.encode([reply.text]).ids)
        )
    assert [reply.score for reply in ranked] == sorted((reply.score for reply in ranked), reverse=True)


def test_a_candidate_that_is_too_long_for_the_model_is_left_out_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ranked = rank_candidates(make_chatbot(positions=6), ["red"], ["red " * 40, "green cat"])
    assert [reply.text for reply in ranked] == ["green cat"]
    assert "1 of 2 replies have more than the 5 tokens" in caplog.text
