"""Chatbots are judged by their replies, and by their use of earlier turns."""

import math

import numpy as np
import pytest

from regard.analysis.dialogue import (
    context_perplexity,
    judge_attention,
    judge_chatbot,
    judge_recall,
    recall_questions,
    replies_of,
)
from regard.data.smalltalk import Dialogue, Evidence
from regard.predict import Chatbot, reply_attention
from regard.tasks import load_chatbot

NAMES = ("Anna", "Ben", "Cleo")
DIALOGUES = [
    Dialogue(
        (f"My name is {name}.", f"Hello {name}.", "What is my name?", f"Your name is {name}."),
        (None, None, None, Evidence("name", 0, ((11, 11 + len(name)),), ((13, 13 + len(name)),), "direct")),
    )
    for name in NAMES
]
"""Dialogues that a model has memorised, with what the last reply depends on."""


@pytest.fixture(scope="module")
def chatbot(memorised_chat_run: object) -> Chatbot:
    return load_chatbot(str(memorised_chat_run), "cpu", "float32")


def test_replies_have_the_turns_before_them_and_only_some_need_an_earlier_turn() -> None:
    histories, replies = replies_of(DIALOGUES[:1])
    assert replies == ["Hello Anna.", "Your name is Anna."]
    assert [len(history) for history in histories] == [1, 3]
    assert list(recall_questions(DIALOGUES)) == [(dialogue, 3) for dialogue in DIALOGUES]


def test_a_model_that_has_memorised_its_dialogues_recalls_every_name(chatbot: Chatbot) -> None:
    histories, references = replies_of(DIALOGUES)
    judgement = judge_chatbot(chatbot, histories, references)
    assert judgement.replies == tuple(references)
    values = {score.name: score.value for score in judgement.scores}
    assert values["exact match"] == 100
    assert values["BLEU"] == pytest.approx(100)

    def replier(asked: object) -> list[str]:
        return [reply.text for reply in chatbot.reply(list(asked))]  # type: ignore[call-overload]

    assert [(score.name, score.value) for score in judge_recall(replier, DIALOGUES)] == [("recalled", 100)]
    wrong = [dialogue.turns[3].replace("name", "cat") for dialogue in DIALOGUES]
    assert judge_recall(lambda asked: wrong, DIALOGUES)[0].value == 0
    assert "given the last turn alone" in "\n".join(judgement.lines())
    assert judgement.to_json()["perplexity"].keys() == {"full", "shuffled", "last"}


def test_perplexities_with_less_history_are_those_of_the_shorter_histories(chatbot: Chatbot) -> None:
    histories = [dialogue.turns[:3] for dialogue in DIALOGUES]
    replies = [dialogue.turns[3] for dialogue in DIALOGUES]
    found = context_perplexity(chatbot, histories, replies)
    last = chatbot.perplexity([history[-1:] for history in histories], replies)
    full = chatbot.perplexity(histories, replies)
    assert (found.full.nats, found.last.nats) == pytest.approx((full.nats, last.nats))
    assert found.full.nats < found.last.nats, "without the earlier turns, the names are a guess"
    orders = {
        chatbot.perplexity([[histories[0][place] for place in order]], replies[:1]).nats
        for order in ((0, 1, 2), (1, 0, 2))
    }
    one = context_perplexity(chatbot, histories[:1], replies[:1]).shuffled.nats
    assert min(abs(one - nats) for nats in orders) < 1e-4


def test_a_history_of_one_turn_has_nothing_to_shuffle(chatbot: Chatbot) -> None:
    found = context_perplexity(chatbot, [["My name is Ben."]], ["Hello Ben."])
    assert found.full == found.shuffled == found.last
    assert math.exp(found.full.nats / found.full.tokens) >= 1


def test_the_most_attended_turn_is_counted_at_the_words_that_come_from_it(chatbot: Chatbot) -> None:
    scores = {score.name: score for score in judge_attention(chatbot, DIALOGUES)}
    hits = word_hits = 0
    for dialogue in DIALOGUES:
        attention = reply_attention(chatbot, dialogue.turns[:3], dialogue.turns[3])
        name = [number for number, (begin, end) in enumerate(attention.words) if begin >= 13 and end > 13]
        best = int(np.argmax([turn.weights_Q[name].sum() for turn in attention.turns]))
        hits += attention.turns[best].number == 0
        weights = {
            (turn.number, turn.text[slice(*span)]): weight
            for turn in attention.turns
            for span, weight in zip(turn.words, turn.word_weights_QK[name].sum(0), strict=True)
        }
        word_hits += max(weights, key=lambda word: weights[word]) == (0, dialogue.turns[0].split()[-1])
    assert scores["gold turn"].detail == f"({hits} of 3)"
    assert scores["gold word"].detail == f"({word_hits} of 3)"


def test_dialogues_without_such_questions_are_refused(chatbot: Chatbot) -> None:
    with pytest.raises(ValueError, match="depends on an earlier turn"):
        judge_attention(chatbot, [Dialogue(("Hello.", "Hello."), (None, None))])
