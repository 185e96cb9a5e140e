"""Explore a chatbot: replies, their attention to turns and words, and the effects of leaving these out."""

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.chat_turns import GREETING, QUESTION, SETTINGS, UNKNOWN, WELCOME, train_chatbot
from tests.explore.asking import Frame, ask, fault, one

from regard.data.fields import split_parts
from regard.explore import Explorer, ModelInfo
from regard.explore.chat import BLOCK
from regard.explore.questions import MAX_CHARACTERS, MAX_TURNS
from regard.notebook.recording import record
from regard.predict import Chatbot, Translator, reply_attention
from regard.tasks import load
from regard.text import END

HISTORY = [GREETING.format("Anna"), WELCOME, "It rains.", "Yes it does.", QUESTION]
REPLY = "Your name is Ben."
every_model = pytest.mark.parametrize("name", SETTINGS)
attentive = pytest.mark.parametrize("name", ["transformer", "luong"])


@pytest.fixture(scope="module")
def chatbots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Chatbot]:
    """Return chatbots that remember names, whose models are in double precision."""
    folder, found = tmp_path_factory.mktemp("chatbots"), {}
    for name in SETTINGS:
        chatbot = load(train_chatbot(folder / name, name), "cpu")
        assert isinstance(chatbot, Chatbot)
        chatbot.model.double()
        found[name] = chatbot
    return found


@pytest.fixture
def explorer(chatbots: dict[str, Chatbot]) -> Explorer:
    return Explorer(chatbots)


def dropping(*numbers: int) -> dict[str, Any]:
    return {"op": "drop", "numbers": list(numbers)}


def editing(number: int, text: str) -> dict[str, Any]:
    return {"op": "edit", "number": number, "text": text}


def answer(explorer: Explorer, **question: Any) -> Frame:
    """Return the last frame of the answer to a question for a reply."""
    return ask(explorer, "reply", **question)[-1]


def changes_by_part(frames: list[Frame]) -> dict[Any, Any]:
    return {
        tuple(number) if isinstance(number, list) else number: row
        for message, arrays in frames
        for number, row in zip(message["numbers"], arrays["change"], strict=True)
    }


@every_model
def test_a_reply_is_the_greedy_one_and_grows_as_it_is_generated(
    explorer: Explorer, chatbots: dict[str, Chatbot], name: str
) -> None:
    frames = ask(explorer, "reply", model=name, history=HISTORY)
    reply = chatbots[name](HISTORY, beam=1)
    texts = [message["text"] for message, _ in frames]
    assert {message["kind"] for message, _ in frames[:-1]} == {"partial"}
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    message, arrays = frames[-1]
    assert (message["kind"], message["text"], message["given"], message["last"]) == ("reply", reply.text, False, True)
    # The search runs in single precision, token by token.
    assert arrays["logprobs"] == pytest.approx(np.array(reply.token_logprobs), abs=1e-4)
    assert [token["piece"] for token in message["tokens"][:-1]] == list(reply.tokens)
    (again,) = ask(explorer, "reply", model=name, history=HISTORY)
    assert again[0] == message


@attentive
def test_the_weights_are_those_of_the_reply_s_attention(
    explorer: Explorer, chatbots: dict[str, Chatbot], name: str
) -> None:
    chatbot = chatbots[name]
    message, arrays = answer(explorer, model=name, history=HISTORY, reply=REPLY, turns=4)
    attention = reply_attention(chatbot, HISTORY, REPLY, 4)
    assert [turn["number"] for turn in message["turns"]] == [1, 2, 3, 4]
    for turn, attended in zip(message["turns"], attention.turns, strict=True):
        assert turn["text"] == attended.text
        assert [tuple(span) for span in turn["words"]] == list(attended.words)
    by_turn = np.stack([turn.weights_Q for turn in attention.turns], 1)
    by_word = np.concatenate([turn.word_weights_QK for turn in attention.turns], 1)
    np.testing.assert_array_equal(arrays["turns"], by_turn.astype(np.float32))
    np.testing.assert_array_equal(arrays["words"], by_word.astype(np.float32))
    assert by_turn.sum(1) == pytest.approx(np.ones(4))
    (logprobs,) = chatbot.token_logprobs([HISTORY], [REPLY], 4)
    np.testing.assert_array_equal(arrays["logprobs"], logprobs.astype(np.float32))
    assert message["logprob"] == pytest.approx(logprobs.sum())
    assert [REPLY[slice(*span)] for span in message["words"]] == REPLY.split()
    assert [token["word"] for token in message["tokens"]] == [0, 1, 2, 3, None]


