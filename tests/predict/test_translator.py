"""Translation: batching, order, long lines, constraints, faults and ensembles."""

import json
import logging
import math
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import regard
from regard.bundle import Bundle
from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import Ragged
from regard.predict import Terminology, Translation, TranslationRequest, Translator
from regard.predict.scoring import score_pairs
from regard.predict.segments import make_segments
from regard.score import chrf
from regard.text import Tokenizers, find_phrase


def same(one: Translation, other: Translation) -> bool:
    """Return whether two translations are equal, scores to the last digits of float64."""
    return (one.text, one.tokens, one.alignment, len(one.nbest)) == (
        other.text,
        other.tokens,
        other.alignment,
        len(other.nbest),
    ) and one.score == pytest.approx(other.score, rel=1e-9)


@pytest.mark.parametrize(
    "options",
    [{"beam": 1}, {"beam": 4, "nbest": 3}, {"sample": True, "nbest": 2, "seed": 3}, {"beam": 4, "groups": 2}],
    ids=["greedy", "beam", "sample", "groups"],
)
def test_a_list_gives_the_translations_of_its_lines_alone(
    translator: Translator, lines: list[str], options: dict[str, object]
) -> None:
    options["max_length"], lines = 10, lines[1:4]
    together = translator(lines, tokens=200, **options)
    assert [translation.source for translation in together] == lines
    for line, translation in zip(lines, together, strict=True):
        assert same(translation, translator(line, **options))


