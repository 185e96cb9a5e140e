"""A run that takes over a part of a run of another task, such as the encoder of a masked language model."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.tasks.encoder_task import TextClassesTask

from regard.data.fields import WordsField
from regard.recipe import FieldKind, Recipe, load, parse
from regard.tasks import load_bundle
from regard.train.events import Event, Finished, Noticed, Started
from regard.train.loop import train
from regard.train.start import inherited_fields

CLASSES = """
task = "classes"
[data]
train = [{ path = "classes.tsv" }]
drop = []
[train]
steps = 1
tokens = 128
rate = 1e-12
warmup = 0
schedule = "constant"
optimiser = "adamw"
precision = "float32"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "classes.tsv").write_text("a p v\tgood\nb q v\tbad\nc t x new\tgood\n" * 4, encoding="utf-8")
    return tmp_path


def classes_from(start: Path, root: Path, *overrides: str) -> Recipe:
    return parse(CLASSES, [f"train.start='{start}'", f"data.root='{root}'", *overrides])


def train_classes(recipe: Recipe, run: Path) -> list[Event]:
    events = list(train(recipe, run, "cpu", task=TextClassesTask(recipe)))
    assert isinstance(events[-1], Finished)
    return events


def test_the_encoder_and_the_vocabulary_of_a_masked_language_model_are_taken_over(masked_run: Path, root: Path) -> None:
    events = train_classes(classes_from(masked_run, root), root / "run")
    (message,) = [event.message for event in events if isinstance(event, Noticed) and "started" in event.message]
    vocabulary = len(load_bundle(masked_run).tokenizers["text"])
    assert message == (
        f"started from {masked_run} (encoder taken over; output initialised anew); "
        f"{vocabulary} of {vocabulary} words tokens keep their embeddings"
    )
    started = next(event for event in events if isinstance(event, Started))
    assert started.vocabulary == {"words": vocabulary, "class": 2}
    assert started.recipe.text.symbols == ("<mask>",)
    old, new = load_file(masked_run / "model.safetensors"), load_file(root / "run" / "model.safetensors")
    encoder = {name for name in old if name.startswith("encoder.")}
    assert encoder == {name for name in new if name.startswith("encoder.")}
    for name in encoder:
        torch.testing.assert_close(new[name], old[name])
    assert new["output.weight"].shape == (2, 32)


def test_a_run_with_an_encoder_of_another_resumes_without_it(masked_run: Path, root: Path) -> None:
    other = Path(shutil.copytree(masked_run, root / "other"))
    train_classes(classes_from(other, root), root / "run")
    shutil.rmtree(other)
    events = train_classes(classes_from(other, root, "train.steps=2"), root / "run")
    assert next(event for event in events if isinstance(event, Started)).step == 1


def test_pieces_of_a_new_vocabulary_keep_their_embeddings(masked_run: Path, root: Path) -> None:
    recipe = classes_from(masked_run, root, "train.vocabulary=new", "text.kind=word", "text.bytes=false")
    train_classes(recipe, root / "run")
    task = TextClassesTask(load(root / "run" / "recipe.toml"))
    old, new = load_bundle(masked_run), load_bundle(root / "run", task=task)
    for piece in ("a", "v", "<s>"):
        torch.testing.assert_close(
            new.model.get_parameter("encoder.embedding.weight")[new.tokenizers["words"].id(piece)],
            old.model.get_parameter("encoder.embedding.weight")[old.tokenizers["text"].id(piece)],
        )


def test_only_settings_of_the_encoder_must_be_equal(masked_run: Path, root: Path) -> None:
    model = "model={size='tiny', width=32, inner=64, heads=%d, encoder_layers=2, decoder_layers=7, tied='none'}"
    train_classes(classes_from(masked_run, root, model % 2), root / "run")
    recipe = classes_from(masked_run, root / "nowhere", model % 4)
    with pytest.raises(ValueError, match=r"has another encoder: model.heads is 2 there and 4 here; remove \[model\]"):
        train_classes(recipe, root / "other")


def test_a_causal_language_model_is_refused_before_data_are_read(memorised_text: Path, root: Path) -> None:
    expected = (
        r"cannot initialise this model: it consists of decoder, output, and this one of encoder, (head, )?output, "
        r"which have no part .* in common; an encoder comes from a masked language model"
    )
    with pytest.raises(ValueError, match=expected):
        train_classes(classes_from(memorised_text, root / "nowhere"), root / "run")
    masked = 'task = "language_model"\nlanguage_model.objective = "masked"\n[data]\ntrain = [{ text = "nowhere" }]'
    with pytest.raises(ValueError, match=expected):
        next(train(parse(masked, [f"train.start='{memorised_text}'"]), root / "run", "cpu"))


def test_a_masked_language_model_starts_from_another_with_all_its_parts(masked_run: Path, root: Path) -> None:
    settings = [f"train.start='{masked_run}'", f"data.root='{masked_run}'", "train.steps=1", "train.rate=1e-12"]
    recipe = load(Path(__file__).parents[1] / "masked.toml", [*settings, "model.decoder_layers=1"])
    events = list(train(recipe, root / "run", "cpu"))
    (message,) = [event.message for event in events if isinstance(event, Noticed) and "started" in event.message]
    assert "initialised anew" not in message
    old, new = load_file(masked_run / "model.safetensors"), load_file(root / "run" / "model.safetensors")
    for name, weight in old.items():
        torch.testing.assert_close(new[name], weight)


class WordTagsTask(TextClassesTask):
    @property
    def kinds(self) -> dict[str, FieldKind]:
        return {"words": "words", "tags": "tags"}


def test_words_with_given_boundaries_get_the_vocabulary_of_the_encoder(masked_run: Path, root: Path) -> None:
    recipe = classes_from(masked_run, root)
    fields = inherited_fields(recipe, WordTagsTask(recipe))
    assert fields is not None
    assert list(fields) == ["words"]
    assert isinstance(fields["words"], WordsField)
    assert fields.tokenizers["words"] == load_bundle(masked_run).tokenizers["text"]


@pytest.mark.parametrize("vocabulary", ["start", "new"])
def test_ngrams_are_taken_over_with_their_vocabulary_only(root: Path, vocabulary: str) -> None:
    """Rows of n-grams follow from the numbers of tokens, so they mean nothing in another vocabulary."""
    recipe = CLASSES.replace('task = "classes"', 'task = "classification"').replace("drop = []", "")
    tiny = ["model={width=8, inner=8, heads=1, encoder_layers=1}", f"data.root='{root}'"]
    ngrams = ["classification.ngrams=2", "classification.ngram_buckets=16", "classification.ngram_width=4"]
    words = ["text.kind=word", "text.bytes=false"]
    first = parse(recipe, [*tiny, *ngrams, *words, "train.rate=1e-2"])
    assert isinstance([*train(first, root / "first", "cpu")][-1], Finished)
    (root / "classes.tsv").write_text("v p a\tgood\nv q b\tbad\n" * 4, encoding="utf-8")
    more = [
        f"train.start='{root / 'first'}'",
        f"train.vocabulary={vocabulary}",
        *(words if vocabulary == "new" else []),
    ]
    second = parse(recipe, [*tiny, *ngrams, *more])
    notices = [event.message for event in train(second, root / "second", "cpu") if isinstance(event, Noticed)]
    message = next(message for message in notices if message.startswith("started from"))
    assert ("ngrams initialised anew" in message) == (vocabulary == "new")
    weights = load_file(root / "second" / "model.safetensors")["ngrams.weight"]
    assert (weights.abs().max() > 1e-3) == (vocabulary == "start")
