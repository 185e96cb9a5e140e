"""Tagging: a word's tag depends on its own sentence alone, is learned, and survives an interrupted training."""

import json
import logging
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from tests.data.records import lists_from

import regard
from regard.data.batching import longest_sequence
from regard.data.fields import Fields, TagsField, WordsField
from regard.data.fields.lists import join_list
from regard.data.prepare import prepare
from regard.models.tagger import Tagger, build_tagger
from regard.nn.cross_entropy import IGNORED
from regard.predict import TaggedSentence, WordTagger
from regard.recipe import Recipe, Rnn, Transformer, parse
from regard.tasks import load_tagger, load_translator
from regard.tasks.tagging import TaggingBatch, TaggingTask
from regard.text import END, START, Tokenizer
from regard.train.distributed import WorkerGroup
from regard.train.events import Validated
from regard.train.loop import train
from regard.train.setup import build_setup
from regard.train.stream import StaticShape

TOKENIZER = Tokenizer.learn(["the cat sees a dog", "the dogs see New York"], 300)
FIELDS = Fields({"words": WordsField(TOKENIZER), "tags": TagsField(("A", "B", "C"))})
TINY = Transformer(width=16, inner=16, heads=2, encoder_layers=1, dropout=0.0)
FAMILIES = [TINY, Rnn(width=8, embedding=8, layers=1, dropout=0.0)]
SENTENCES = st.lists(st.lists(st.sampled_from(["the", "cat", "dogs", "New York", "x", "◌"]), max_size=6), min_size=1)

RECIPE = """
task = "tagging"
[data]
train = [{ path = "train.conll" }]
valid = { path = "valid.conll" }
drop = ["empty", "long"]
[text]
size = 300
[model]
kind = "rnn"
width = 24
embedding = 24
layers = 1
dropout = 0.0
[train]
steps = 120
tokens = 300
rate = 0.02
schedule = "constant"
warmup = 5
every = 60
smoothing = 0.0
precision = "float32"
choose = "accuracy"
"""


def tagger(settings: Transformer | Rnn, pooling: str = "first") -> Tagger:
    torch.manual_seed(1)
    return build_tagger(settings, len(FIELDS["words"]), 3, pooling).double().eval()  # type: ignore[arg-type]


def batch_of(sentences: list[list[str]]) -> TaggingBatch:
    rows = FIELDS.encode(
        {"words": [join_list(words) for words in sentences], "tags": ["A " * len(s) for s in sentences]}
    )
    return TaggingTask(Recipe.model_construct()).collate(rows, np.arange(len(sentences)))


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., Recipe]:
    """A recipe whose tags need the word before: each word has the letter of its predecessor as its tag."""
    draw = np.random.default_rng(1)
    for name, count in (("train", 150), ("valid", 40)):
        sentences = [[list("ABCD")[at] for at in draw.integers(4, size=draw.integers(1, 9))] for _ in range(count)]
        lines = [
            "".join(f"{word}\t{before}\n" for before, word in zip(["start", *words], words, strict=False))
            for words in sentences
        ]
        (tmp_path / f"{name}.conll").write_text("\n".join(lines), encoding="utf-8")
    return lambda *overrides: parse(RECIPE, [f"data.root='{tmp_path}'", *overrides])


@given(SENTENCES)
def test_a_batch_has_the_tokens_between_symbols_and_the_size_of_each_word(sentences: list[list[str]]) -> None:
    batch = batch_of(sentences)
    words = [[TOKENIZER.encode(word) for word in sentence] for sentence in sentences]
    assert [ids.tolist() for ids in batch.tokens.to_list()] == [
        [START, *chain.from_iterable(ids), END] for ids in words
    ]
    assert [sizes.tolist() for sizes in batch.words.to_list()] == [list(map(len, ids)) for ids in words]
    assert batch.units == sum(map(len, sentences))


