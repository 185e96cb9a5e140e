"""Masked language modelling: batches, units, loss, training and resuming."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from tests.data.records import rows_from, write_store

from regard.data.batching import Feed, in_order
from regard.data.blocks import Blocks
from regard.data.fields import Fields, with_tokenizers
from regard.data.plan import Shard
from regard.nn.cross_entropy import IGNORED
from regard.recipe import Recipe, dump, load, parse
from regard.tasks.masked_language_model import MaskedLanguageModelBatch, MaskedLanguageModelTask, gather_predicted
from regard.text import END, START, Tokenizer, Tokenizers, TokenizerSettings
from regard.train.estimate import estimate_cost
from regard.train.events import Finished, Saved
from regard.train.loop import train
from regard.train.stream import StaticShape

TEXT = 'task = "language_model"\nlanguage_model.objective = "masked"\n[data]\ntrain = [{ text = "text.txt" }]\n'
TOKENIZER = Tokenizer.learn(["the animals cross the streets"] * 2, 300, TokenizerSettings(symbols=("<mask>",)))
FIELDS: Fields = with_tokenizers(Tokenizers({"text": TOKENIZER}))
DOCUMENTS = st.lists(st.lists(st.integers(5, len(TOKENIZER) - 1), max_size=20), min_size=1, max_size=12)
SMALL = ("model.width=16", "model.inner=32", "model.heads=2", "model.encoder_layers=1", "model.dropout=0.0")


def task_with(*overrides: str) -> MaskedLanguageModelTask:
    return MaskedLanguageModelTask(parse(TEXT, overrides)).with_fields(FIELDS)


def labels_of(batches: list[MaskedLanguageModelBatch]) -> dict[int, list[int]]:
    """Return the labels of each example."""
    return {
        int(number): row.tolist()
        for batch in batches
        for number, row in zip(batch.index_B, batch.tokens.with_values(batch.labels_N).to_list(), strict=True)
    }


def test_the_mask_is_a_symbol_of_the_recipe() -> None:
    recipe = parse(TEXT, ['text.symbols=["<x>"]'])
    assert recipe.text.symbols == ("<x>", "<mask>")
    assert parse(dump(recipe)) == recipe
    assert parse(TEXT, ["language_model.objective=next"]).text.symbols == ()


@given(DOCUMENTS)
def test_the_units_of_documents_are_those_of_their_batches(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]]
) -> None:
    store = write_store(tmp_path_factory.mktemp("store"), [{"text": ids} for ids in documents])
    task = task_with()
    batch = task.collate(store.gather(np.arange(len(documents))), np.arange(len(documents)))
    assert task.units(store.lengths) == batch.units
    assert batch.units == sum(min(len(ids), max(1, int(0.15 * len(ids) + 0.5))) for ids in documents)
    assert task.tokens(store.lengths) == batch.tokens.tokens == sum(len(ids) + 2 for ids in documents)
    assert (batch.tokens.values[batch.tokens.offsets[:-1].long()] == START).all()
    assert (batch.tokens.values[batch.tokens.offsets[1:].long() - 1] == END).all()


@given(st.lists(st.lists(st.integers(5, 200), min_size=4, max_size=20), min_size=1, max_size=12), st.integers(4, 30))
def test_the_units_of_blocks_are_those_of_their_batches(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]], block: int
) -> None:
    store = write_store(tmp_path_factory.mktemp("store"), [{"text": ids} for ids in documents])
    blocks, task = Blocks(store, block), task_with(f"data.block={block}")
    batches = list(in_order(blocks, task, tokens=64))
    # The last block may consist of a symbol alone, which is never predicted.
    assert 0 <= task.units(blocks.lengths) - sum(batch.units for batch in batches) <= 1
    for batch in batches:
        assert isinstance(batch, MaskedLanguageModelBatch)
        assert batch.tokens.longest <= block
        assert not torch.isin(batch.labels_N, torch.tensor([START, END])).any()


def test_masks_of_training_change_with_the_epoch_and_resume_and_those_of_validation_are_fixed(tmp_path: Path) -> None:
    documents = [{"text": [5 + (number + at) % 90 for at in range(20)]} for number in range(40)]
    task, store = task_with(), write_store(tmp_path, documents)

    def epoch(number: int, shard: Shard = Shard(), seed: int = 1) -> dict[int, list[int]]:  # noqa: B008
        feed = Feed([store], [1.0], 100, task, seed=seed, shard=shard)
        return labels_of([batch for step in feed.epoch(number) for batch in step])  # type: ignore[misc]

    first = epoch(0)
    assert first == epoch(0)
    assert first != epoch(1)
    assert first != epoch(0, seed=2)
    # The masks of an example do not depend on the process that it is shown to.
    parts = [epoch(0, Shard(rank, 2)) for rank in range(2)]
    assert parts[0].keys().isdisjoint(parts[1])
    assert {number: labels for part in parts for number, labels in part.items()} == first
    fixed = labels_of(list(in_order(store, task, 100)))  # type: ignore[arg-type]
    assert fixed == labels_of(list(in_order(store, task, 300)))  # type: ignore[arg-type]


def test_an_example_that_an_epoch_shows_twice_has_two_masks(tmp_path: Path) -> None:
    store = write_store(tmp_path, [{"text": list(range(5, 95))}])
    (step,) = Feed([store], [2.0], 200, task_with(), seed=1).epoch(0)
    batch = step[0]
    assert isinstance(batch, MaskedLanguageModelBatch)
    left, right = batch.tokens.with_values(batch.labels_N).to_list()
    assert left.tolist() != right.tolist()


@pytest.mark.parametrize("settings", [(), ("language_model.whole_words=true",), ("train.rdrop=0.5",)])
def test_the_loss_is_the_cross_entropy_of_the_masked_tokens(settings: tuple[str, ...]) -> None:
    task = task_with(*SMALL, "train.smoothing=0.0", *settings)
    torch.manual_seed(0)
    model = task.build(FIELDS.sizes)
    texts = FIELDS["text"].encode(["the animals cross the streets"] * 40)
    batch = task.collate({"text": texts}, np.arange(40))
    expected = torch.nn.functional.cross_entropy(
        model(batch.tokens), batch.labels_N, ignore_index=IGNORED, reduction="sum"
    )
    torch.testing.assert_close(task.loss(model, batch), expected)
    filled = StaticShape(4096, 512, 64).fill(batch)
    torch.testing.assert_close(task.loss(model, filled), expected)
    (gradient,) = torch.autograd.grad(task.loss(model, filled), [model.encoder.embedding.weight])
    (whole,) = torch.autograd.grad(expected, [model.encoder.embedding.weight])
    torch.testing.assert_close(gradient, whole)
    sums = task.evaluate(model, batch)
    torch.testing.assert_close(sums[0].float(), expected.detach())


@given(DOCUMENTS, st.floats(0.02, 0.9), st.integers(0, 50))
def test_no_batch_has_more_masked_tokens_than_its_size_allows(
    documents: list[list[int]], fraction: float, filling: int
) -> None:
    task = task_with(f"language_model.masked={fraction}")
    batch = task.collate({"text": rows_from(documents)}, np.arange(len(documents)))
    assert batch.units <= task.max_predicted(batch.tokens.tokens, len(batch))
    states_ND = torch.arange(batch.tokens.tokens + filling)[:, None].float()
    labels_N = torch.nn.functional.pad(batch.labels_N, (0, filling), value=IGNORED)
    most = task.max_predicted(batch.tokens.tokens + filling, len(batch))
    states_MD, labels_M = gather_predicted(states_ND, labels_N, most)
    kept, chosen = labels_M != IGNORED, labels_N != IGNORED
    assert states_MD[kept].tolist() == states_ND[chosen].tolist()
    assert labels_M[kept].tolist() == labels_N[chosen].tolist()


def test_a_masked_language_model_learns_what_both_neighbours_determine(masked_run: Path) -> None:
    valid = json.loads((masked_run / "scores.json").read_text(encoding="utf-8"))["valid"]
    assert valid["accuracy"] > 0.9
    assert valid["loss"] < 0.5


@pytest.fixture
def short(tmp_path: Path) -> Recipe:
    (tmp_path / "text.txt").write_text("a p v\nb q w\nc r x r c\n" * 30, encoding="utf-8")
    overrides = [f"data.root='{tmp_path}'", "train.steps=12", "train.every=4", "train.tokens=64", "model.dropout=0.1"]
    return load(Path(__file__).parents[1] / "masked.toml", [*overrides, "data.train.0.weight=1.0"])


def test_a_resumed_run_is_equal_to_an_uninterrupted_one_to_the_bit(short: Recipe, tmp_path: Path) -> None:
    assert isinstance(list(train(short, tmp_path / "straight", "cpu"))[-1], Finished)
    with_end = train(short, tmp_path / "stopped", "cpu")
    next(event for event in with_end if isinstance(event, Saved))
    with_end.close()  # as if the process had ended after its first checkpoint
    assert isinstance(list(train(short, tmp_path / "stopped", "cpu"))[-1], Finished)
    left, right = (load_file(tmp_path / name / "model.safetensors") for name in ("straight", "stopped"))
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_epochs_are_counted_in_tokens_that_are_read_not_in_masked_ones(short: Recipe) -> None:
    estimate = estimate_cost(short, "cpu")
    read = 60 * (3 + 2) + 30 * (5 + 2)  # the lines with <s> and </s>
    assert estimate.epochs == pytest.approx(estimate.steps * estimate.tokens_per_step / read)


def test_packed_documents_and_whole_words_train(short: Recipe, tmp_path: Path) -> None:
    recipe = parse(dump(short), ["data.block=16", "language_model.whole_words=true", "train.steps=4"])
    finished = list(train(recipe, tmp_path / "packed", "cpu"))[-1]
    assert isinstance(finished, Finished)
    assert finished.scores["valid"]["accuracy"] >= 0
