"""A conversation: its history, other replies, options, interrupted replies, and any text as a message."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.chat_names import NAMES, TURNS
from tests.chats import reversed_chatbot

from regard.data.dialogues import read_dialogues
from regard.options import OptionError
from regard.predict import BM25Retriever, Chatbot, Conversation, KnowledgeBase, Retriever
from regard.tasks import load_chatbot

KNOWLEDGE = KnowledgeBase.of(
    [
        ("When do you open?", "We open at nine."),
        ("When do you close?", "We close at six."),
        ("What does it cost?", "It costs two euros."),
    ]
)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)  # with lone surrogates and control characters


@pytest.fixture(scope="module")
def chatbot(chat_run: Path) -> Chatbot:
    return load_chatbot(chat_run, "cpu")


def said(conversation: Conversation, *messages: str) -> list[str]:
    return [conversation.send(message).text for message in messages]


def stop_after(pieces: int) -> Callable[[str], None]:
    """Return a receiver of pieces of a reply that is interrupted, as by Ctrl-C."""
    received: list[str] = []

    def emit(piece: str) -> None:
        received.append(piece)
        if len(received) == pieces:
            raise KeyboardInterrupt

    return emit


@pytest.mark.parametrize("name", NAMES)
def test_a_reply_depends_on_earlier_turns(chatbot: Chatbot, name: str) -> None:
    assert said(Conversation(chatbot), f"My name is {name}.", "What is my name?")[1] == f"You are {name}."


def test_with_one_turn_a_reply_depends_on_the_message_alone(chatbot: Chatbot) -> None:
    replies = {said(Conversation(chatbot, turns=1), f"My name is {name}.", "What is my name?")[1] for name in NAMES}
    assert replies == {"I do not know."}


def test_replies_are_those_of_the_chatbot_to_the_whole_history(chatbot: Chatbot) -> None:
    conversation = Conversation(chatbot)
    first, second = said(conversation, "My name is Carl.", "I like tea.")
    assert conversation.last.history == ("My name is Carl.", first, "I like tea.")
    assert second == chatbot(conversation.last.history).text
    assert conversation.last.reply == chatbot(conversation.last.history)


def test_streamed_pieces_add_up_to_the_reply_that_is_not_streamed(chatbot: Chatbot) -> None:
    conversation, pieces = Conversation(chatbot, beam=1), list[str]()
    assert conversation.streams
    exchange = conversation.send("Hello!", pieces.append)
    assert len(pieces) > 1
    assert "".join(pieces) == exchange.text == chatbot("Hello!", beam=1).text


def test_the_reply_of_a_beam_is_emitted_at_once(chatbot: Chatbot) -> None:
    conversation, pieces = Conversation(chatbot), list[str]()
    assert not conversation.streams
    assert conversation.send("Hello!", pieces.append).text == pieces[0]
    assert len(pieces) == 1


def test_a_reranked_reply_is_not_streamed(chatbot: Chatbot) -> None:
    conversation, pieces = (
        Conversation(chatbot.reranked_by(reversed_chatbot(chatbot)), beam=1, candidates=4),
        list[str](),
    )
    conversation.send("Hello!", pieces.append)
    assert len(pieces) == 1


def test_undo_removes_message_and_reply(chatbot: Chatbot) -> None:
    conversation = Conversation(chatbot)
    said(conversation, "My name is Anna.", "My name is Dora.")
    assert conversation.undo().message == "My name is Dora."
    assert said(conversation, "What is my name?") == ["You are Anna."]
    conversation.reset()
    assert said(conversation, "What is my name?") == ["I do not know."]


def test_undo_and_retry_need_something_to_undo(chatbot: Chatbot) -> None:
    conversation = Conversation(chatbot)
    for action in (conversation.undo, conversation.retry, conversation.attention, lambda: conversation.save("a.jsonl")):
        with pytest.raises(ValueError, match="nothing has been said yet"):
            action()


def test_retry_gives_the_next_best_reply_until_the_beam_has_no_other(chatbot: Chatbot) -> None:
    conversation = Conversation(chatbot, beam=3)
    conversation.send("Hello!")
    best = list(dict.fromkeys(reply.text for reply in chatbot("Hello!", beam=3, nbest=3).nbest))
    assert len(best) > 1
    assert [conversation.last.text, *(conversation.retry().text for _ in best[1:])] == best
    with pytest.raises(OptionError, match="no other reply; widen it with beam=6, or sample"):
        conversation.retry()
    assert [exchange.text for exchange in conversation.exchanges] == [best[-1]]


def test_retry_among_reranked_replies_gives_the_next_candidate(chatbot: Chatbot) -> None:
    reranked = chatbot.reranked_by(reversed_chatbot(chatbot))
    conversation = Conversation(reranked, candidates=4)
    conversation.send("Hello!")
    ranked = list(dict.fromkeys(reply.text for reply in reranked("Hello!", candidates=4, nbest=4, beam=4).nbest))
    assert [conversation.last.text, conversation.retry().text] == ranked[:2]


def test_retry_of_a_sample_has_the_next_seed(chatbot: Chatbot) -> None:
    conversation = Conversation(chatbot, temperature=3.0, seed=5)
    texts = [conversation.send("Hello!").text, conversation.retry().text, conversation.retry().text]
    assert texts == [chatbot("Hello!", temperature=3.0, seed=5 + number).text for number in range(3)]
    assert len(set(texts)) == 3


def test_retry_after_a_change_of_options_gives_the_best_reply_by_them(chatbot: Chatbot) -> None:
    conversation = Conversation(chatbot)
    said(conversation, "My name is Anna.", "What is my name?")
    conversation.set("turns", "1")
    assert conversation.retry().text == "I do not know."
    conversation.set("turns", "default")
    assert conversation.retry().text == "You are Anna."


def test_an_interrupted_reply_is_kept_as_far_as_it_was_emitted(chatbot: Chatbot) -> None:
    conversation = Conversation(chatbot, beam=1)
    with pytest.raises(KeyboardInterrupt):
        conversation.send("My name is Ben.", stop_after(1))
    assert [exchange.text for exchange in conversation.exchanges] == ["Hello"]
    assert said(conversation, "What is my name?") == ["You are Ben."]
    conversation.set("temperature", "0.01")
    with pytest.raises(KeyboardInterrupt):
        conversation.retry(stop_after(2))
    assert [exchange.text for exchange in conversation.exchanges] == ["Hello", "Yo"]


def test_retry_completes_an_interrupted_reply(chatbot: Chatbot) -> None:
    conversation = Conversation(chatbot, beam=1)
    with pytest.raises(KeyboardInterrupt):
        conversation.send("My name is Ben.", stop_after(1))
    assert conversation.retry(lambda piece: None).text == "Hello Ben!"


def test_a_message_whose_reply_is_interrupted_before_it_begins_is_not_kept(chatbot: Chatbot) -> None:
    conversation = Conversation(chatbot, beam=1, stop=["Hello"])  # an empty reply
    conversation.send("My name is Ben.")
    before = list(conversation.exchanges)

    class Interrupted(Retriever):
        def scores(self, histories: object) -> NoReturn:
            raise KeyboardInterrupt

    conversation.retriever = Interrupted(KNOWLEDGE)
    actions: list[Callable[[], object]] = [lambda: conversation.send("Hello!"), conversation.retry]
    for action in actions:
        with pytest.raises(KeyboardInterrupt):
            action()
        assert conversation.exchanges == before


def test_messages_with_an_empty_reply_between_them_are_one_turn(chatbot: Chatbot) -> None:
    conversation = Conversation(chatbot)
    conversation.send("Hello!")
    conversation.exchanges[0] = replace(conversation.exchanges[0], text=" ")
    assert conversation.history("Bye.") == ["Hello! Bye."]
    conversation.send("My name is Ben.")
    assert conversation.history("Bye.") == ["Hello! My name is Ben.", conversation.last.text, "Bye."]


def test_options_of_sampling_and_of_beam_search_end_each_other(chatbot: Chatbot) -> None:
    conversation = Conversation(chatbot)
    conversation.set("temperature", "0.7")
    conversation.set("top-k", "3")
    assert (conversation.options.sample, conversation.options.temperature, conversation.options.top_k) == (True, 0.7, 3)
    conversation.set("beam", "2")
    assert not conversation.options.sample
    assert (conversation.options.beam, conversation.options.temperature) == (2, chatbot.options.temperature)
    conversation.set("seed", "0")
    assert conversation.options.sample
    conversation.set("sample", "off")
    assert conversation.options == chatbot.options
    conversation.set("stop", "a b")
    assert conversation.options.stop == ("a b",)
    conversation.set("stop", "default")
    assert conversation.options == chatbot.options


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("beam", "0", "beam must be an integer of at least 1, but is 0"),
        ("beam", "two", "beam must be an integer of at least 1, but is 'two'"),
        ("temperature", "nan", "temperature must be a number above 0"),
        ("sample", "maybe", "sample must be true or false, but is 'maybe'"),
        ("normalise", "x", "normalise must be gnmt or average, but is 'x'"),
        ("temperaturx", "1", "there is no option 'temperaturx'; did you mean temperature?"),
        ("nope", "default", "there is no option 'nope'"),
    ],
)
def test_a_wrong_option_changes_nothing(chatbot: Chatbot, name: str, value: str, message: str) -> None:
    conversation = Conversation(chatbot)
    with pytest.raises(OptionError, match=message):
        conversation.set(name, value)
    assert conversation.options == chatbot.options
    assert said(conversation, "Hello!") == ["Hello, who are you?"]


CHANGES = st.tuples(
    st.sampled_from(["beam", "groups", "nbest", "seed", "sample", "temperature", "top-k", "turns", "max_tokens"]),
    st.sampled_from(["1", "2", "4", "true", "off", "0.5", "default", "x", ""]),
)


@given(st.lists(CHANGES, max_size=12))
def test_whatever_is_set_the_chatbot_accepts_the_options(chatbot: Chatbot, changes: list[tuple[str, str]]) -> None:
    conversation = Conversation(chatbot)
    for name, value in changes:
        before = conversation.options
        try:
            conversation.set(name, value)
        except OptionError:
            assert conversation.options == before
    assert conversation.defaults.override(**conversation.changes) == conversation.options
    conversation.send("Hello!")


@given(st.lists(ANY_TEXT, min_size=1, max_size=4))
def test_any_text_with_a_word_has_a_reply(chatbot: Chatbot, messages: list[str]) -> None:
    conversation = Conversation(chatbot, beam=1, max_tokens=4)
    for message in messages:
        if message.split():
            conversation.send(message, lambda piece: None)
            assert conversation.last.message.encode().split()
        else:
            with pytest.raises(ValueError, match="no text"):
                conversation.send(message)
    assert json.loads(json.dumps(conversation.to_json()))["turns"] == [
        {"speaker": speaker, "text": text}
        for exchange in conversation.exchanges
        for speaker, text in (("user", exchange.message), ("bot", exchange.text))
    ]


def test_halves_of_a_surrogate_pair_become_their_character() -> None:
    conversation = Conversation(None, BM25Retriever(KNOWLEDGE))
    assert conversation.send("\ud83d\ude42 \udc00\ta").message == "🙂 \ufffd a"


def test_without_a_chatbot_replies_are_retrieved() -> None:
    conversation = Conversation(None, BM25Retriever(KNOWLEDGE), top=2)
    exchange = conversation.send("When do you open?")
    assert exchange.text == "We open at nine."
    assert [found.question for found in exchange.retrieved] == ["When do you open?", "When do you close?"]
    assert [conversation.retry().text for _ in range(2)] == ["We close at six.", "It costs two euros."]
    assert len(conversation.last.retrieved) == 2
    with pytest.raises(ValueError, match="no other reply"):
        conversation.retry()
    assert said(conversation, "And what does it cost?") == ["It costs two euros."]
    assert len(conversation.exchanges) == 2
    assert conversation.unread_tokens("a " * 1000) == 0
    with pytest.raises(ValueError, match="retrieved from a knowledge base"):
        conversation.attention()


def test_retrieved_replies_stand_beside_those_of_a_chatbot(chatbot: Chatbot) -> None:
    conversation = Conversation(chatbot, BM25Retriever(KNOWLEDGE), top=1)
    exchange = conversation.send("Hello!")
    assert exchange.text == "Hello, who are you?"
    assert [found.text for found in conversation.send("When do you open?").retrieved] == ["We open at nine."]
    assert conversation.last.to_json()["retrieved"][0]["line"] == 1
    assert "retrieved" not in Conversation(chatbot).send("Hello!").to_json()


def test_of_a_long_message_the_chatbot_reads_the_end(chatbot: Chatbot) -> None:
    message = "Hello! " * 200 + "My name is Dora."
    conversation = Conversation(chatbot)
    unread = conversation.unread_tokens(message)
    symbols = 2  # of the speaker, and of the end
    assert unread == len(chatbot.history_field.tokenizer.encode(message)) + symbols - chatbot.longest
    reply = conversation.send(message).reply
    conversation.reset()
    other = conversation.send("Bye. " * 300 + message[-6 * chatbot.longest :]).reply
    assert reply is not None
    assert other is not None
    assert reply.token_logprobs == other.token_logprobs
    assert conversation.unread_tokens("Hello!") == conversation.unread_tokens(" ") == 0


def test_the_attention_is_that_of_the_last_reply(chatbot: Chatbot) -> None:
    conversation = Conversation(chatbot)
    said(conversation, "My name is Dora.", "I like tea.", "What is my name?")
    attention = conversation.attention()
    assert attention.reply == conversation.last.text
    assert attention.unread == len(conversation.last.history) - TURNS
    conversation.set("turns", "2")
    assert len(conversation.attention().turns) == TURNS  # the reply was given with the former options
    conversation.retry()
    assert len(conversation.attention().turns) == 2


def test_saved_conversations_are_dialogues_to_train_on(chatbot: Chatbot, tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_text('{"turns": ["a", "b"]}', encoding="utf-8")  # without an end of its line
    conversation = Conversation(chatbot)
    said(conversation, "My name is Ben.", "What is my name?")
    conversation.save(path)
    conversation.reset()
    said(conversation, "Hello!")
    conversation.save(str(path))
    dialogues = [[(turn.speaker, turn.text) for turn in dialogue] for dialogue in read_dialogues(path)]
    assert dialogues == [
        [(None, "a"), (None, "b")],
        [("user", "My name is Ben."), ("bot", "Hello Ben!"), ("user", "What is my name?"), ("bot", "You are Ben.")],
        [("user", "Hello!"), ("bot", "Hello, who are you?")],
    ]


def test_a_file_that_is_not_read_as_json_is_not_written(chatbot: Chatbot, tmp_path: Path) -> None:
    conversation = Conversation(chatbot)
    said(conversation, "Hello!")
    with pytest.raises(ValueError, match=r"ends in \.jsonl, but this is 'talk.txt'"):
        conversation.save(tmp_path / "talk.txt")
    assert list(tmp_path.iterdir()) == []