@pytest.mark.parametrize("pooling", ["first", "last", "mean"])
@pytest.mark.parametrize("settings", FAMILIES, ids=lambda settings: settings.kind)
@given(sentences=SENTENCES)
def test_a_batch_gives_the_logits_of_its_sentences_one_by_one(
    settings: Transformer | Rnn, pooling: str, sentences: list[list[str]]
) -> None:
    model = tagger(settings, pooling)
    batch = batch_of(sentences)
    alone = [model(one.tokens, one.words) for one in (batch_of([sentence]) for sentence in sentences)]
    torch.testing.assert_close(model(batch.tokens, batch.words), torch.cat(alone))


@pytest.mark.parametrize("pooling", ["first", "last", "mean"])
def test_the_state_of_a_word_is_made_of_those_of_its_tokens(pooling: str) -> None:
    model = tagger(TINY, pooling)
    batch = batch_of([["the", "New York"], [], ["cat"]])
    states_ND = model.encoder.encode(batch.tokens).states_ND
    expected, at = [], 0
    for sizes in batch.words.to_list():
        at += 1
        for size in sizes.tolist():
            part_ND = states_ND[at : at + size]
            expected.append({"first": part_ND[0], "last": part_ND[-1], "mean": part_ND.mean(0)}[pooling])
            at += size
        at += 1
    torch.testing.assert_close(model.states(batch.tokens, batch.words), torch.stack(expected))


@pytest.mark.parametrize("pooling", ["first", "last", "mean"])
def test_filling_a_batch_changes_no_loss_also_with_rdrop(pooling: str) -> None:
    model, batch = tagger(TINY, pooling), batch_of([["the", "New York"], ["cat"]])
    for overrides in ([], ["train.rdrop=1.0"]):
        task = TaggingTask(parse("task='tagging'\n[data]\ntrain=[{path='x.conll'}]", overrides))
        for filled in (batch.filled(128, 8, 64), batch.rounded(64)):
            assert (filled.tags_M == IGNORED).any()
            assert filled.units == batch.units
            torch.testing.assert_close(task.loss(model, filled), task.loss(model, batch))
            torch.testing.assert_close(task.evaluate(model, filled), task.evaluate(model, batch))


def test_parts_of_a_batch_add_up_to_its_loss() -> None:
    task = TaggingTask(parse("task='tagging'\n[data]\ntrain=[{path='x.conll'}]"))
    model, batch = tagger(TINY), batch_of([["the", "New York"], [], ["cat"], ["dogs", "x"]])
    parts = batch.split(3)
    assert len(parts) > 1
    torch.testing.assert_close(sum(task.loss(model, part) for part in parts), task.loss(model, batch))


@given(SENTENCES)
def test_the_tagger_gives_each_sentence_the_tags_it_has_alone(sentences: list[list[str]]) -> None:
    words, tags = FIELDS["words"], FIELDS["tags"]
    assert isinstance(words, WordsField)
    assert isinstance(tags, TagsField)
    predictor = WordTagger(tagger(TINY), words, tags)
    together = predictor(sentences)
    assert [result.words for result in together] == [tuple(sentence) for sentence in sentences]
    for sentence, result in zip(sentences, together, strict=True):
        alone = predictor([sentence])[0]
        assert (alone.tags, len(alone.tags)) == (result.tags, len(sentence))
        assert alone.probabilities == pytest.approx(result.probabilities)
        assert all(0 < value <= 1 for value in result.probabilities)


def test_a_sentence_longer_than_the_positions_is_tagged_in_parts(caplog: pytest.LogCaptureFixture) -> None:
    words, tags = FIELDS["words"], FIELDS["tags"]
    assert isinstance(words, WordsField)
    assert isinstance(tags, TagsField)
    settings = TINY.model_copy(update={"position": "learned", "positions": 8})
    predictor = WordTagger(tagger(settings), words, tags)
    long = ["the", "cat", "sees", "a", "dog", "incomprehensibilities", "x"] * 3
    with caplog.at_level(logging.WARNING):
        short, tagged = predictor(["the cat", long])
    assert len(short.tags) == 2
    assert (len(tagged.tags), len(tagged.probabilities)) == (len(long), len(long))
    assert "sentence 2 has" in caplog.text
    assert "8 positions; it is tagged in parts" in caplog.text


