"""Chat: every family learns replies to histories, and training is validated and resumed like that of other tasks."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from tests.chats import DIALOGUES, chat_recipe
from tests.data.records import lists_from

import regard
from regard.data.fields import Fields, TextField, TurnsField
from regard.data.fields.lists import join_list
from regard.data.fields.nested import keep_last_parts
from regard.data.prepare import prepare
from regard.models.seq2seq import Seq2Seq
from regard.nn.cross_entropy import IGNORED
from regard.predict import Chatbot
from regard.recipe import ME, YOU, Recipe
from regard.tasks import Sample, load_chatbot, load_generator, load_translator, make_task
from regard.tasks.chat import ChatBatch, ChatTask, examples_of, warn_if_collapsed
from regard.text import END, START, Tokenizer, TokenizerSettings
from regard.train.distributed import WorkerGroup
from regard.train.events import Event, Finished, Started, Validated
from regard.train.loop import train
from regard.train.setup import build_setup
from regard.train.stream import StaticShape

TOKENIZER = Tokenizer.learn(["the cat sees a dog", "the dogs see"], 300, TokenizerSettings(symbols=(YOU, ME)))
FIELDS = Fields({"history": TurnsField(TOKENIZER), "reply": TextField(TOKENIZER)})
TURN = st.sampled_from(["the", "the cat", "dogs see a dog", "x", "◌"])
RECORDS = st.lists(st.tuples(st.lists(TURN, max_size=5), TURN), min_size=1, max_size=6)
FAMILIES = ("transformer", "sutskever", "bahdanau", "luong", "convs2s")
SHORT = ("train.steps=4", "train.every=2", "train.tokens=200", "train.warmup=1", "train.precision=float32")
VALID = "data.valid={path='train.txt'}"
TINY = "model={kind='transformer', size='tiny', width=16, inner=16, heads=2, dropout=0.0}"


def batch_of(task: ChatTask, records: Sequence[tuple[Sequence[str], str]]) -> ChatBatch:
    columns = {"history": [join_list(turns) for turns, _ in records], "reply": [reply for _, reply in records]}
    return task.collate(FIELDS.encode(columns), np.arange(len(records)))


def trained(recipe: Recipe, run: Path) -> list[Event]:
    return list(train(recipe, run, "cpu"))


def validations(events: Sequence[Event]) -> list[Validated]:
    return [event for event in events if isinstance(event, Validated)]


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> ChatTask:
    return ChatTask(chat_recipe(tmp_path_factory.mktemp("chat"), TINY, "data.longest=9"))


@pytest.fixture
def model(task: ChatTask) -> Seq2Seq:
    torch.manual_seed(1)
    return task.build(FIELDS.sizes).double().eval()


@given(RECORDS)
def test_a_batch_has_what_is_left_of_histories_and_replies_shifted_against_their_labels(
    task: ChatTask, records: list[tuple[list[str], str]]
) -> None:
    batch = batch_of(task, records)
    histories = FIELDS["history"].encode([join_list(turns) for turns, _ in records])
    replies = [TOKENIZER.encode(reply) for _, reply in records]
    assert [ids.tolist() for ids in batch.history.to_list()] == lists_from(keep_last_parts(histories, 9))
    assert batch.history.longest <= 9
    assert [ids.tolist() for ids in batch.reply.to_list()] == [[START, *ids] for ids in replies]
    assert batch.labels_N.tolist() == [token for ids in replies for token in [*ids, END]]
    lengths = {"history": histories.lengths, "reply": np.array(list(map(len, replies)))}
    assert batch.units == task.units(lengths) == batch.reply.tokens
    for counted, sequences in zip(task.sequence_lengths(lengths), (batch.history, batch.reply), strict=True):
        assert (counted >= sequences.lengths_B.numpy()).all()
    assert task.flops(task.build(FIELDS.sizes), lengths) > 0


@given(RECORDS)
def test_a_batch_has_the_loss_of_its_examples(task: ChatTask, records: list[tuple[list[str], str]]) -> None:
    torch.manual_seed(1)
    model = task.build(FIELDS.sizes).double().eval()
    whole = task.evaluate(model, batch_of(task, records))
    alone = [task.evaluate(model, batch_of(task, [record])) for record in records]
    torch.testing.assert_close(whole, torch.stack(alone).sum(0))


@pytest.mark.parametrize("rdrop", [0.0, 1.0])
def test_filling_or_splitting_a_batch_changes_no_loss(task: ChatTask, model: Seq2Seq, rdrop: float) -> None:
    settings = task.recipe.train.model_copy(update={"rdrop": rdrop})
    other = ChatTask(task.recipe.model_copy(update={"train": settings}))
    batch = batch_of(task, [(["the", "a dog"], "the cat"), ([], "x"), (["the cat"], "dogs see")])
    filled = batch.rounded(64)
    assert (filled.labels_N == IGNORED).any()
    torch.testing.assert_close(other.loss(model, filled), other.loss(model, batch))
    torch.testing.assert_close(other.evaluate(model, filled), other.evaluate(model, batch))
    torch.testing.assert_close(sum(other.loss(model, part) for part in batch.split(2)), other.loss(model, batch))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains_and_its_run_replies_as_it_was_validated(family: str, tmp_path: Path) -> None:
    recipe = chat_recipe(
        tmp_path, f"model={{kind='{family}', size='tiny', width=16, dropout=0.0}}", VALID, *SHORT, "train.steps=2"
    )
    events = trained(recipe, tmp_path / "run")
    (validated,) = validations(events)
    chatbot = load_chatbot(tmp_path / "run", "cpu", "float32")
    assert (chatbot.turns, chatbot.longest, chatbot.is_reverse) == (6, 60, False)
    examples = [(dialogue[:at], dialogue[at]) for dialogue in DIALOGUES for at in range(1, len(dialogue))]
    perplexity = chatbot.perplexity(*map(list, zip(*examples, strict=True))).to_json()["perplexity"]
    assert perplexity == pytest.approx(validated.perplexity, rel=1e-4)
    for sample in validated.samples:
        assert sample == Sample(sample.input, sample.reference, chatbot(sample.input.split(" / "), beam=1).text)


@pytest.mark.parametrize("settings", [(TINY,), ("model={kind='luong', size='tiny', width=16}", "text.sampling=0.1")])
def test_a_stopped_run_resumes_to_the_same_bits_and_the_best_weights_are_those_of_the_best_bleu(
    settings: tuple[str, ...], tmp_path: Path
) -> None:
    recipe = chat_recipe(tmp_path, VALID, *SHORT, "train.choose=bleu", *settings)
    events = trained(recipe, tmp_path / "whole")
    trained(chat_recipe(tmp_path, VALID, *SHORT, "train.choose=bleu", *settings, "train.steps=2"), tmp_path / "parts")
    resumed = trained(recipe, tmp_path / "parts")
    assert [event.step for event in resumed if isinstance(event, Started)] == [2]
    left, right = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(left[name], right[name]) for name in left)
    first, second = validations(events)
    assert [score.name for score in first.scores] == ["BLEU", "distinct-1", "distinct-2"]
    ranks = [(event.scores[0].value, -event.loss) for event in (first, second)]
    assert second.best == (ranks[1] > ranks[0])
    assert first.predicted == 13


def test_a_learned_run_reports_its_scores_and_replies_by_what_was_said_before(tmp_path: Path) -> None:
    recipe = chat_recipe(
        tmp_path, VALID, "train={steps=60, every=60, rate=5e-3, warmup=5, precision='float32', schedule='constant'}"
    )
    events = trained(recipe, tmp_path / "run")
    (validated,) = validations(events)
    assert validated.accuracy is not None
    assert validated.accuracy > 0.9
    assert isinstance(events[-1], Finished)
    scores = json.loads((tmp_path / "run" / "scores.json").read_text(encoding="utf-8"))["valid"]["scores"]
    values = {score["name"]: score["value"] for score in scores}
    assert values.keys() == {"BLEU", "distinct-1", "distinct-2", "exact match"}
    assert values["exact match"] > 90
    chatbot = regard.load(tmp_path / "run", "cpu")
    assert isinstance(chatbot, Chatbot)
    assert chatbot(DIALOGUES[1][:3]).text == "Your name is Ben."


def test_validation_data_may_have_empty_histories_and_replies(tmp_path: Path) -> None:
    (tmp_path / "valid.tsv").write_text("Hi.\tHello.\n\tHello.\nWho?\t\n \t \n", encoding="utf-8")
    recipe = chat_recipe(tmp_path, TINY, "data.valid={path='valid.tsv'}", "data.test={path='valid.tsv'}", *SHORT)
    events = trained(recipe, tmp_path / "run")
    assert [np.isfinite(event.loss) for event in validations(events)] == [True, True]
    assert [(sample.input, sample.output) for sample in validations(events)[0].samples][1] == ("", "")


def test_histories_are_given_as_turns_and_a_smaller_count_is_a_part_of_a_larger_one(
    task: ChatTask, tmp_path: Path
) -> None:
    recipe = chat_recipe(tmp_path, TINY, VALID)
    prepared = prepare(recipe, task, tmp_path / "run")
    assert prepared.valid is not None
    histories, replies = examples_of(prepared.valid.store, prepared.fields, 13)
    assert (histories[2], replies[2]) == (DIALOGUES[0][:3], DIALOGUES[0][3])
    few, many = (examples_of(prepared.valid.store, prepared.fields, count) for count in (3, 6))
    assert few[0] == many[0][:3]


def test_long_histories_are_cut_and_long_replies_left_out_of_training_and_validation(tmp_path: Path) -> None:
    long = "the cat " * 60
    (tmp_path / "talk.txt").write_text(f"Hi.\nHello.\n\n{long}\nYes.\n\nWell?\n{long}\n", encoding="utf-8")
    recipe = chat_recipe(tmp_path, TINY, "data.train=[{path='talk.txt'}]", "data.valid={path='talk.txt'}", *SHORT)
    prepared = prepare(recipe, ChatTask(recipe), tmp_path / "run")
    assert prepared.stores[0].report.dropped == {"empty": 0, "long": 1, "duplicate": 0}
    assert prepared.valid is not None
    assert prepared.valid.too_long == (3,)
    message = "data.valid: 1 of 3 records have more than data.longest = 60 tokens and are left out (record 3)"
    assert message in prepared.notices()
    assert all(np.isfinite(event.loss) for event in validations(trained(recipe, tmp_path / "run")))


@pytest.mark.parametrize("settings", [("data.order=length",), ("text.sampling=0.5",), ("text.kind=word",)])
def test_training_batches_have_the_turns_of_the_data_in_every_order_and_segmentation(
    settings: tuple[str, ...], tmp_path: Path
) -> None:
    recipe = chat_recipe(tmp_path, TINY, *SHORT, *settings)
    task = ChatTask(recipe)
    prepared = prepare(recipe, task, tmp_path / "run")
    setup = build_setup(recipe, task, tmp_path / "run", WorkerGroup(torch.device("cpu")), prepared)
    feed = setup.feed(200)
    field = prepared.fields["history"]
    assert isinstance(field, TurnsField)
    batches = [batch for step in feed.epoch(0) for batch in step]
    seen = []
    for batch in batches:
        assert isinstance(batch, ChatBatch)
        stored = prepared.stores[0].gather(batch.index_B.numpy())
        seen += batch.index_B.tolist()
        for ids, row in zip(batch.history.to_list(), lists_from(stored["history"]), strict=True):
            assert field.decode(ids.tolist()) == field.decode(row)
        for ids, row in zip(batch.reply.to_list(), lists_from(stored["reply"]), strict=True):
            assert TextField(field.tokenizer).decode(ids.tolist()) == TextField(field.tokenizer).decode(row)
    assert sorted(seen) == list(range(13))
    setup.model.eval()
    torch.testing.assert_close(setup.module(StaticShape.from_feed(feed).fill(batches[0])), setup.module(batches[0]))


@pytest.mark.parametrize("vocabulary", ["start", "new"])
def test_a_chat_starts_from_a_translator_whose_vocabulary_has_no_speakers(
    memorised: Path, tmp_path: Path, vocabulary: str
) -> None:
    text = '{"data": {"train": [{"path": "talk.txt"}]}, "task": "chat"}'
    (tmp_path / "talk.txt").write_text("I can go.\nYou can go alone.\n\nHi.\nHello.\n", encoding="utf-8")
    overrides = [f"data.root='{tmp_path}'", f"train.start='{memorised}'", f"train.vocabulary={vocabulary}", *SHORT]
    overrides += ["text.size=400"] * (vocabulary == "new")
    recipe = regard.recipe.parse(_toml(text), overrides)
    trained(recipe, tmp_path / "run")
    chatbot = load_chatbot(tmp_path / "run", "cpu")
    tokenizer = chatbot.history_field.tokenizer
    assert {YOU, ME} <= set(tokenizer.settings.symbols)
    assert [tokenizer.piece(number) for number in chatbot.encode([["Hi.", "Hello."]]).ids[[0]]] == [ME]
    assert chatbot("I can go.").text is not None


def _toml(text: str) -> str:
    table = json.loads(text)
    return f'task = "{table["task"]}"\n[data]\ntrain = [{{ path = "{table["data"]["train"][0]["path"]}" }}]\n'


def collapsed(replies: list[str], references: list[str], caplog: pytest.LogCaptureFixture) -> str:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "regard"):
        warn_if_collapsed(replies, references)
    return caplog.text


def test_replies_that_collapse_are_warned_of_and_others_are_not(caplog: pytest.LogCaptureFixture) -> None:
    references = [f"Reply {number}." for number in range(100)]
    dull = ["I don't know."] * 30 + references[30:]
    text = collapsed(dull, references, caplog)
    assert "30 % of the replies to validation data are 'I don't know.', which 0 % of the references are" in text
    assert not collapsed(dull[1:], references[1:], caplog)  # 29 of 99
    assert not collapsed(references, references, caplog)
    assert not collapsed(["Yes."] * 49, references[:49], caplog)  # too few to say anything
    # References that repeat a reply half as often may be repeated.
    assert not collapsed(["Yes."] * 60 + references[60:], ["Yes."] * 30 + references[30:], caplog)
    assert collapsed(["Yes."] * 61 + references[61:], ["Yes."] * 30 + references[30:], caplog)
    # A model that writes lower case repeats them, too.
    assert not collapsed(["yes."] * 60 + references[60:], ["Yes."] * 30 + references[30:], caplog)
    assert not collapsed([], [], caplog)


def test_commands_and_functions_for_other_tasks_refuse_the_run(memorised_chat_run: Path, memorised: Path) -> None:
    trained_with = "was trained with task = 'chat' and chat.objective = 'generate', but this needs a run with"
    for load in (load_translator, load_generator):
        with pytest.raises(ValueError, match=f"{trained_with} .*; `regard chat` uses such a run"):
            load(memorised_chat_run)
    with pytest.raises(ValueError, match=r"task = 'translation', but this needs a run with task = 'chat'"):
        load_chatbot(memorised)


def test_a_recipe_of_chat_makes_the_task(tmp_path: Path) -> None:
    task = make_task(chat_recipe(tmp_path, "data.drop=['empty', 'ratio', 'copy', 'long']"))
    assert isinstance(task, ChatTask)
    assert list(task.filters) == ["empty", "long"]
    assert task.field_of("encoder.embedding.weight") == "history"
    assert {task.field_of(name) for name in ("decoder.embedding.weight", "output.weight")} == {"reply"}
