"""Retrieval: batches and their negatives, the loss, training, recall, and what a trained run becomes."""

import gzip
import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.nn import functional

from regard.data.batching import Feed
from regard.data.fields import Fields, TextField, TurnsField
from regard.data.fields.lists import join_list
from regard.data.prepare import prepare
from regard.models.dual_encoder import DualEncoder
from regard.predict import Chatbot, DualEncoderRetriever, FusedRetriever, KnowledgeBase, ReplyRanker
from regard.recipe import ME, YOU, Recipe, parse
from regard.tasks import load as load_run
from regard.tasks import load_chatbot, load_retriever, make_task
from regard.tasks.retrieval import RetrievalBatch, RetrievalTask
from regard.text import Tokenizer, TokenizerSettings
from regard.train.cuda_graphs import GraphRunner, Launch
from regard.train.distributed import WorkerGroup
from regard.train.events import Event, Finished, Started, Validated
from regard.train.loop import train
from regard.train.setup import TrainingSetup, build_setup
from regard.train.stream import StaticShape

RECIPE = """
name = "colours"
task = "chat"
[data]
train = [{ path = "train.jsonl.gz" }]
valid = { path = "valid.jsonl.gz" }
turns = 3
longest = 32
[text]
kind = "word"
size = 80
bytes = false
[chat]
objective = "retrieve"
[model]
kind = "transformer"
width = 16
inner = 32
heads = 2
encoder_layers = 1
dropout = 0.0
[train]
steps = 150
tokens = 300
every = 75
rate = 0.01
warmup = 5
schedule = "constant"
smoothing = 0.1
precision = "float32"
choose = "recall"
"""
COLOURS = ["red", "green", "blue", "black", "white", "pink"]
THINGS = ["cat", "dog", "car", "house", "flower"]
Make = Callable[..., Recipe]


def dialogue(draw: random.Random) -> list[str]:
    """Return a dialogue in which the last reply names what the first turn named."""
    colour, thing = draw.choice(COLOURS), draw.choice(THINGS)
    return [
        f"I have a {colour} {thing} .",
        f"a {thing} is nice .",
        "which one is it ?",
        f"it is the {colour} {thing} .",
    ]