def test_a_line_and_lists_of_words_are_tagged_alike() -> None:
    words, tags = FIELDS["words"], FIELDS["tags"]
    assert isinstance(words, WordsField)
    assert isinstance(tags, TagsField)
    predictor = WordTagger(tagger(TINY), words, tags)
    assert predictor("the  cat") == predictor([["the", "cat"]])[0] == predictor(["the cat"])[0]
    assert predictor("New York\tsees").words == ("New York", "sees")
    assert predictor("") == TaggedSentence((), (), ())
    assert predictor([]) == []
    with pytest.raises(ValueError, match="word 2 of sentence 1 is blank; leave it out"):
        predictor([["a", " "]])
    with pytest.raises(ValueError, match="no precision 'int8'; choose auto, float32 or bfloat16"):
        WordTagger(tagger(TINY), words, tags, "int8")


def test_a_tag_that_needs_the_word_before_is_learned_and_a_stopped_run_resumes_to_the_same_weights(
    recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    events = list(train(recipe(), tmp_path / "whole", "cpu"))
    validated = [event for event in events if isinstance(event, Validated)]
    assert validated[-1].accuracy is not None
    assert validated[-1].accuracy > 0.98
    assert [score.name for score in validated[-1].scores] == ["accuracy"]
    list(train(recipe("train.steps=60"), tmp_path / "parts", "cpu"))
    list(train(recipe(), tmp_path / "parts", "cpu"))
    left, right = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(left[name], right[name]) for name in left)

    predictor = regard.load(tmp_path / "whole", "cpu")
    assert isinstance(predictor, WordTagger)
    assert predictor("A B B C").tags == ("start", "A", "B", "B")
    scores = json.loads((tmp_path / "whole" / "scores.json").read_text(encoding="utf-8"))
    accuracy, unseen = scores["valid"]["scores"]
    assert accuracy["value"] == pytest.approx(100 * scores["valid"]["accuracy"])
    assert "most frequent tag: " in accuracy["detail"]
    assert (unseen["name"], unseen["signature"]) == ("unseen", "words:0")
    with pytest.raises(
        ValueError, match="was trained with task = 'tagging', but this needs a run with task = 'translation'"
    ):
        load_translator(tmp_path / "whole")
    assert load_tagger(tmp_path / "whole", "cpu", "bfloat16")("A B").tags == ("start", "A")


def test_training_batches_with_sampled_subwords_have_the_words_and_tags_of_the_data(
    recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    sampled = recipe("text.sampling=0.5")
    task = TaggingTask(sampled)
    prepared = prepare(sampled, task, tmp_path / "run")
    setup = build_setup(sampled, task, tmp_path / "run", WorkerGroup(torch.device("cpu")), prepared)
    feed = setup.feed(300)
    store, field = prepared.stores[0], prepared.fields["words"]
    assert isinstance(field, WordsField)
    batches = [step[0] for step in feed.epoch(0)]
    for batch in batches:
        assert isinstance(batch, TaggingBatch)
        assert batch.tokens.tokens <= 300
        rows = store.gather(batch.index_B.numpy())
        assert batch.tags_M.tolist() == rows["tags"].ids.tolist()
        assert batch.words.lengths_B.tolist() == rows["tags"].lengths.tolist()
        for ids, stored in zip(batch.tokens.to_list(), lists_from(rows["words"]), strict=True):
            assert field.tokenizer.decode(ids) == field.decode(stored)
    first = batches[0]
    torch.testing.assert_close(setup.module(StaticShape.from_feed(feed).fill(first)), setup.module(first))


def test_the_longest_sequence_counts_tokens_without_the_ends_of_words(
    recipe: Callable[..., Recipe], tmp_path: Path
) -> None:
    # The record with most words is not the one with most tokens.
    (tmp_path / "train.conll").write_text("ABCD" * 12 + "\tX\n\n" + "A\tX\n" * 12, encoding="utf-8")
    own = recipe("text.kind=char", "data.valid={path='train.conll'}")
    store = prepare(own, TaggingTask(own), tmp_path / "run").stores[0]
    lengths = TaggingTask(own).sequence_lengths(store.lengths)[0]
    assert lengths.argmax() == 0
    assert store.lengths["tags"].argmax() == 1
    assert longest_sequence(store, TaggingTask(own)) == lengths.max()
