"""Replies are those of the model, whatever else is in the batch; what is not read does not change them."""

import json
import math
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.chats import DIALOGUES, chat_recipe, train_chat

import regard
from regard.bundle import Bundle
from regard.data.fields import Fields
from regard.models.seq2seq import Seq2Seq
from regard.options import ChatOptions
from regard.predict import Chatbot, Reply
from regard.recipe import Decode
from regard.tasks import load_chatbot
from regard.tasks.chat import ChatTask
from regard.text import END, START

EXAMPLES = [(dialogue[:number], dialogue[number]) for dialogue in DIALOGUES for number in range(1, len(dialogue))]
HISTORIES, REPLIES = [history for history, _ in EXAMPLES], [reply for _, reply in EXAMPLES]
ASKED = DIALOGUES[0][:3]
FAMILIES = ("transformer", "sutskever", "bahdanau", "luong", "convs2s")


@pytest.fixture(scope="module")
def reverse(tmp_path_factory: pytest.TempPathFactory) -> Chatbot:
    """A chatbot that has memorised the turn before each reply."""
    return load_chatbot(train_chat(tmp_path_factory.mktemp("runs") / "reverse", "data.reverse=true"), "cpu")


def untrained(fields: Fields, root: Path, *overrides: str, longest: int = 60) -> Chatbot:
    """A chatbot whose model is untrained, in float64."""
    recipe = chat_recipe(root, *overrides)
    torch.manual_seed(2)
    model = ChatTask(recipe).build(fields.sizes).double().eval()
    return Chatbot(model, fields, Decode(beam=2), longest=longest)


def stepped(chatbot: Chatbot, history: Sequence[str], reply: str) -> list[float]:
    """The log-probabilities of a reply and its end, token by token by the model's own steps."""
    model, ids = chatbot.model, chatbot.reply_field.encode([reply]).ids.tolist()
    values = []
    with torch.no_grad():
        state = model.start(chatbot.inputs(chatbot.encode([history])))
        for token, following in zip([START, *ids], [*ids, END], strict=True):
            logprobs_RV, state = model.step(torch.tensor([token]), state)
            values.append(float(logprobs_RV[0, following]))
    return values


def test_memorised_replies_depend_on_earlier_turns(chatbot: Chatbot) -> None:
    assert [reply.text for reply in chatbot.reply(HISTORIES)] == REPLIES


def test_a_history_is_a_turn_or_a_list_of_turns_and_a_list_of_histories_gives_a_list(chatbot: Chatbot) -> None:
    assert chatbot("How are you?").text == chatbot(["How are you?"]).text == "Fine, thanks."
    assert [reply.text for reply in chatbot([["How are you?"], ASKED])] == ["Fine, thanks.", "Your name is Anna."]
    assert chatbot(ASKED).history == tuple(ASKED)
    assert chatbot.reply([]) == []
    assert str(chatbot(ASKED)) == "Your name is Anna."


def test_lists_of_anything_else_are_errors(chatbot: Chatbot) -> None:
    with pytest.raises(ValueError, match="a list has turns or histories, but not both"):
        chatbot(["How are you?", ["How are you?"]])
    with pytest.raises(ValueError, match="history 1 is the string 'How are you\\?'; give a list of turns"):
        chatbot.reply(["How are you?"])


@pytest.mark.parametrize("history", ["", " \t\n", [], [""], ["", " \u2003"], [[]]])
def test_a_history_without_text_is_an_error(chatbot: Chatbot, history: str | list[str]) -> None:
    with pytest.raises(
        ValueError, match="the history has no text to reply to; give at least one turn that is not empty"
    ):
        chatbot(history)
    with pytest.raises(ValueError, match="history 2 has no text to reply to"):
        chatbot.reply([ASKED, []])


@pytest.mark.parametrize("options", [{"beam": 1}, {"nbest": 3}, {"sample": True, "nbest": 4, "seed": 7}])
def test_a_batch_gives_the_replies_of_its_histories_alone(chatbot: Chatbot, options: dict[str, int]) -> None:
    together = chatbot.reply(HISTORIES, **options)
    for history, reply in zip(HISTORIES, together, strict=True):
        alone = chatbot(history, **options)
        assert [one.text for one in alone.nbest] == [one.text for one in reply.nbest]
        assert [one.logprob for one in alone.nbest] == pytest.approx([one.logprob for one in reply.nbest])


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.2), ("int8", 0.2)])
def test_engines_reply_like_the_model(
    chatbot: Chatbot, memorised_chat_run: Path, precision: str, tolerance: float
) -> None:
    fast = regard.load(memorised_chat_run, "cpu", precision)
    assert fast.engine is not fast.model
    assert (fast.turns, fast.longest, fast.options) == (chatbot.turns, chatbot.longest, chatbot.options)
    for reply, expected in zip(fast.reply(HISTORIES), chatbot.reply(HISTORIES), strict=True):
        assert reply.text == expected.text
        assert reply.logprob == pytest.approx(expected.logprob, abs=tolerance)


