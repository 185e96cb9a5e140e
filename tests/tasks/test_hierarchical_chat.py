"""Chat with the families that read turns: training, resuming, replies, and what they attend to."""

from collections.abc import Callable, Sequence
from itertools import chain, pairwise, product
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.data.fields import Fields, TextField, TurnsField
from regard.data.fields.lists import join_list
from regard.data.prepare import prepare
from regard.models.seq2seq import Seq2Seq
from regard.predict.chat_attention import reply_attention
from regard.predict.chatbot import Chatbot
from regard.recipe import ME, YOU, Recipe, parse
from regard.tasks.chat import ChatTask, HierarchicalChatBatch
from regard.text import PAD, Tokenizer
from regard.train.distributed import WorkerGroup
from regard.train.events import Validated
from regard.train.loop import train
from regard.train.setup import build_setup
from regard.train.stream import StaticShape

MODELS = {
    "hran": "model={kind='hran', width=32, dropout=0.0}",
    "hierarchical": (
        "model={kind='hierarchical', width=32, inner=64, heads=2, encoder_layers=1, turn_layers=1, "
        "decoder_layers=2, dropout=0.0}"
    ),
}
every_family = pytest.mark.parametrize("family", MODELS)
NAMES, THINGS = ("Anna", "Ben", "Carla", "Dora", "Emil"), ("tea", "milk", "juice")
DIALOGUES = [
    [f"I am {name} .", "Nice .", f"I like {thing} .", "Well .", "What is my name ?", f"{name} ."]
    for name, thing in product(NAMES, THINGS)
]
RECIPE = """
task = "chat"
[data]
train = [{ path = "train.jsonl" }]
valid = { path = "train.jsonl" }
[text]
kind = "word"
size = 300
[train]
steps = 120
tokens = 300
rate = 0.01
schedule = "constant"
optimiser = "adamw"
warmup = 10
every = 60
smoothing = 0.0
precision = "float32"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with dialogues whose last reply depends on the first turn."""
    folder = tmp_path_factory.mktemp("chat")
    lines = [f'{{"turns": [{", ".join(f"{turn!r}" for turn in turns)}]}}'.replace("'", '"') for turns in DIALOGUES]
    (folder / "train.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def recipe(folder: Path, family: str, *overrides: str) -> Recipe:
    return parse(RECIPE, [f"data.root='{folder}'", MODELS[family], *overrides])


@pytest.fixture(scope="module")
def trained(folder: Path) -> Callable[[str], Path]:
    """Return a function that trains a family once and returns its run."""
    runs: dict[str, Path] = {}

    def run(family: str) -> Path:
        if family not in runs:
            events = list(train(recipe(folder, family), folder / family, "cpu"))
            validated = [event for event in events if isinstance(event, Validated)]
            assert validated[-1].loss < validated[0].loss
            runs[family] = folder / family
        return runs[family]

    return run


def chatbot(run: Path) -> Chatbot:
    loaded = regard.load(run, "cpu")
    assert isinstance(loaded, Chatbot)
    return loaded


@every_family
def test_a_reply_that_needs_an_earlier_turn_is_learned(trained: Callable[[str], Path], family: str) -> None:
    bot = chatbot(trained(family))
    assert bot.hierarchical
    for search in ({}, {"beam": 3}):
        replies = bot([turns[:-1] for turns in DIALOGUES], **search)
        assert [reply.text for reply in replies] == [turns[-1] for turns in DIALOGUES]
    assert "".join(bot.stream(DIALOGUES[0][:-1], beam=1)) == DIALOGUES[0][-1]
    assert bot.perplexity([DIALOGUES[0][:-1]], [DIALOGUES[0][-1]]).to_json()["perplexity"] < 1.2


@every_family
def test_histories_of_any_number_of_turns_get_the_replies_they_get_alone(
    trained: Callable[[str], Path], family: str
) -> None:
    bot = chatbot(trained(family))
    histories = [DIALOGUES[4][:count] for count in (1, 2, 5)] + [["x"] * 30, ["", "Nice .", " "]]
    together = bot.reply(histories, beam=2)
    assert [reply.text for reply in together] == [bot(history, beam=2).text for history in histories]
    for reply in together:
        assert reply.logprob == pytest.approx(bot(reply.history, beam=2).logprob, abs=1e-4)


@every_family
def test_the_attention_of_a_reply_sums_to_one(trained: Callable[[str], Path], family: str) -> None:
    found = reply_attention(chatbot(trained(family)), DIALOGUES[3][:-1], DIALOGUES[3][-1])
    assert [turn.text for turn in found.turns] == DIALOGUES[3][:-1]
    by_turn = np.stack([turn.weights_Q for turn in found.turns])
    np.testing.assert_allclose(by_turn.sum(0), np.ones(2), rtol=1e-5)
    for turn in found.turns:
        assert turn.word_weights_QK.shape == (2, len(turn.text.split()))
        assert (turn.word_weights_QK >= 0).all()
        assert (turn.word_weights_QK.sum(1) <= turn.weights_Q + 1e-6).all()


@every_family
def test_a_run_that_was_interrupted_resumes_to_the_same_weights(
    folder: Path, trained: Callable[[str], Path], tmp_path: Path, family: str
) -> None:
    for steps in (60, 120):
        list(train(recipe(folder, family, f"train.steps={steps}"), tmp_path / "parts", "cpu"))
    left, right = (load_file(run / "model.safetensors") for run in (trained(family), tmp_path / "parts"))
    assert all(torch.equal(left[name], right[name]) for name in left)


TOKENIZER = Tokenizer.learn(chain.from_iterable(DIALOGUES), 300).extended((YOU, ME))
FIELDS = Fields({"history": TurnsField(TOKENIZER), "reply": TextField(TOKENIZER)})


def task_of(family: str, *overrides: str) -> ChatTask:
    return ChatTask(recipe(Path(), family, *overrides))


def batch_of(task: ChatTask, dialogues: Sequence[Sequence[str]]) -> HierarchicalChatBatch:
    histories, replies = [join_list(turns[:-1]) for turns in dialogues], [turns[-1] for turns in dialogues]
    batch = task.collate(FIELDS.encode({"history": histories, "reply": replies}), np.arange(len(dialogues)))
    assert isinstance(batch, HierarchicalChatBatch)
    return batch


def model_of(task: ChatTask) -> Seq2Seq:
    torch.manual_seed(1)
    return task.build(FIELDS.sizes).double().eval()


SOME = [DIALOGUES[0], DIALOGUES[1][:3], ["What ?", "Well ."]]


@every_family
@pytest.mark.parametrize("overrides", [(), ("train.rdrop=1.0",)], ids=["plain", "rdrop"])
def test_filling_and_splitting_a_batch_changes_no_loss(family: str, overrides: tuple[str, ...]) -> None:
    task = task_of(family, *overrides)
    model, batch = model_of(task), batch_of(task, SOME)
    for filled in (batch.filled(128, 8, 64), batch.rounded(64)):
        assert (filled.history.values == PAD).any()
        assert filled.sizes.tokens > batch.sizes.tokens
        torch.testing.assert_close(task.loss(model, filled), task.loss(model, batch))
        torch.testing.assert_close(task.evaluate(model, filled), task.evaluate(model, batch))
    parts = batch.split(3)
    assert len(parts) > 1
    torch.testing.assert_close(sum(task.loss(model, part) for part in parts), task.loss(model, batch))


@every_family
def test_the_loss_of_a_batch_does_not_depend_on_earlier_turns_beyond_the_longest_history(family: str) -> None:
    task = task_of(family, "data.longest=16")
    model = model_of(task)
    long = [*DIALOGUES[7][:3], *DIALOGUES[0]]
    torch.testing.assert_close(
        task.loss(model, batch_of(task, [long])), task.loss(model, batch_of(task, [DIALOGUES[7][:3] + long]))
    )


@every_family
def test_training_batches_with_sampled_subwords_have_the_turns_of_the_data(
    folder: Path, tmp_path: Path, family: str
) -> None:
    sampled = recipe(folder, family, "text.kind=bpe", "text.size=300", "text.sampling=0.5")
    task = ChatTask(sampled)
    prepared = prepare(sampled, task, tmp_path / "run")
    setup = build_setup(sampled, task, tmp_path / "run", WorkerGroup(torch.device("cpu")), prepared)
    store, field = prepared.stores[0], prepared.fields["history"]
    assert isinstance(field, TurnsField)
    for batch in (step[0] for step in setup.feed(300).epoch(0)):
        assert isinstance(batch, HierarchicalChatBatch)
        stored = store.gather(batch.index_B.numpy())["history"]
        parts, members, _ = batch.inputs.parts()
        expected = [field.turns(stored.ids[begin:end].tolist()) for begin, end in pairwise(stored.offsets)]
        assert members.lengths_B.tolist() == list(map(len, expected))
        turns = [field.tokenizer.decode(ids[1:].tolist()) for ids in parts.to_list()]
        assert turns == [field.tokenizer.decode(turn) for history in expected for turn in history]


@every_family
def test_a_batch_of_the_size_for_compilation_has_the_loss_of_the_batch(
    folder: Path, tmp_path: Path, family: str
) -> None:
    chosen = recipe(folder, family)
    task = ChatTask(chosen)
    prepared = prepare(chosen, task, tmp_path / "run")
    setup = build_setup(chosen, task, tmp_path / "run", WorkerGroup(torch.device("cpu")), prepared)
    feed = setup.feed(300)
    first = next(iter(feed.epoch(0)))[0]
    torch.testing.assert_close(setup.module(StaticShape.from_feed(feed).fill(first)), setup.module(first))


@every_family
def test_the_operations_of_a_history_grow_with_its_tokens_and_turns(family: str) -> None:
    task, other = task_of(family), task_of(family, "data.turns=1")
    model = model_of(task)

    def flops(chosen: ChatTask, tokens: int) -> float:
        return chosen.flops(model, {"history": np.array([tokens]), "reply": np.array([5])})

    assert flops(task, 60) == model.forward_flops([[12] * 5], [6])
    assert flops(task, 61) == model.forward_flops([[11, 10, 10, 10, 10, 10]], [6])
    assert flops(other, 60) == model.forward_flops([[60]], [6])
    assert flops(task, 0) > 0


@every_family
def test_other_uses_of_the_families_are_refused(family: str) -> None:
    with pytest.raises(ValueError, match=f"model.kind = '{family}' is not a model for task = 'translation'"):
        parse("[data]\ntrain = [{ to = 'de', pairs = 10 }]", [f"model.kind={family}"])
    with pytest.raises(ValueError, match=f"model.kind = '{family}' has no encoder of its own"):
        recipe(Path(), family, "chat.objective=retrieve")
    with pytest.raises(ValueError, match=r"model.tied = 'all' shares the embedding of the history"):
        recipe(Path(), family, "text.joint=false")