def test_a_turn_is_left_out_without_a_change_of_the_speakers_of_the_others(chatbots: dict[str, Chatbot]) -> None:
    chatbot = chatbots["transformer"]

    def parts(history: list[str]) -> list[list[int]]:
        tokens, sizes = split_parts(chatbot.encode([history]))
        return [part.tolist() for part in np.split(tokens.ids, np.cumsum(sizes.ids)[:-1])]

    whole = parts(HISTORY)
    for turn in range(len(HISTORY) - 1):
        assert parts([*HISTORY[:turn], "", *HISTORY[turn + 1 :]]) == [*whole[:turn], *whole[turn + 1 :]]
    # Without the last turn, the turn before it is replied to.
    assert parts([*HISTORY[:4], ""]) == parts(HISTORY[:4]) != whole[:4]
    assert chatbot([*HISTORY[:4], " "]).text == chatbot(HISTORY[:4]).text


@every_model
def test_an_effect_is_the_change_of_each_log_probability_without_one_part(
    explorer: Explorer, chatbots: dict[str, Chatbot], name: str
) -> None:
    chatbot = chatbots[name]
    frames = ask(explorer, "reply_effects", model=name, history=HISTORY, reply=REPLY)
    assert [message["last"] for message, _ in frames] == [False] * (len(frames) - 1) + [True]
    assert [message["level"] for message, _ in frames] == ["turn"] * 5 + ["word"]
    changes = changes_by_part(frames)
    (before,) = chatbot.token_logprobs([HISTORY], [REPLY])
    assert set(changes) == {*range(5), *((turn, at) for turn in range(5) for at in range(len(HISTORY[turn].split())))}
    for part, change in changes.items():
        turn, word = part if isinstance(part, tuple) else (part, None)
        words = HISTORY[turn].split()
        rest = "" if word is None else " ".join(words[:word] + words[word + 1 :])
        (after,) = chatbot.token_logprobs([[*HISTORY[:turn], rest, *HISTORY[turn + 1 :]]], [REPLY])
        assert change == pytest.approx(after - before, abs=1e-6), part
    assert changes[0].sum() != pytest.approx(0, abs=1e-3)


def test_words_come_in_the_order_of_their_weights(explorer: Explorer) -> None:
    history = [" ".join(["My name is Anna."] * 6), WELCOME, " ".join([QUESTION] * 4)]
    message, arrays = answer(explorer, model="transformer", history=history, reply=REPLY)
    frames = ask(explorer, "reply_effects", model="transformer", history=history, reply=REPLY)
    order = [tuple(number) for message, _ in frames[3:] for number in message["numbers"]]
    places = [(turn["number"], at) for turn in message["turns"] for at in range(len(turn["words"]))]
    weights = arrays["words"].mean(0)
    assert [len(message["numbers"]) for message, _ in frames] == [1, 1, 1, BLOCK, len(places) - BLOCK]
    assert sorted(order) == sorted(places)
    ordered = [weights[places.index(place)] for place in order]
    assert ordered == pytest.approx(sorted(weights, reverse=True), abs=1e-7)


def test_dropped_and_edited_turns_change_the_reply(explorer: Explorer, chatbots: dict[str, Chatbot]) -> None:
    assert answer(explorer, history=HISTORY)[0]["text"] == "Your name is Anna."
    dropped, _ = answer(explorer, history=HISTORY, changes=[dropping(0)])
    assert (dropped["text"], [turn["number"] for turn in dropped["turns"]]) == (UNKNOWN, [1, 2, 3, 4])
    changes = [editing(0, " My name\nis  Dan. "), dropping(2, 3)]
    edited, arrays = answer(explorer, history=HISTORY, changes=changes)
    assert (edited["text"], edited["turns"][0]["text"]) == ("Your name is Dan.", "My name is Dan.")
    assert [turn["number"] for turn in edited["turns"]] == [0, 1, 4]
    (logprobs,) = chatbots["transformer"].token_logprobs(
        [["My name is Dan.", WELCOME, "", "", QUESTION]], [edited["text"]]
    )
    assert arrays["logprobs"] == pytest.approx(logprobs, abs=1e-6)
    effects = changes_by_part(ask(explorer, "reply_effects", history=HISTORY, changes=changes, reply=edited["text"]))
    assert {part for part in effects if isinstance(part, int)} == {0, 1, 4}
    (without,) = chatbots["transformer"].token_logprobs([["", WELCOME, "", "", QUESTION]], [edited["text"]])
    assert effects[0] == pytest.approx(without - logprobs, abs=1e-6)