def test_only_the_last_turns_are_read(chatbot: Chatbot) -> None:
    assert chatbot(ASKED, turns=1).text != chatbot(ASKED).text
    assert chatbot(ASKED, turns=1).tokens == chatbot(ASKED[-1:]).tokens
    assert chatbot(["Where is the cat?", *ASKED], turns=3).logprob == pytest.approx(chatbot(ASKED).logprob)
    assert chatbot(["x"] * 500 + ASKED, turns=3).text == "Your name is Anna."


@given(st.lists(st.sampled_from(["", " ", "\t", "\n \u2003"]), max_size=3), st.sampled_from([" ", "\n", " \t "]))
def test_white_space_and_empty_turns_change_nothing(chatbot: Chatbot, blank: list[str], space: str) -> None:
    given_rows, rows = (
        chatbot.encode([[*blank, *(turn.replace(" ", space) + space for turn in ASKED), *blank], ASKED]).take(
            torch.tensor([0]).numpy()
        ),
        chatbot.encode([ASKED]),
    )
    assert given_rows.ids.tolist() == rows.ids.tolist()


def test_a_history_is_cut_at_its_beginning_to_the_length_of_training(chat_bundle: Bundle) -> None:
    def of_length(longest: int) -> Chatbot:
        return Chatbot(chat_bundle.model, chat_bundle.fields, chat_bundle.recipe.decode, longest=longest)

    size = len(of_length(1000).encode([ASKED[-2:]]).ids)
    assert of_length(size)(ASKED).logprob == pytest.approx(of_length(1000)(ASKED[-2:]).logprob)
    # Of a last turn that is too long, the symbol of its speaker and its end are left.
    rows = of_length(9).encode([["the cat " * 5000 + "is at home"]])
    whole = of_length(10**6).encode([["the cat " * 5000 + "is at home"]])
    assert rows.ids.tolist() == [whole.ids[0], *whole.ids[-8:].tolist()]


def test_log_probabilities_of_given_replies_are_those_of_single_steps(chatbot: Chatbot) -> None:
    found = chatbot.token_logprobs(HISTORIES, REPLIES)
    for history, reply, logprobs in zip(HISTORIES, REPLIES, found, strict=True):
        torch.testing.assert_close(torch.tensor(logprobs), torch.tensor(stepped(chatbot, history, reply)).double())
    assert chatbot.token_logprobs([], []) == []


def test_a_reply_has_the_log_probability_that_the_model_gives_it(chatbot: Chatbot) -> None:
    for reply in chatbot.reply(HISTORIES, nbest=3):
        for one in reply.nbest:
            (expected,) = chatbot.token_logprobs([reply.history], [one.text])
            assert one.token_logprobs == pytest.approx(expected.tolist())
            assert one.logprob == pytest.approx(expected.sum())
            assert len(one.tokens) == len(expected) - 1


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_scores_and_writes_replies_in_batches_as_alone(
    chatbot: Chatbot, family: str, tmp_path: Path
) -> None:
    bot = untrained(chatbot.fields, tmp_path, f"model={{kind='{family}', size='tiny', width=16, dropout=0.0}}")
    found = bot.token_logprobs(HISTORIES[:4], REPLIES[:4])
    for history, reply, logprobs in zip(HISTORIES, REPLIES, found, strict=False):
        torch.testing.assert_close(torch.tensor(logprobs), torch.tensor(stepped(bot, history, reply)).double())
    together = bot.reply(HISTORIES[:4], max_tokens=6)
    assert [reply.tokens for reply in together] == [bot(history, max_tokens=6).tokens for history in HISTORIES[:4]]


def test_perplexity_divides_by_tokens_words_and_bytes_of_the_replies(chatbot: Chatbot) -> None:
    replies = ["Your name is Ben.", "où?"]
    table = chatbot.perplexity([ASKED, ["How are you?"]], replies).to_json()
    nats = -sum(sum(stepped(chatbot, *pair)) for pair in zip([ASKED, ["How are you?"]], replies, strict=True))
    tokens = sum(len(chatbot.reply_field.tokenizer.encode(reply)) + 1 for reply in replies)
    assert (table["tokens"], table["words"], table["bytes"], table["characters"]) == (tokens, 5, 21, 20)
    assert table["perplexity"] == pytest.approx(math.exp(nats / tokens))
    assert table["word_perplexity"] == pytest.approx(math.exp(nats / 5))
    assert table["bits_per_byte"] == pytest.approx(nats / 21 / math.log(2))


