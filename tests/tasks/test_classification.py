"""Classification: batches, losses, class weights, training and resuming, and bad input."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from regard.data.fields import DocumentField, Fields, LabelField, LabelsField, TextField
from regard.data.prepare import Prepared, prepare
from regard.models.classifier import Classifier
from regard.predict import TextClassifier
from regard.recipe import Recipe, parse
from regard.tasks import load as load_run
from regard.tasks import make_task
from regard.tasks.classification import ClassificationBatch, ClassificationTask, DocumentBatch
from regard.text import Tokenizer, TokenizerSettings
from regard.train.cuda_graphs import GraphRunner, Launch
from regard.train.distributed import WorkerGroup
from regard.train.estimate import estimate_cost
from regard.train.events import Event, Finished, Noticed, Started, Validated
from regard.train.loop import train
from regard.train.setup import TrainingSetup, build_setup
from regard.train.stream import CpuParts, StaticShape

RECIPE = """
name = "colours"
task = "classification"
[data]
train = [{ path = "train.tsv" }]
valid = { path = "valid.tsv" }
[text]
kind = "word"
size = 60
bytes = false
[model]
kind = "han"
width = 8
embedding = 8
attention_width = 8
dropout = 0.1
[train]
steps = 40
tokens = 256
every = 20
rate = 0.03
warmup = 2
schedule = "constant"
precision = "float32"
"""
FLAT = (
    "model={ kind = 'transformer', width = 16, inner = 32, heads = 2, encoder_layers = 1, dropout = 0.1 }",
    "train.rate=0.01",
)
SEVERAL = "classification.several=true"
WORDS = ["the", "a", "cat", "dog", "sits", "runs", "on", "mat", "here", "now"]
Make = Callable[..., Recipe]


def colourful(draw: random.Random, several: bool) -> tuple[str, str]:
    """Return a document and the colours that it names: one, or any number."""
    colours = draw.sample(["red", "green", "blue"], draw.randrange(3) if several else 1)
    sentences = [draw.choices(WORDS, k=draw.randint(1, 4)) for _ in range(draw.randint(1, 3))]
    for colour in colours:
        draw.choice(sentences).append(colour)
    return " ".join(" ".join(words).capitalize() + " ." for words in sentences), ",".join(colours)


@pytest.fixture
def make(tmp_path: Path, shared_cache: None) -> Make:
    """Return a function that writes corpora and returns a recipe for them, with `key=value` overrides."""

    def write(*overrides: str, valid: str | None = None) -> Recipe:
        draw = random.Random(1)
        for name, count in (("train", 120), ("valid", 30)):
            pairs = [colourful(draw, SEVERAL in overrides) for _ in range(count)]
            (tmp_path / f"{name}.tsv").write_text("".join("\t".join(pair) + "\n" for pair in pairs), encoding="utf-8")
        if valid is not None:
            (tmp_path / "valid.tsv").write_text(valid, encoding="utf-8")
        return parse(RECIPE, [f"data.root='{tmp_path}'", *overrides])

    return write


def set_up(recipe: Recipe, folder: Path) -> TrainingSetup:
    task = make_task(recipe)
    return build_setup(recipe, task, folder, WorkerGroup(torch.device("cpu")), prepare(recipe, task, folder))


def fields(several: bool = False, hierarchical: bool = False) -> Fields:
    settings = TokenizerSettings(kind="word", bytes=False)
    tokenizer = Tokenizer.learn([" ".join(WORDS), "red green blue ."], 60, settings)
    classes = ("blue", "green", "red")
    return Fields(
        {
            "text": (DocumentField if hierarchical else TextField)(tokenizer),
            "label": (LabelsField if several else LabelField)(classes),
        }
    )


def collated(recipe: Recipe, texts: list[str], labels: list[str]) -> ClassificationBatch:
    task = ClassificationTask(recipe)
    chosen = fields(recipe.classification.several, recipe.model.kind == "han")
    batch = task.collate(chosen.encode({"text": texts, "label": labels}), np.arange(len(texts)))
    assert isinstance(batch, ClassificationBatch)
    return batch


def classifier(recipe: Recipe) -> Classifier:
    torch.manual_seed(3)
    model = ClassificationTask(recipe).build(fields().sizes)
    assert isinstance(model, Classifier)
    return model.double().eval()


def trained(recipe: Recipe, run: Path) -> list[Event]:
    return list(train(recipe, run, "cpu"))


TEXTS, LABELS = ["the red cat .", "a dog .", "blue green ."], ["red", "green", "blue"]


def test_a_text_gets_its_symbols_and_a_document_its_sentences(make: Make) -> None:
    flat, nested = collated(make(*FLAT), TEXTS, LABELS), collated(make(), ["The cat . A dog .", ""], ["red", "red"])
    assert flat.tokens.lengths_B.tolist() == [6, 5, 5]
    assert isinstance(nested, DocumentBatch)
    assert [part.tolist() for part in nested.sizes.to_list()] == [[3, 3], []]
    assert (flat.units, nested.units) == (3, 2)


def test_a_long_text_is_cut_at_its_end(make: Make) -> None:
    whole, cut = (collated(make(*FLAT, *more), ["the red cat ."], ["red"]) for more in ((), ("data.longest=2",)))
    assert cut.tokens.values.tolist() == [*whole.tokens.values[:3].tolist(), 3]
    nested = collated(make("data.longest=5"), ["The cat . A dog ."], ["red"])
    assert isinstance(nested, DocumentBatch)
    assert nested.sizes.values.tolist() == [3, 1]
    assert nested.tokens.tokens == 4


@pytest.mark.parametrize("several", [False, True])
def test_a_batch_never_has_more_tokens_than_its_lengths_say(make: Make, several: bool) -> None:
    for more in (FLAT, ()):
        recipe = make(*more, "data.longest=4", *[SEVERAL] * several)
        chosen = fields(several, recipe.model.kind == "han")
        rows = chosen.encode({"text": ["The cat . A dog . Now .", "", "red"], "label": ["red", "green", "blue"]})
        task = ClassificationTask(recipe)
        batch = task.collate(rows, np.arange(3))
        assert isinstance(batch, ClassificationBatch)
        lengths = task.sequence_lengths({name: row.lengths for name, row in rows.items()})
        assert (lengths[0] >= batch.tokens.lengths_B.numpy()).all()


def test_the_loss_is_the_smoothed_cross_entropy_of_torch(make: Make) -> None:
    recipe = make(*FLAT, "train.smoothing=0.1")
    model, batch = classifier(recipe), collated(recipe, TEXTS, LABELS)
    logits, labels = model(batch.tokens), torch.tensor([2, 1, 0])
    expected = functional.cross_entropy(logits, labels, label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(ClassificationTask(recipe).loss(model, batch), expected)
    sums = ClassificationTask(recipe).evaluate(model, batch)
    torch.testing.assert_close(sums[0], functional.cross_entropy(logits, labels, reduction="sum"))
    assert int(sums[1]) == int((logits.argmax(-1) == labels).sum())


def test_the_loss_of_several_labels_is_the_binary_cross_entropy_of_torch(make: Make) -> None:
    recipe = make(*FLAT, SEVERAL, "train.smoothing=0.2", "classification.weights=balanced")
    model, batch = classifier(recipe), collated(recipe, TEXTS, ["red, blue", "", "green"])
    model.class_weights_V.copy_(torch.tensor([2.0, 0.5, 3.0]))
    logits, truth = model(batch.tokens), torch.tensor([[1.0, 0, 1], [0, 0, 0], [0, 1, 0]]).double()
    expected = functional.binary_cross_entropy_with_logits(
        logits, 0.8 * truth + 0.1, pos_weight=torch.tensor([2.0, 0.5, 3.0]).double(), reduction="sum"
    )
    torch.testing.assert_close(ClassificationTask(recipe).loss(model, batch), expected)
    loss, right = ClassificationTask(recipe).evaluate(model, batch)
    torch.testing.assert_close(
        loss, functional.binary_cross_entropy_with_logits(logits, truth, reduction="sum").detach()
    )
    assert int(right) == int(((logits > 0) == (truth > 0)).all(-1).sum())


@pytest.mark.parametrize("several", [False, True])
def test_rdrop_without_dropout_is_the_plain_loss_and_with_dropout_adds_the_divergence(
    make: Make, several: bool
) -> None:
    more = [*FLAT, *[SEVERAL] * several]
    plain, dropped = make(*more), make(*more, "train.rdrop=2.0")
    model, batch = classifier(plain), collated(plain, TEXTS, LABELS)
    torch.testing.assert_close(
        ClassificationTask(dropped).loss(model, batch), ClassificationTask(plain).loss(model, batch)
    )
    model.train()
    torch.manual_seed(1)
    passes = [model(batch.tokens) for _ in range(2)]
    torch.manual_seed(1)
    loss = ClassificationTask(dropped).loss(model, batch)
    probabilities = [logits.sigmoid() if several else logits.softmax(-1) for logits in passes]

    def divergence(p: Tensor, q: Tensor) -> Tensor:
        bits = p * (p / q).log()
        return (bits + (1 - p) * ((1 - p) / (1 - q)).log() if several else bits).sum()

    p, q = probabilities
    entropies: list[Tensor] = []
    for logits in passes:
        if several:
            truth = functional.one_hot(torch.tensor([2, 1, 0]), 3).double() * 0.9 + 0.05
            entropies.append(functional.binary_cross_entropy_with_logits(logits, truth, reduction="sum"))
        else:
            labels = torch.tensor([2, 1, 0])
            entropies.append(functional.cross_entropy(logits, labels, label_smoothing=0.1, reduction="sum"))
    expected = (sum(entropies, torch.zeros(())) + 2.0 / 2 * (divergence(p, q) + divergence(q, p))) / 2
    torch.testing.assert_close(loss, expected)


def test_balanced_weights_are_inversely_proportional_to_the_frequency_in_the_training_data(
    make: Make, tmp_path: Path
) -> None:
    recipe = make(*FLAT, "classification.weights=balanced")
    (tmp_path / "train.tsv").write_text("a cat\tred\na dog\tred\nthe cat\tred\nthe dog\tblue\n", encoding="utf-8")
    (tmp_path / "valid.tsv").write_text("a cat\tred\n", encoding="utf-8")
    model = set_up(recipe, tmp_path).model
    assert isinstance(model, Classifier)
    assert model.class_weights_V.tolist() == pytest.approx([4 / (2 * 1), 4 / (2 * 3)])  # blue, red
    assert "class_weights_V" not in model.state_dict()


def test_the_weight_of_a_label_multiplies_the_loss_of_its_texts(make: Make) -> None:
    recipe = make(*FLAT, "train.smoothing=0.0", "classification.weights=balanced")
    model, batch = classifier(recipe), collated(recipe, TEXTS, LABELS)
    weights = torch.tensor([2.0, 0.5, 3.0]).double()
    model.class_weights_V.copy_(weights)
    expected = functional.cross_entropy(model(batch.tokens), torch.tensor([2, 1, 0]), weights, reduction="sum")
    torch.testing.assert_close(ClassificationTask(recipe).loss(model, batch), expected)


@pytest.mark.parametrize("kind", ["mean", "first", "attention", "several"])
def test_batches_can_be_filled_and_captured(make: Make, tmp_path: Path, kind: str) -> None:
    more = SEVERAL if kind == "several" else f"classification.pooling={kind}"
    setup = set_up(make(*FLAT, more), tmp_path)
    setup.model.eval()
    feed = setup.feed(256)
    batch = next(feed.epoch(0))[0]
    filled = StaticShape.from_feed(feed).fill(batch)
    assert len(filled) > len(batch)
    torch.testing.assert_close(setup.module(filled), setup.module(batch))

    def capture(work: Launch) -> Launch:
        work()
        return work

    graphs = GraphRunner(setup.module, torch.device("cpu"), "float32", capture)
    losses = {float(graphs.run(filled, 1.0).loss) for _ in range(4)}
    assert losses == {float(setup.module(filled).detach())}


@pytest.mark.parametrize("more", [(), FLAT])
def test_parts_of_a_batch_on_a_cpu_have_the_loss_of_the_batch(
    make: Make, tmp_path: Path, more: tuple[str, ...]
) -> None:
    setup = set_up(make(*more), tmp_path)
    setup.model.eval()
    batch = next(setup.feed(256).epoch(0))[0]
    parts = CpuParts(2, 64).split(batch)
    assert sum(part.units for part in parts) == batch.units
    total = sum((setup.module(part.batch) for part in parts), torch.zeros(()))
    torch.testing.assert_close(total, setup.module(batch))


def test_a_document_model_learns_validates_and_becomes_a_classifier(make: Make, tmp_path: Path) -> None:
    recipe = make("train.choose=macro_f1", "classification.weights=balanced")
    events = trained(recipe, tmp_path / "run")
    validated = [event for event in events if isinstance(event, Validated)]
    assert validated[-1].accuracy == pytest.approx(1.0)
    assert [score.name for score in validated[-1].scores] == ["accuracy", "macro F1"]
    assert validated[-1].samples[0].output in ("red", "green", "blue")
    assert next(event.unit for event in events if isinstance(event, Started)) == "texts"
    finished = events[-1]
    assert isinstance(finished, Finished)
    names = [score["name"] for score in finished.scores["valid"]["scores"]]
    assert names == ["accuracy", "macro F1", "calibration error"]
    predictor = load_run(tmp_path / "run", "cpu")
    assert isinstance(predictor, TextClassifier)
    assert predictor("The cat . A red dog .").label == "red"


@pytest.mark.parametrize("more", [("classification.weights=balanced",), (*FLAT, SEVERAL)])
def test_a_resumed_run_equals_an_uninterrupted_one(make: Make, tmp_path: Path, more: tuple[str, ...]) -> None:
    for name, steps in (("straight", (6,)), ("resumed", (4, 6))):
        for count in steps:
            trained(make(*more, f"train.steps={count}", "train.every=2"), tmp_path / name)
    left, right = (load_file(tmp_path / name / "model.safetensors") for name in ("straight", "resumed"))
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_long_texts_are_kept_and_counted_in_notices(make: Make, tmp_path: Path) -> None:
    recipe = make(*FLAT, "data.longest=3", "train.steps=1")
    prepared: Prepared = prepare(recipe, make_task(recipe), tmp_path / "run")
    long = int((prepared.stores[0].lengths["text"] > 3).sum())
    assert long > 0
    message = f"data.train.0: {long} of {len(prepared.stores[0])} texts have more than data.longest = 3 tokens"
    assert prepared.notices()[0].startswith(message)
    assert message in str(prepared)
    assert set(prepared.stores[0].report.dropped) == {"empty", "duplicate"}
    notices = [event.message for event in trained(recipe, tmp_path / "run") if isinstance(event, Noticed)]
    assert any(notice.startswith(message) for notice in notices)


def test_steps_and_costs_without_a_number_follow_the_tokens_not_the_texts(make: Make, tmp_path: Path) -> None:
    setup = set_up(make(*FLAT), tmp_path)
    lengths = setup.prepared.stores[0].lengths["text"]
    assert setup.tokens_per_epoch == int((lengths + 2).sum())
    estimate = estimate_cost(make(*FLAT), "cpu")
    assert estimate.epochs == pytest.approx(estimate.steps * estimate.tokens_per_step / setup.tokens_per_epoch)
    assert estimate.flops == pytest.approx(estimate.flops_per_token * estimate.tokens_per_step * estimate.steps)
    assert "FLOP per token" in str(estimate)


def test_an_unknown_label_in_the_validation_data_names_file_and_line(make: Make, tmp_path: Path) -> None:
    recipe = make(valid="a cat\tred\na dog\tgren\n")
    with pytest.raises(ValueError, match=r"valid.tsv, line 2: the label 'gren' does not .*; did you mean 'green'\?"):
        trained(recipe, tmp_path / "run")


def test_a_missing_label_column_names_file_and_line(make: Make, tmp_path: Path) -> None:
    recipe = make(valid="a cat\tred\na dog\n")
    with pytest.raises(ValueError, match=r"valid.tsv, line 2: .*column"):
        trained(recipe, tmp_path / "run")


def test_an_empty_label_names_file_and_line(make: Make, tmp_path: Path) -> None:
    recipe = make(valid="a cat\tred\na dog\t\n")
    with pytest.raises(ValueError, match=r"valid.tsv, line 2: the label is empty; give one, or remove the record"):
        trained(recipe, tmp_path / "run")


def test_empty_and_very_long_texts_are_validated_too(make: Make, tmp_path: Path) -> None:
    for more in ((), FLAT):
        recipe = make(*more, "train.steps=1", valid=f"\tred\n{'a red cat . ' * 8000}\tred\n   \tblue\n")
        (finished,) = (event for event in trained(recipe, tmp_path / recipe.model.kind) if isinstance(event, Finished))
        assert finished.scores["valid"]["examples"] == 3


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model={ kind = 'luong' }"], "choose transformer or rnn or han"),
        (["data.block=8"], "classification has no blocks"),
        (["data.train.0.tag='<x>'"], "tag is for task = 'translation'"),
        (["text.sampling=0.1", "text.kind=bpe"], "text.sampling does not know the sentences"),
        (["train.choose=accuracy", "train.translate=0"], "choose = 'accuracy' needs predictions"),
        (["task=tagging"], "settings of task = 'classification'|columns|han"),
    ],
)
def test_a_recipe_that_asks_for_the_impossible_is_refused(make: Make, overrides: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(*overrides)


def test_a_metric_that_the_task_does_not_have_is_an_error_with_a_remedy(make: Make, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"train.choose = 'bleu' is not a metric of this task; use one of loss, acc"):
        trained(make("train.choose=bleu"), tmp_path / "run")


def test_subwords_can_be_sampled_for_texts(make: Make, tmp_path: Path) -> None:
    more: tuple[Any, ...] = (*FLAT, "text.kind=bpe", "text.size=300", "text.bytes=true", "text.sampling=0.1")
    (validated,) = (
        event for event in trained(make(*more, "train.steps=2"), tmp_path / "run") if isinstance(event, Validated)
    )
    assert validated.accuracy is not None
