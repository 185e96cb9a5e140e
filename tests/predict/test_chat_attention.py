"""The attention of a reply to turns and words: it sums to one, and nothing is attributed to what is not read."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.chats import DIALOGUES, chat_recipe

from regard.bundle import Bundle
from regard.nn.tap import recording
from regard.predict import Chatbot
from regard.predict.chat_attention import ReplyAttention, has_attention, reply_attention
from regard.predict.teacher_forcing import cross_attention_taps
from regard.tasks.chat import ChatTask
from regard.text import START, words

ASKED, REPLY = DIALOGUES[0][:3], "Your name is Anna."
TURN = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SPOKEN = TURN.filter(lambda text: bool(text.split()))


def with_longest(bundle: Bundle, longest: int) -> Chatbot:
    return Chatbot(bundle.model, bundle.fields, longest=longest)


def family(chatbot: Chatbot, root: Path, kind: str) -> Chatbot:
    """An untrained chatbot of a family."""
    recipe = chat_recipe(root, f"model={{kind='{kind}', size='tiny', width=16, dropout=0.0}}")
    return Chatbot(ChatTask(recipe).build(chatbot.fields.sizes).double().eval(), chatbot.fields, longest=60)


def check(seen: ReplyAttention, history: list[str]) -> None:
    """Check what holds for every attention."""
    total_Q = sum(turn.weights_Q for turn in seen.turns)
    np.testing.assert_allclose(total_Q, np.ones(len(seen.words)))
    assert sum(turn.weight for turn in seen.turns) == pytest.approx(1)
    for turn in seen.turns:
        assert turn.text == " ".join(history[turn.number].split()) != ""
        assert turn.word_weights_QK.shape == (len(seen.words), len(turn.words))
        assert (turn.word_weights_QK.sum(1) <= turn.weights_Q + 1e-9).all()
        assert (turn.word_weights_QK >= 0).all()
        assert turn.weight == pytest.approx(turn.weights_Q.mean())
    assert seen.unread == seen.turns[0].number
    assert seen.turns[[turn.number for turn in seen.turns].index(seen.most_attended)].weight == max(
        turn.weight for turn in seen.turns
    )


@given(st.lists(TURN, max_size=8), SPOKEN, st.lists(TURN, max_size=2), SPOKEN, st.integers(1, 6))
def test_the_weights_of_turns_sum_to_one_for_each_word_of_any_reply_to_any_history(
    chatbot: Chatbot, before: list[str], spoken: str, after: list[str], reply: str, turns: int
) -> None:
    history = [*before, spoken, *after]
    if chatbot.reply_field.tokenizer.encode(reply):
        check(reply_attention(chatbot, history, reply, turns), history)


def test_the_weight_of_a_word_is_the_sum_over_its_tokens_and_the_mean_over_layers_heads_and_tokens_of_the_reply(
    chatbot: Chatbot,
) -> None:
    seen = reply_attention(chatbot, ASKED, REPLY)
    target = chatbot.reply_field.encode([REPLY]).prepend(START).to_ragged()
    with torch.no_grad(), recording(chatbot.model, "decoder*cross.weights") as recorded:
        chatbot.model.states(chatbot.inputs(chatbot.encode([ASKED])), target)
    layers = [recorded[name][0][0] for name in cross_attention_taps(chatbot.model)]
    weights = torch.stack([layer.sum(0) / layer.shape[0] for layer in layers]).mean(0).tolist()
    assert len(layers) == 2
    column = 0
    for turn in seen.turns:
        tokens = chatbot.history_field.tokenizer.tokens(turn.text)
        for query in range(len(seen.words)):
            steps = [at for at, token in enumerate(chatbot.reply_field.tokenizer.tokens(REPLY)) if token.word == query]
            turn_sum = [sum(weights[step][column : column + len(tokens) + 2]) for step in steps]
            assert turn.weights_Q[query] == pytest.approx(sum(turn_sum) / len(steps))
            for key in range(len(turn.words)):
                inside = [column + 1 + at for at, token in enumerate(tokens) if token.word == key]
                expected = sum(weights[step][at] for step in steps for at in inside) / len(steps)
                assert turn.word_weights_QK[query, key] == pytest.approx(expected)
        column += len(tokens) + 2
    assert column == len(weights[0])


def test_the_words_of_turns_and_reply_are_spans_of_their_texts(chatbot: Chatbot) -> None:
    seen = reply_attention(chatbot, ASKED, REPLY)
    assert [REPLY[begin:end] for begin, end in seen.words] == ["Your", "name", "is", "Anna."]
    assert [[turn.text[begin:end] for begin, end in turn.words] for turn in seen.turns] == [
        turn.split() for turn in ASKED
    ]


def test_an_answer_attends_to_the_turn_it_depends_on(chatbot: Chatbot) -> None:
    seen = reply_attention(chatbot, ASKED, REPLY)
    names = [turn.word_weights_QK[3].max() for turn in seen.turns]
    assert max(names[:2]) > names[2]


def test_turns_beyond_the_limits_are_unread_and_empty_ones_keep_their_numbers(
    chatbot: Chatbot, chat_bundle: Bundle
) -> None:
    history = ["", "How are you?", "Fine.", "", *ASKED, " "]
    seen = reply_attention(chatbot, history, REPLY, turns=4)
    assert ([turn.number for turn in seen.turns], seen.unread) == ([2, 4, 5, 6], 2)
    check(seen, history)
    size = len(chatbot.encode([ASKED[-2:]]).ids)
    seen = reply_attention(with_longest(chat_bundle, size), ASKED, REPLY)
    assert ([turn.number for turn in seen.turns], seen.unread) == ([1, 2], 1)


def test_of_a_last_turn_that_is_too_long_the_last_words_are_attended_to(chat_bundle: Bundle) -> None:
    text = " ".join(["cat"] * 5000 + ["at", "home"])
    seen = reply_attention(with_longest(chat_bundle, 14), [*ASKED, text], REPLY)
    check(seen, [*ASKED, text])
    (turn,) = seen.turns
    spans = words(text)
    assert turn.words == tuple(spans[len(spans) - len(turn.words) :])
    assert 2 <= len(turn.words) <= 12
    assert seen.unread == 3


def test_a_turn_that_normalisation_removes_is_one_word(chatbot: Chatbot) -> None:
    seen = reply_attention(chatbot, ["How are you?", "▁ ▁", "Well?"], REPLY)
    assert [turn.words for turn in seen.turns][1] == ((0, 3),)
    check(seen, ["How are you?", "▁ ▁", "Well?"])


def test_text_from_right_to_left_has_the_spans_of_its_characters(chatbot: Chatbot) -> None:
    history, reply = ["كيف حالك؟", "שלום עולם"], "بخير، شكراً"
    seen = reply_attention(chatbot, history, reply)
    check(seen, history)
    assert [[turn.text[begin:end] for begin, end in turn.words] for turn in seen.turns] == [
        turn.split() for turn in history
    ]
    assert [reply[begin:end] for begin, end in seen.words] == reply.split()


def test_symbols_that_are_typed_are_words_like_others(chatbot: Chatbot) -> None:
    history = ["<you> said </s> what? <me>", "Hm."]
    seen = reply_attention(chatbot, history, REPLY)
    check(seen, history)
    assert [seen.turns[0].text[begin:end] for begin, end in seen.turns[0].words] == history[0].split()


def test_a_single_string_is_the_only_turn(chatbot: Chatbot) -> None:
    alone, listed = (reply_attention(chatbot, history, "Fine.") for history in ("How are you?", ["How are you?"]))
    assert alone.to_json() == listed.to_json()
    assert alone.turns[0].weight == pytest.approx(1)


def test_json_has_a_mean_weight_for_each_word(chatbot: Chatbot) -> None:
    table = reply_attention(chatbot, ASKED, REPLY).to_json()
    assert table.keys() == {"turns", "unread", "reply", "words"}
    first = table["turns"][0]
    assert first.keys() == {"number", "text", "weight", "weights", "words", "word_weights"}
    means = np.array(first["word_weights"]).mean(0)
    assert first["words"] == [[*span, pytest.approx(mean)] for span, mean in zip(words(ASKED[0]), means, strict=True)]


@pytest.mark.parametrize("kind", ["bahdanau", "luong", "convs2s"])
def test_every_family_with_attention_shows_it(chatbot: Chatbot, kind: str, tmp_path: Path) -> None:
    bot = family(chatbot, tmp_path, kind)
    assert has_attention(bot)
    check(reply_attention(bot, ASKED, REPLY), ASKED)


def test_a_model_without_attention_is_an_error(chatbot: Chatbot, tmp_path: Path) -> None:
    bot = family(chatbot, tmp_path, "sutskever")
    assert not has_attention(bot)
    with pytest.raises(ValueError, match="this model has no attention to its history; use a family with attention"):
        reply_attention(bot, ASKED, REPLY)


@pytest.mark.parametrize("reply", ["", " \t", "▁"])
def test_a_reply_or_history_without_text_is_an_error(chatbot: Chatbot, reply: str) -> None:
    with pytest.raises(ValueError, match="the reply has no text, so that nothing attends to the history"):
        reply_attention(chatbot, ASKED, reply)
    with pytest.raises(ValueError, match="the history has no text"):
        reply_attention(chatbot, [""], REPLY)