def test_a_generator_reads_at_most_one_window_ahead(
    translator: Translator, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.predict.translator.WINDOW_LINES", 3)
    read = 0

    def coming() -> Iterator[str]:
        nonlocal read
        for line in lines:
            read += 1
            yield line

    translations = translator(coming(), beam=1, max_length=5)
    assert (read, next(translations).source, read) == (0, lines[0], 3)
    assert [translation.source for translation in translations] == lines[1:]


def test_a_window_ends_after_many_characters(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.predict.translator.WINDOW_CHARACTERS", 5)
    coming = iter(["abc", "abc", "abc"])
    next(translator(coming))
    assert list(coming) == ["abc"]


@pytest.mark.parametrize(
    ("text", "message"),
    [(b"a cat", "not bytes"), (None, "not NoneType"), (7, "not int"), (["a cat", None], "not NoneType: None")],
)
def test_input_that_is_no_text_raises_a_type_error(translator: Translator, text: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        translator(text)


def test_empty_lines_stay_empty(translator: Translator) -> None:
    translations = translator(["", "  ", "\t", "a dog", "<2de> "])
    assert [bool(translation.text) for translation in translations] == [False, False, False, True, False]
    assert translations[0].nbest[0].text == ""
    assert not any(translation.fault for translation in translations)


def test_a_score_is_the_log_probability_with_length_penalty(translator: Translator, lines: list[str]) -> None:
    for alpha in (0.0, 0.6):
        for translation in translator(lines[:2], nbest=3, length_penalty=alpha):
            for hypothesis in translation.nbest:
                assert hypothesis.logprob == pytest.approx(math.fsum(hypothesis.token_logprobs))
                length = len(hypothesis.token_logprobs)
                assert hypothesis.score == pytest.approx(hypothesis.logprob / ((5 + length) / 6) ** alpha)
            assert [hypothesis.score for hypothesis in translation.nbest] == sorted(
                (hypothesis.score for hypothesis in translation.nbest), reverse=True
            )


def test_teacher_forcing_gives_the_log_probabilities_and_alignment_of_the_search(
    translator: Translator, pairs: list[tuple[str, str]]
) -> None:
    translations = translator([source for source, _ in pairs], beam=2)
    known = [
        translation for translation, (_, target) in zip(translations, pairs, strict=True) if translation.text == target
    ]
    assert len(known) >= len(pairs) - 2
    for one, given in zip(
        known,
        score_pairs(translator, [(translation.source, translation.text) for translation in known], True),
        strict=True,
    ):
        assert given.tokens[:-1] == one.tokens
        assert given.token_logprobs == pytest.approx(one.token_logprobs)
        assert given.logprob == pytest.approx(one.logprob)
        assert given.alignment == one.alignment


def test_a_long_line_is_translated_in_segments_with_a_warning(
    translator: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    line = "the dog sees the street. the cat sees the dog. " * 6
    translation = translator(["a cat", line], beam=1, max_length=12)[1]
    assert "line 2 has more than the 40 tokens" in caplog.text
    assert translation.text
    assert translation.alignment is not None
    words, target_words = len(line.split()), len(translation.text.split())
    assert {source for source, _ in translation.alignment} <= set(range(words))
    assert {target for _, target in translation.alignment} <= set(range(target_words))
    assert max(source for source, _ in translation.alignment) > words // 2


def test_segments_are_translated_as_lines_of_their_own(translator: Translator) -> None:
    first, second = "the dog sees the street and the old cat sees the dog.", "I love you and the other cat very much."
    room = len(translator.tokenizers["source"].encode(first))
    short = Translator(translator.model, translator.tokenizers, longest=room)
    whole, one, other = short([f"{first} {second}", first, second], beam=2, max_length=15)
    assert whole.text == f"{one.text} {other.text}"
    assert whole.logprob == pytest.approx(one.logprob + other.logprob)
    moved = {(a + len(first.split()), b + len(one.text.split())) for a, b in other.alignment or ()}
    assert moved
    assert set(whole.alignment or ()) == set(one.alignment or ()) | moved


def test_a_long_line_can_be_refused(translator: Translator, caplog: pytest.LogCaptureFixture) -> None:
    long = "the dog " * 100
    with pytest.raises(ValueError, match="more than the 40 this model was trained on"):
        translator(long, long="error")
    refused, kept = translator([long, "a cat"], long="error")
    assert (bool(refused.fault), refused.text, bool(kept.text)) == (True, "", True)
    assert "line 1 could not be translated" in caplog.text


def test_a_leading_symbol_is_one_token(translator: Translator) -> None:
    (segment,) = make_segments(TranslationRequest("<2de> the dog"), translator.tokenizers, translator.options, 40)
    source = translator.tokenizers["source"]
    assert segment.ids == (source.id("<2de>"), *source.encode("the dog"))
    assert translator("<2de> the dog").alignment == tuple(
        (a + 1, b) for a, b in translator("<2de>the dog").alignment or ()
    )


class FailingEngine:
    """An engine that fails if a certain token is in the batch."""

    def __init__(self, model: Seq2Seq, token: int) -> None:
        self.model, self.token = model, token

    def start(self, source: Ragged, beams: int = 1) -> Any:
        if (source.values == self.token).any():
            raise RuntimeError("the engine failed")
        return self.model.start(source, beams)

    def step(self, tokens_R: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.model.step(tokens_R, state)

    def select(self, state: Any, rows_R: Tensor) -> Any:
        return self.model.select(state, rows_R)


def test_a_failure_on_one_line_does_not_affect_the_others(
    bundle: Bundle, translator: Translator, lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    poisoned = [*lines[:2], "the dog zzz", *lines[2:]]
    token = bundle.tokenizers["source"].encode("zzz")[-1]
    assert all(token not in bundle.tokenizers["source"].encode(line) for line in lines)
    engine = FailingEngine(bundle.model, token)
    frail = Translator(bundle.model, bundle.tokenizers, bundle.recipe.decode, engine=engine)
    translations = frail(poisoned, beam=1, max_length=15)
    assert [translation.fault for translation in translations] == [""] * 2 + ["the engine failed"] + [""] * (
        len(lines) - 2
    )
    assert "line 3 could not be translated: the engine failed" in caplog.text
    for line, translation in zip(lines, translations[:2] + translations[3:], strict=True):
        assert same(translation, translator(line, beam=1, max_length=15))
    with pytest.raises(ValueError, match="the engine failed"):
        frail("the dog zzz")


def test_constraints_and_prefixes_appear_in_the_translation(translator: Translator, lines: list[str]) -> None:
    for translation in translator(lines[1:4], constraints=["eine Katze", "Hund"], beam=8, max_length=20):
        assert "eine Katze" in translation.text
        assert "Hund" in translation.text
    for translation in translator(lines[1:4], prefix="Der Hund sieht", max_length=15):
        assert translation.text.startswith("Der Hund sieht")


def test_avoided_phrases_do_not_appear_in_any_tokenisation(translator: Translator, lines: list[str]) -> None:
    plain = translator(lines, alignments=False, max_length=15)
    words = sorted({word for translation in plain for word in translation.text.split() if word.isalpha()})
    assert words
    for translation in translator(lines, avoid=words, alignments=False, nbest=2, max_length=15):
        for hypothesis in translation.nbest:
            assert not set(words) & set(hypothesis.text.split())


def test_a_term_applies_only_where_it_occurs(translator: Translator) -> None:
    terms = Terminology({"dog": "Wauwau", "old dog": "Altwau"})
    one, other, third = translator(["the Dog sleeps", "the dogs sleep", "the old dog"], terms=terms, beam=6)
    assert "Wauwau" in one.text
    assert "Wauwau" not in other.text
    assert "Altwau" in third.text


def test_options_of_a_request_apply_to_its_line_only(translator: Translator) -> None:
    one, other = translator(
        [TranslationRequest("the dog", prefix="Ein Haus", constraints=("Katze",)), TranslationRequest("the dog")]
    )
    assert one.text.startswith("Ein Haus")
    assert "Katze" in one.text
    assert not other.text.startswith("Ein Haus")


def test_constraints_that_cannot_be_satisfied_raise_an_error(translator: Translator) -> None:
    with pytest.raises(ValueError, match="a hypothesis may have at most 5; ask for less"):
        translator("the dog", constraints=["Katze " * 10], max_length=5)


def test_minimum_bayes_risk_returns_the_sample_most_similar_to_all(translator: Translator, lines: list[str]) -> None:
    line = lines[-1]
    drawn = [hypothesis.text for hypothesis in translator(line, sample=True, nbest=6, seed=1, max_length=12).nbest]
    likeness = {one: sum(chrf([one], [other]).value for other in drawn) / len(drawn) for one in drawn}
    chosen = translator(line, mbr=6, seed=1, max_length=12)
    assert len(set(drawn)) > 1
    assert likeness[chosen.text] == max(likeness.values()) == pytest.approx(chosen.score)


def test_alternatives_share_the_prefix_and_continue_differently(
    translator: Translator, pairs: list[tuple[str, str]]
) -> None:
    source, target = pairs[0]
    begin = target.split()[0]
    hypotheses = translator.alternatives(source, begin, count=3, beam=2)
    assert len(hypotheses) == 3
    assert all(hypothesis.text.startswith(begin) for hypothesis in hypotheses)
    at = len(translator.tokenizers["target"].encode(begin))
    following = [hypothesis.token_logprobs[at] for hypothesis in hypotheses]
    assert following == sorted(following, reverse=True)
    assert len({hypothesis.tokens[at : at + 1] for hypothesis in hypotheses}) == 3
    assert hypotheses[0].text == target
    assert translator.alternatives("", begin) == []


def test_an_ensemble_of_a_model_with_itself_is_that_model(translator: Translator, lines: list[str]) -> None:
    twins = translator.ensemble_with([translator])
    assert same(twins(lines[0]), translator(lines[0]))


def test_an_ensemble_of_different_vocabularies_is_an_error(translator: Translator, bundle: Bundle) -> None:
    other = Translator(bundle.model, Tokenizers.learn([("a b", "c d")], size=300))
    with pytest.raises(ValueError, match="different vocabularies"):
        translator.ensemble_with([other])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bream": 3}, "no option 'bream'; did you mean beam"),
        ({"nbest": 9}, "a beam of 3 cannot give 9"),
        ({"beam": 0}, "beam"),
        ({"avoid": "dog"}, r"list of strings, such as \['dog'\]"),
        ({"top_p": 2.0, "sample": True}, "top_p"),
        ({"mbr": 2, "nbest": 3}, "nbest is 3, but there are only 2 samples"),
        ({"tokens": 0}, "tokens must be an integer of at least 1"),
        ({"sample": True, "constraints": ["Hund"]}, "need plain beam search"),
    ],
)
def test_invalid_options_are_reported_before_any_line_is_read(
    translator: Translator, options: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        translator(iter(["a cat"]), **options)


def test_a_translation_can_be_written_as_json(translator: Translator) -> None:
    translation = translator("the dog", nbest=2)
    table = json.loads(json.dumps(translation.to_json(), allow_nan=False))
    assert (table["text"], len(table["nbest"]), table["source"]) == (translation.text, 2, "the dog")
    assert table["alignment"] == [list(link) for link in translation.alignment or ()]


def test_a_translation_leaves_the_model_in_training_mode(bundle: Bundle) -> None:
    bundle.model.train()
    try:
        Translator(bundle.model, bundle.tokenizers).translate(["a cat"])
        assert bundle.model.training
    finally:
        bundle.model.eval()


def test_regard_load_returns_a_translator(memorised: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    translator = regard.load(memorised, device="cpu")
    assert translator.options.beam == 3
    translation = translator("I can go alone")
    assert translation.text == str(translation)
    with regard.recording(translator.model, "decoder.*.cross.weights") as seen:
        translator("I can go alone")
    assert seen
    assert not caplog.records
    assert not hasattr(regard, "lode")


def test_a_minimum_length_counts_more_than_the_limit_of_the_recipe(translator: Translator) -> None:
    usual = translator("a cat", beam=1)
    ids = translator.tokenizers["source"].encode("a cat")
    minimum = int(translator.options.longest * len(ids)) + 25
    assert len(usual.tokens) < minimum
    assert len(translator("a cat", beam=1, min_length=minimum).tokens) >= minimum


def test_a_minimum_length_beyond_the_positions_of_the_model_is_refused(translator: Translator) -> None:
    with pytest.raises(ValueError, match="min_length is 65000, but this model has positions for"):
        replace_max_target(translator, 300)("a cat", min_length=65_000)


def replace_max_target(translator: Translator, positions: int) -> Translator:
    """Return a translator whose model has positions for so many target tokens."""
    limited = copy(translator)
    limited.max_target = positions
    return limited


def test_a_split_is_reported_before_the_line_is_searched(
    translator: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    reported: list[int] = []
    list(translator.stream(["a cat. " * 40], on_progress=lambda _: reported.append(len(caplog.messages))))
    assert reported[0] == 1
    assert "translated in" in caplog.messages[0]


def test_constraints_and_terms_are_met_by_whole_words_only(translator: Translator) -> None:
    # The best translation contains a word that begins with each of these.
    line = "the old dog sleeps"
    free = translator(line).text
    beginnings = [word[:size] for word in free.split() for size in range(1, len(word))]
    assert beginnings
    for beginning in beginnings[:6]:
        for options in ({"constraints": [beginning]}, {"terms": {"dog": beginning}}):
            assert find_phrase(beginning, translator(line, beam=4, **options).text)


def test_a_prefix_that_contains_a_phrase_inside_a_word_does_not_meet_it(translator: Translator) -> None:
    request = TranslationRequest("the dog", prefix="Hundert", constraints=("Hund",))
    assert find_phrase("Hund", translator(request, beam=4).text)
    (segment,) = make_segments(
        TranslationRequest("the dog", prefix="der Hund ist", constraints=("Hund",)),
        translator.tokenizers,
        translator.options,
        40,
    )
    assert segment.options.constraints == ()