@pytest.fixture
def make(tmp_path: Path, shared_cache: None) -> Make:
    """Return a function that writes dialogues and returns a recipe for them, with `key=value` overrides."""

    def write(*overrides: str) -> Recipe:
        draw = random.Random(1)
        for name, count in (("train", 90), ("valid", 60)):
            lines = [json.dumps({"turns": dialogue(draw)}) for _ in range(count)]
            (tmp_path / f"{name}.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
        return parse(RECIPE, [f"data.root='{tmp_path}'", *overrides])

    return write


def set_up(recipe: Recipe, folder: Path) -> TrainingSetup:
    task = make_task(recipe)
    return build_setup(recipe, task, folder, WorkerGroup(torch.device("cpu")), prepare(recipe, task, folder))


def make_fields() -> Fields:
    words = " ".join([*COLOURS, *THINGS, "I have a is nice which one it the . ?"])
    settings = TokenizerSettings(kind="word", bytes=False, symbols=(YOU, ME))
    tokenizer = Tokenizer.learn([words], 80, settings)
    return Fields({"history": TurnsField(tokenizer), "reply": TextField(tokenizer)})


FIELDS = make_fields()
HISTORIES = [["red cat"], ["green", "dog ?"], ["blue car .", "it", "is nice"], ["red cat"], ["pink"]]
REPLIES = ["a red cat .", "the dog", "nice", "it is the cat", "the dog"]


def collated(recipe: Recipe, histories: list[list[str]] = HISTORIES, replies: list[str] = REPLIES) -> RetrievalBatch:
    columns = {"history": [join_list(turns) for turns in histories], "reply": replies}
    return RetrievalTask(recipe).collate(FIELDS.encode(columns), np.arange(len(replies)))


def encoder(recipe: Recipe) -> DualEncoder:
    torch.manual_seed(3)
    return RetrievalTask(recipe).build(FIELDS.sizes).double().eval()


def trained(recipe: Recipe, run: Path) -> list[Event]:
    return list(train(recipe, run, "cpu"))


def loss_by_loops(model: DualEncoder, batch: RetrievalBatch, smoothing: float) -> float:
    """Return the loss in plain loops over pairs of examples."""
    histories, replies = model.history_vectors(batch.history).detach(), model.reply_vectors(batch.reply).detach()
    scale = math.exp(model.log_scale.item())
    count = len(HISTORIES)
    total = 0.0
    for own in range(count):
        others = [
            other
            for other in range(count)
            if other != own and HISTORIES[own] != HISTORIES[other] and REPLIES[own] != REPLIES[other]
        ]
        for pairs in ([(own, other) for other in [own, *others]], [(other, own) for other in [own, *others]]):
            logits = [scale * float(histories[row] @ replies[column]) for row, column in pairs]
            partition = math.log(sum(map(math.exp, logits)))
            right, mean = partition - logits[0], partition - sum(logits) / len(logits)
            total += ((1 - smoothing) * right + smoothing * mean) / 2
    return total


@pytest.mark.parametrize("shared", ["true", "false"])
def test_the_loss_is_the_cross_entropy_of_both_directions_without_negatives_of_equal_text(
    make: Make, shared: str
) -> None:
    recipe = make(f"chat.shared={shared}")
    model, batch = encoder(recipe), collated(recipe)
    task = RetrievalTask(recipe)
    assert task.loss(model, batch).item() == pytest.approx(loss_by_loops(model, batch, 0.1), rel=1e-12)
    assert float(task.evaluate(model, batch)[0]) == pytest.approx(loss_by_loops(model, batch, 0.0), rel=1e-12)
    assert batch.units == 5


def test_without_equal_texts_and_smoothing_the_loss_is_that_of_torch(make: Make) -> None:
    recipe = make("train.smoothing=0.0")
    model, batch = encoder(recipe), collated(recipe, HISTORIES[:3], REPLIES[:3])
    logits = model.scale * model.history_vectors(batch.history) @ model.reply_vectors(batch.reply).T
    expected = sum(functional.cross_entropy(side, torch.arange(3), reduction="sum") for side in (logits, logits.T))
    torch.testing.assert_close(RetrievalTask(recipe).loss(model, batch), expected / 2)
    sums = RetrievalTask(recipe).evaluate(model, batch)
    assert int(sums[1]) == int((logits.argmax(-1) == torch.arange(3)).sum())


def test_a_model_to_which_all_replies_are_alike_gets_none_right(make: Make) -> None:
    recipe = make()
    model, batch = encoder(recipe), collated(recipe, HISTORIES[:3], REPLIES[:3])
    with torch.no_grad():
        model.history_output.weight.zero_()  # all products are 0
    assert RetrievalTask(recipe).evaluate(model, batch)[1] == 0


def test_a_history_begins_with_a_symbol_and_its_beginning_is_cut_and_a_reply_stands_between_symbols(
    make: Make,
) -> None:
    batch = collated(make("data.longest=5"), [["red cat", "dog", "a car"]], ["it is the red cat ."])
    tokenizer = FIELDS.tokenizers["reply"]
    pieces = [[tokenizer.piece(int(token)) for token in side.values] for side in (batch.history, batch.reply)]
    assert pieces[0][1:] == [YOU, "▁a", "▁car", pieces[1][-1]]
    assert pieces[1][1:-1] == ["▁it", "▁is", "▁the", "▁red", "▁cat"]
    assert pieces[0][0] == pieces[1][0]


def test_a_batch_never_has_more_tokens_than_its_lengths_say(make: Make) -> None:
    task = RetrievalTask(make("data.longest=4"))
    rows = FIELDS.encode({"history": [join_list(turns) for turns in HISTORIES], "reply": REPLIES})
    batch = task.collate(rows, np.arange(len(REPLIES)))
    history, reply = task.sequence_lengths({name: row.lengths for name, row in rows.items()})
    assert (history >= batch.history.lengths_B.numpy()).all()
    assert (reply == batch.reply.lengths_B.numpy()).all()


@pytest.fixture(scope="module")
def make_recipe() -> Recipe:
    """Return the recipe without files."""
    return parse(RECIPE, [])


@given(st.permutations(range(5)))
def test_the_order_of_a_batch_does_not_change_its_loss(make_recipe: Recipe, order: list[int]) -> None:
    model, task = encoder(make_recipe), RetrievalTask(make_recipe)
    shuffled = collated(make_recipe, [HISTORIES[at] for at in order], [REPLIES[at] for at in order])
    torch.testing.assert_close(task.loss(model, shuffled), task.loss(model, collated(make_recipe)))


def test_parts_of_a_batch_have_fewer_negatives_and_a_smaller_loss_so_that_it_is_not_divided(
    make_recipe: Recipe,
) -> None:
    model, task = encoder(make_recipe), RetrievalTask(make_recipe)
    batch = collated(make_recipe)
    parts = batch.split(2)
    assert len(parts) == 2
    assert sum(task.loss(model, part).item() for part in parts) < task.loss(model, batch).item()
    assert not task.divisible


@pytest.mark.parametrize("pooling", ["mean", "first", "attention"])
def test_batches_can_be_filled_and_captured(make: Make, tmp_path: Path, pooling: str) -> None:
    setup = set_up(make(f"chat.pooling={pooling}"), tmp_path)
    setup.model.double().eval()
    feed = setup.feed(300)
    batch = next(feed.epoch(0))[0]
    filled = StaticShape.from_feed(feed).fill(batch)
    assert len(filled) > len(batch)
    assert filled.units == batch.units
    torch.testing.assert_close(setup.module(filled), setup.module(batch))
    torch.testing.assert_close(setup.module(batch.rounded(64)), setup.module(batch))
    for left, right in zip(*(setup.task.evaluate(setup.model, each) for each in (filled, batch)), strict=True):
        torch.testing.assert_close(left, right)

    def capture(work: Launch) -> Launch:
        work()
        return work

    graphs = GraphRunner(setup.module, torch.device("cpu"), "float32", capture)
    results = [graphs.run(filled, 1.0) for _ in range(4)]
    assert {float(result.loss) for result in results} == {float(setup.module(filled).detach())}
    assert all(gradient is None or bool(gradient.isfinite().all()) for gradient in results[-1].gradients)


def test_equal_replies_are_no_negatives_however_their_subwords_are_sampled(make: Make, tmp_path: Path) -> None:
    recipe = make("text.kind=bpe", "text.size=60", "text.sampling=0.5")
    task = make_task(recipe)
    prepared = prepare(recipe, task, tmp_path)
    task = task.with_fields(prepared.fields)
    setup = build_setup(recipe, task, tmp_path, WorkerGroup(torch.device("cpu")), prepared)
    batch = next(setup.feed(300).epoch(0))[0]
    assert isinstance(batch, RetrievalBatch)
    field = prepared.fields["reply"]
    assert isinstance(field, TextField)
    ids = [tuple(part.tolist()) for part in batch.reply.to_list()]
    texts = [field.decode(part) for part in ids]
    assert len(set(texts)) < len(set(ids))
    assert [[left == right for left in texts] for right in texts] == (batch.reply_B[:, None] == batch.reply_B).tolist()


def test_a_dual_encoder_learns_validates_and_becomes_a_ranker_and_a_retriever(make: Make, tmp_path: Path) -> None:
    events = trained(make(), tmp_path / "run")
    assert next(event.unit for event in events if isinstance(event, Started)) == "replies"
    validated = [event for event in events if isinstance(event, Validated)][-1]
    assert [score.name for score in validated.scores] == ["recall@1 of 10", "recall@5 of 10"]
    assert validated.scores[0].value > 90
    assert len(validated.samples) == 3
    finished = events[-1]
    assert isinstance(finished, Finished)
    scores = finished.scores["valid"]["scores"]
    lines = gzip.decompress((tmp_path / "valid.jsonl.gz").read_bytes()).splitlines()
    distinct = len({reply for line in lines for reply in json.loads(line)["turns"][1:]})
    assert [score["name"] for score in scores] == [
        *("recall@1 of 10", "recall@5 of 10", f"recall@1 of {distinct}", f"recall@5 of {distinct}")
    ]
    assert f"candidates:{distinct}" in scores[2]["signature"]
    assert scores[2]["value"] > 80

    ranker = load_run(tmp_path / "run", "cpu")
    assert isinstance(ranker, ReplyRanker)
    *history, reply = json.loads(lines[0])["turns"]
    replies = [f"it is the {colour} {thing} ." for colour in COLOURS for thing in THINGS]
    assert ranker.rank(history, replies)[0][0] == reply
    (tmp_path / "base.tsv").write_text("".join(f"which one is it ?\t{reply}\n" for reply in replies), encoding="utf-8")
    retriever = ranker.with_knowledge(tmp_path / "base.tsv")
    assert retriever.retrieve(history)[0].text == reply
    assert retriever.retrieve(history) == load_retriever(tmp_path / "base.tsv", tmp_path / "run", "dual").retrieve(
        history
    )
    both = load_retriever(tmp_path / "base.tsv", tmp_path / "run")
    assert isinstance(both, FusedRetriever)
    assert isinstance(both.dense, DualEncoderRetriever)
    assert both.retrieve(history)[0].text == reply
    # Saved and loaded again, the weights are the same to the bit.
    again = load_retriever(KnowledgeBase.read(tmp_path / "base.tsv"), tmp_path / "run", device="cpu")
    assert again.retrieve_batch([history, "red"], top=5) == both.retrieve_batch([history, "red"], top=5)

    with pytest.raises(ValueError, match=r"chat.objective = 'retrieve', but this needs .* chat.objective = 'generate'"):
        load_chatbot(tmp_path / "run", "cpu")


def test_a_generative_run_is_no_ranker(make: Make, tmp_path: Path) -> None:
    recipe = make("chat.objective=generate", "train.steps=1", "train.choose=loss")
    trained(recipe, tmp_path / "run")
    assert isinstance(load_run(tmp_path / "run", "cpu"), Chatbot)
    base = KnowledgeBase.of([("red", "cat")])
    with pytest.raises(ValueError, match=r"chat.objective = 'generate', but this needs .* chat.objective = 'retrieve'"):
        load_retriever(base, tmp_path / "run", device="cpu")


@pytest.mark.parametrize("more", [(), ("model={ kind = 'rnn', width = 8, embedding = 8 }", "chat.shared=false")])
def test_a_resumed_run_equals_an_uninterrupted_one(make: Make, tmp_path: Path, more: tuple[str, ...]) -> None:
    for name, steps in (("straight", (6,)), ("resumed", (4, 6))):
        for count in steps:
            trained(make(*more, f"train.steps={count}", "train.every=2"), tmp_path / name)
    left, right = (load_file(tmp_path / name / "model.safetensors") for name in ("straight", "resumed"))
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_recall_does_not_depend_on_how_histories_are_divided_among_processes(make: Make, tmp_path: Path) -> None:
    recipe = make()
    setup = set_up(recipe, tmp_path)
    setup.model.eval()
    assert setup.valid is not None
    assert recipe.data.valid is not None
    parts: list[list[str]] = []

    class Collected:
        """The processes of a group, one after the other: each gets what all have gathered."""

        def __init__(self, rank: int, world_size: int) -> None:
            self.rank, self.world_size = rank, world_size

        def gather_strided(self, part: list[str]) -> list[str]:
            parts.append(part)
            if len(parts) < self.world_size:
                return part
            return [parts[at % self.world_size][at // self.world_size] for at in range(sum(map(len, parts)))]

    results = []
    for world_size in (1, 3):
        parts.clear()
        arguments = setup.model, setup.prepared.fields, setup.valid, recipe.data.valid
        results.append(
            [setup.task.final_scores(*arguments, Collected(rank, world_size)) for rank in range(world_size)][-1]
        )
    assert results[0] == results[1]


def test_the_feed_gives_every_example_once_in_an_epoch(make: Make, tmp_path: Path) -> None:
    feed = set_up(make(), tmp_path).feed(300)
    assert isinstance(feed, Feed)
    numbers = [int(number) for step in feed.epoch(0) for batch in step for number in batch.index_B]  # type: ignore[attr-defined]
    assert sorted(numbers) == list(range(len(feed.stores[0])))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.rdrop=1.0", "train.rdrop = 1 is for models that predict tokens or labels"),
        ("text.joint=false", "compares texts of one vocabulary; set text.joint = true"),
        ("model={ kind = 'luong' }", "model.kind = 'luong' has no encoder of its own"),
    ],
)
def test_a_recipe_that_a_dual_encoder_cannot_follow_is_an_error(override: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(RECIPE, [override])