def test_each_history_needs_one_reply_that_the_model_has_positions_for(chatbot: Chatbot, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 histories and 1 replies; give each history one reply"):
        chatbot.perplexity([ASKED, ASKED], ["Hello."])
    bot = untrained(chatbot.fields, tmp_path, "model.position=learned", "model.positions=32")
    assert (bot.longest, bot.max_reply) == (32, 31)
    with pytest.raises(ValueError, match="reply 2 has 40 tokens, but this model has positions for 31; shorten it"):
        bot.token_logprobs([ASKED, ASKED], ["Hello.", "." * 39])
    assert len(bot.token_logprobs([ASKED], ["." * 30])[0]) == 32
    assert bot.reply([ASKED * 9])[0].text is not None


def test_a_reply_ends_at_the_last_position_or_the_maximum(chatbot: Chatbot, tmp_path: Path) -> None:
    bot = untrained(chatbot.fields, tmp_path, "model.position=learned", "model.positions=32")
    assert len(bot(ASKED, min_tokens=31, beam=1).tokens) == 31
    assert len(chatbot(ASKED, max_tokens=3).tokens) == 3
    assert len(chatbot(ASKED, min_tokens=12).tokens) >= 12
    with pytest.raises(ValueError, match="min_tokens is 32, but this model has positions for 31 tokens"):
        bot(ASKED, min_tokens=32)


def test_replies_are_ranked_by_their_score(chatbot: Chatbot) -> None:
    reply = chatbot(ASKED, nbest=3, length_penalty=0.0)
    assert len(reply.nbest) == len({one.tokens for one in reply.nbest}) == 3
    assert [one.score for one in reply.nbest] == sorted((one.logprob for one in reply.nbest), reverse=True)
    assert (reply.text, reply.score) == (reply.nbest[0].text, reply.nbest[0].score)


def test_a_reply_as_json_lists_alternatives_only_if_there_are_some(chatbot: Chatbot) -> None:
    table = json.loads(json.dumps(chatbot(ASKED, nbest=2).to_json()))
    assert table.keys() == {"text", "score", "logprob", "tokens", "token_logprobs", "nbest"}
    assert table["nbest"][0]["text"] == table["text"] == "Your name is Anna."
    assert "nbest" not in chatbot(ASKED).to_json()


def test_the_same_seed_gives_the_same_sample_and_another_seed_another_one(chatbot: Chatbot) -> None:
    def sampled(seed: int) -> list[str]:
        return [reply.text for reply in chatbot.reply(HISTORIES, temperature=3.0, seed=seed)]

    assert sampled(1) == sampled(1) != sampled(2)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"beams": 3}, "there is no option 'beams'; did you mean beam"),
        ({"turns": 0}, "turns must be an integer of at least 1, but is 0"),
        ({"candidates": 10}, "candidates has no effect without a model that predicts histories from replies"),
        ({"rerank_weight": 0.1}, "rerank_weight has no effect without a model"),
        ({"nbest": 4}, "a beam of 3 cannot give 4 outputs; use beam=4 or more"),
        ({"beam": 2, "temperature": 0.5}, "beam needs beam search, but temperature needs sampling"),
        ({"stop": [""]}, "a stop string is empty"),
    ],
)
def test_options_without_a_meaning_are_errors(chatbot: Chatbot, options: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        chatbot(ASKED, **options)


@pytest.mark.parametrize("options", [{"beam": 1}, {}, {"sample": True}])
def test_a_reply_ends_before_a_stop_string(chatbot: Chatbot, options: dict[str, object]) -> None:
    assert chatbot(ASKED, stop=["is", "name "], **options).text in ("Your name ", "Your ")
    assert chatbot("How are you?", stop=["x"], beam=1).text == "Fine, thanks."


@pytest.mark.parametrize("options", [{"beam": 1}, {"temperature": 1.5, "seed": 3}, {"beam": 1, "stop": ["name is A"]}])
def test_the_pieces_of_a_streamed_reply_add_up_to_it(chatbot: Chatbot, options: dict[str, object]) -> None:
    for history in HISTORIES:
        pieces = list(chatbot.stream(history, **options))
        assert all(pieces)
        assert "".join(pieces) == chatbot(history, **options).text
    assert len(list(chatbot.stream(ASKED, beam=1))) > 3


def test_what_cannot_be_streamed_is_an_error(chatbot: Chatbot, reverse: Chatbot) -> None:
    with pytest.raises(ValueError, match="only a single hypothesis can be streamed; use sampling or beam=1"):
        next(chatbot.stream(ASKED))
    with pytest.raises(ValueError, match="a reply that is chosen among several cannot be streamed"):
        next(chatbot.reranked_by(reverse).stream(ASKED, beam=1))
    with pytest.raises(ValueError, match="the history has no text"):
        next(chatbot.stream([" "], beam=1))


def test_an_abandoned_stream_ends(chatbot: Chatbot) -> None:
    pieces = chatbot.stream(ASKED, beam=1)
    assert isinstance(pieces, Generator)
    next(pieces)
    pieces.close()
    assert chatbot(ASKED).text == "Your name is Anna."


def mutual(chatbot: Chatbot, reverse: Chatbot, replies: Sequence[Reply], weight: float) -> list[tuple[float, str]]:
    """Scores and texts of distinct replies by Li et al. 2016, §4.2, best first, by a plain loop."""
    best: dict[str, float] = {}
    for reply in replies:
        best[reply.text] = max(best.get(reply.text, -math.inf), reply.logprob)
    scored = []
    for text, logprob in best.items():
        (backwards,) = reverse.token_logprobs([[text]], [ASKED[-1]])
        scored.append(((1 - weight) * logprob + weight * float(backwards.sum()), text))
    return sorted(scored, reverse=True)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_reranked_replies_are_ordered_by_mutual_information(chatbot: Chatbot, reverse: Chatbot, weight: float) -> None:
    expected = mutual(chatbot, reverse, chatbot(ASKED, beam=6, nbest=6).nbest, weight)
    reply = chatbot.reranked_by(reverse)(ASKED, candidates=6, nbest=3, rerank_weight=weight)
    assert [one.text for one in reply.nbest] == [text for _, text in expected[:3]]
    assert [one.score for one in reply.nbest] == pytest.approx([score for score, _ in expected[:3]])
    if weight == 0.0:
        assert [one.logprob for one in reply.nbest] == sorted([one.logprob for one in reply.nbest], reverse=True)


def test_samples_that_are_the_same_text_are_one_candidate(chatbot: Chatbot, reverse: Chatbot) -> None:
    options = {"sample": True, "temperature": 0.7, "seed": 4}
    samples = chatbot(ASKED, nbest=30, **options).nbest
    assert len({sample.text for sample in samples}) < 30
    reply = chatbot.reranked_by(reverse)(ASKED, candidates=30, nbest=30, **options)
    expected = mutual(chatbot, reverse, samples, 0.5)
    assert [one.text for one in reply.nbest] == [text for _, text in expected]
    assert [one.score for one in reply.nbest] == pytest.approx([score for score, _ in expected])


def test_of_replies_that_are_the_same_before_a_stop_string_the_most_probable_one_counts(
    chatbot: Chatbot, reverse: Chatbot
) -> None:
    found = chatbot(ASKED, beam=8, nbest=8, stop=[" "]).nbest
    texts = [one.text for one in found]
    assert any(len({one.logprob for one in found if one.text == text}) > 1 for text in texts)
    reply = chatbot.reranked_by(reverse)(ASKED, beam=8, candidates=8, nbest=8, stop=[" "])
    expected = mutual(chatbot, reverse, found, 0.5)
    assert [one.text for one in reply.nbest] == [text for _, text in expected]
    assert [one.score for one in reply.nbest] == pytest.approx([score for score, _ in expected])


def test_reranking_chooses_among_a_batch_of_histories_and_a_turn_of_any_length(
    chatbot: Chatbot, reverse: Chatbot, tmp_path: Path
) -> None:
    both = chatbot.reranked_by(reverse)
    assert [reply.text for reply in both.reply([ASKED, HISTORIES[0]])] == ["Your name is Anna.", "Hello Anna."]
    assert both(ASKED, groups=3, diversity=0.5, beam=3).text
    assert chatbot.reverse is None
    short = untrained(chatbot.fields, tmp_path, "model.position=learned", "model.positions=32")
    short.is_reverse = True
    assert chatbot.reranked_by(short)(["name " * 500]).text


def test_only_a_reverse_model_reranks_and_only_a_forward_one_is_reranked(chatbot: Chatbot, reverse: Chatbot) -> None:
    assert reverse.is_reverse
    with pytest.raises(ValueError, match=r"the reranking chatbot was not trained with data.reverse = true"):
        chatbot.reranked_by(chatbot)
    with pytest.raises(ValueError, match=r"the chatbot to rerank was trained with data.reverse = true"):
        reverse.reranked_by(reverse)


def test_a_model_that_is_being_trained_keeps_training(chat_bundle: Bundle) -> None:
    model = chat_bundle.model
    assert isinstance(model, Seq2Seq)
    bot = Chatbot(model, chat_bundle.fields)
    model.train()
    try:
        bot(ASKED, beam=1)
        bot.token_logprobs([ASKED], ["Hello."])
        assert model.training
        assert bot.options == ChatOptions()
    finally:
        model.eval()