def test_only_the_last_turns_are_read(explorer: Explorer, chatbots: dict[str, Chatbot]) -> None:
    message, arrays = answer(explorer, history=HISTORY, turns=1)
    assert (message["text"], [turn["number"] for turn in message["turns"]]) == (UNKNOWN, [4])
    assert arrays["turns"] == pytest.approx(np.ones((4, 1)))
    # A dropped turn makes no room for an earlier one.
    message, _ = answer(explorer, history=HISTORY, turns=3, changes=[dropping(3)])
    assert [turn["number"] for turn in message["turns"]] == [2, 4]
    # More turns than the model was trained on.
    longer = ["Hello!", "Hi there!"] * 2 + HISTORY
    assert len(answer(explorer, history=longer, turns=9)[0]["turns"]) == 9
    assert len(answer(explorer, history=longer)[0]["turns"]) == chatbots["transformer"].turns


def test_turns_that_the_model_has_no_tokens_left_for_are_not_read(explorer: Explorer) -> None:
    history = [GREETING.format("Anna"), " ".join(["Yes it does."] * 18), QUESTION]
    message, arrays = answer(explorer, history=history)
    assert [turn["number"] for turn in message["turns"]] == [1, 2]
    effects = changes_by_part(ask(explorer, "reply_effects", history=history, reply=REPLY))
    assert {part for part in effects if isinstance(part, int)} == {1, 2}
    assert arrays["words"].shape[1] == len(effects) - 2


def test_a_single_turn_has_no_effect_because_nothing_would_be_left(explorer: Explorer) -> None:
    frames = ask(explorer, "reply_effects", history=[QUESTION], reply=REPLY)
    assert set(changes_by_part(frames)) == {(0, at) for at in range(4)}
    ((message, arrays),) = ask(explorer, "reply_effects", history=["Yes"], reply=REPLY)
    assert (message["numbers"], message["last"], arrays["change"].shape) == ([], True, (0, 5))


def test_a_model_without_attention_has_effects_only(explorer: Explorer) -> None:
    message, arrays = answer(explorer, model="sutskever", history=HISTORY)
    assert set(arrays) == {"logprobs"}
    assert [turn["words"][0] for turn in message["turns"]] == [[0, len(text.split()[0])] for text in HISTORY]


def test_sampling_is_reproducible_and_beam_search_is_that_of_the_chatbot(
    explorer: Explorer, chatbots: dict[str, Chatbot]
) -> None:
    chatbot = chatbots["luong"]
    for seed in (0, 3):
        expected = chatbot(HISTORY, sample=True, seed=seed, temperature=3.0).text
        message, _ = answer(explorer, model="luong", history=HISTORY, seed=seed, temperature=3.0)
        assert message["text"] == expected
    assert answer(explorer, model="luong", history=HISTORY, seed=7)[0]["text"] == chatbot(HISTORY, seed=7).text
    (frame,) = ask(explorer, "reply", model="luong", history=HISTORY, beam=4)
    assert frame[0]["text"] == chatbot(HISTORY, beam=4).text


@pytest.mark.parametrize("question", [{"kind": "reply"}, {"kind": "reply_effects", "reply": REPLY}])
def test_a_question_that_became_stale_stops(explorer: Explorer, question: dict[str, Any]) -> None:
    stale = iter([False, False, True])
    assert len(list(explorer.answer({**question, "history": HISTORY}, stale.__next__))) == 2


def test_the_models_are_described(chatbots: dict[str, Chatbot]) -> None:
    infos = {"luong": ModelInfo(family="luong", examples=("Hello!\nHi there!",))}
    models = {model["name"]: model for model in one(Explorer(chatbots, infos), "models")[0]["models"]}
    assert {name: model["levels"] for name, model in models.items()} == {
        "transformer": ["turn", "word"],
        "luong": ["turn", "word"],
        "sutskever": [],
    }
    luong = models["luong"]
    assert (luong["task"], luong["input"], luong["turns"], luong["parts"]) == ("chat", "history", 6, [])
    assert luong["examples"] == ["Hello!\nHi there!"]


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ({"kind": "reply"}, "history: Field required"),
        ({"kind": "reply", "history": []}, "the conversation is empty; give at least one turn"),
        ({"kind": "reply", "history": [" ", "\n"]}, "the conversation is empty"),
        ({"kind": "reply", "history": ["Hi."] * 500}, f"at most {MAX_TURNS} items"),
        ({"kind": "reply", "history": ["a" * (MAX_CHARACTERS + 1)]}, str(MAX_CHARACTERS)),
        ({"kind": "reply", "history": ["a" * MAX_CHARACTERS, "b"]}, f"{MAX_CHARACTERS + 1} characters, but at most"),
        ({"kind": "reply", "history": HISTORY, "turns": 0}, "turns"),
        ({"kind": "reply", "history": HISTORY, "beam": 0}, "beam"),
        ({"kind": "reply", "history": HISTORY, "temperature": 0}, "temperature"),
        ({"kind": "reply", "history": HISTORY, "text": "Hi"}, "text"),
        ({"kind": "reply", "history": HISTORY, "reply": " "}, "the given reply is empty"),
        ({"kind": "reply", "history": HISTORY, "reply": "a " * 600}, "600 tokens, but at most 512 are shown"),
        (
            {"kind": "reply", "history": HISTORY, "changes": [dropping(5)]},
            "no turn 5 in this conversation; they are 0 to 4",
        ),
        ({"kind": "reply", "history": HISTORY, "changes": [editing(7, "a")]}, "no turn 7"),
        ({"kind": "reply", "history": HISTORY, "changes": [dropping(4)], "turns": 1}, "all turns that would be read"),
        ({"kind": "reply", "history": HISTORY, "changes": [{"op": "erase", "numbers": [1]}]}, "changes"),
        ({"kind": "reply_effects", "history": HISTORY}, "reply: Field required"),
        ({"kind": "read", "source": "Hi."}, "transformer is a chatbot, which does not answer 'read'; ask 'reply'"),
        ({"kind": "figure", "figure": "lines", "history": HISTORY}, "there is no figure 'lines'; figures are dialogue"),
        ({"kind": "figure", "figure": "dialogue"}, "the history has no text to reply to"),
        ({"kind": "figure", "figure": "dialogue", "history": HISTORY, "model": "sutskever"}, "has no attention"),
    ],
)
def test_a_question_that_a_chatbot_cannot_answer_says_why(
    explorer: Explorer, question: dict[str, Any], sentence: str
) -> None:
    assert sentence in fault(explorer, question)


def test_an_emoji_or_an_unknown_script_is_read_like_any_other_turn(explorer: Explorer) -> None:
    history = ["😀", "مرحبا يا صديقي", "\u200b", QUESTION]
    message, arrays = answer(explorer, history=history)
    assert len(message["turns"]) == arrays["turns"].shape[1] == 4
    assert len(changes_by_part(ask(explorer, "reply_effects", history=history, reply=message["text"]))) >= 8


def test_a_model_for_another_task_does_not_reply(translators: dict[str, Translator]) -> None:
    question = {"kind": "reply", "history": HISTORY}
    assert "transformer is no chatbot, so it does not answer 'reply'" in fault(Explorer(translators), question)


def test_a_figure_of_the_conversation_comes_with_its_code(explorer: Explorer) -> None:
    history = ["", *HISTORY[1:]]
    message, arrays = one(explorer, "figure", figure="dialogue", history=history, target=REPLY, turns=4, scale="sqrt")
    assert arrays["file"].tobytes().lstrip().startswith(b"<?xml")
    assert (
        f"regard.figure(model, {history!r}, 'dialogue', target={REPLY!r}, scale='sqrt', turns=4)" in message["python"]
    )


def test_a_recording_holds_the_reply_and_its_effects(explorer: Explorer) -> None:
    text = "\n".join(HISTORY)
    for state, chosen in (
        ("", {"beam": 1}),
        ("turns=2&beam=3", {"turns": 2, "beam": 3}),
        ("model=luong&seed=4&temperature=0.5", {"model": "luong", "seed": 4, "temperature": 0.5}),
        ("target=Yes.", {"reply": "Yes."}),
    ):
        asked = [question for question, _ in record(explorer, text, state).about(text)]
        assert [question["kind"] for question in asked] == ["models", "reply", "reply_effects"]
        assert {**asked[1], "kind": 0} == {"kind": 0, "history": HISTORY, **chosen}
        assert json.dumps(asked)
    assert not [question for question, _ in record(explorer, text, "").about("Hello!") if "history" in question]


def test_the_end_symbol_is_the_last_token_of_a_reply(explorer: Explorer, chatbots: dict[str, Chatbot]) -> None:
    message, arrays = answer(explorer, history=HISTORY, reply=REPLY)
    end = chatbots["transformer"].reply_field.tokenizer.piece(END)
    assert message["tokens"][-1] == {"piece": end, "text": "", "word": None}
    assert len(arrays["logprobs"]) == len(message["tokens"])
