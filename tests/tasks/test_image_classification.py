"""Classification of pictures: batches, augmentation, training and resuming, class weights, and wrong recipes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.digit_classifier import digit_recipe, train_digits
from torch.nn import functional

from regard.data.batch import RandomKey
from regard.data.digits import digits
from regard.data.fields import Fields, ImageField, LabelField
from regard.models.vision import VisionTransformer
from regard.predict import ImageClassifier
from regard.recipe import Recipe
from regard.tasks import load_classifier, load_image_classifier, make_task
from regard.tasks.image_classification import ImageBatch, ImageClassificationTask
from regard.train.events import Finished, Noticed
from regard.train.loop import train

AUGMENTED = ("image_classification.shift=0.1", "image_classification.rotation=10", "image_classification.scale=0.1")
SMALL = ("data.train.0.count=80", "data.valid.count=10", "model.width=8", "model.inner=8", "train.tokens=400")
CLASSES = tuple("0123456789")


@pytest.fixture(autouse=True)
def _cache(shared_cache: None) -> None:
    """Share the stores of drawn digits."""


def collated(recipe: Recipe, count: int = 5, epoch: int | None = None) -> tuple[ImageClassificationTask, ImageBatch]:
    task = ImageClassificationTask(recipe)
    drawn = list(digits("train", count))
    fields = Fields({"image": ImageField(recipe.image), "label": LabelField(CLASSES)})
    names, labels = [digit.name for digit in drawn], [digit.label for digit in drawn]
    rows, index = fields.encode({"image": names, "label": labels}), np.arange(count)
    if epoch is None:
        return task, task.collate(rows, index)
    return task, task.collate_for_training(rows, index, RandomKey((1, epoch), index))


def build(task: ImageClassificationTask) -> VisionTransformer:
    torch.manual_seed(1)
    return task.build({"image": 196, "label": len(CLASSES)}).double().eval()


def test_a_batch_has_pixels_and_labels_and_as_many_tokens_as_its_lengths_say() -> None:
    task, batch = collated(digit_recipe())
    assert isinstance(make_task(digit_recipe()), ImageClassificationTask)
    assert (batch.image_BCHW.dtype, batch.image_BCHW.shape) == (torch.uint8, (5, 1, 14, 14))
    assert [CLASSES[label] for label in batch.labels.values] == [digit.label for digit in digits("train", 5)]
    assert (batch.units, len(batch)) == (5, 5)
    model = build(task)
    (counts,) = task.sequence_lengths({"label": np.ones(5, np.int64)})
    assert counts.tolist() == [50] * 5 == model.encoder.encode(batch.image_BCHW).layout.lengths_B.tolist()


def test_only_training_batches_vary_and_only_with_augmentation() -> None:
    plain = collated(digit_recipe())[1].image_BCHW
    assert torch.equal(collated(digit_recipe(), epoch=1)[1].image_BCHW, plain)
    assert torch.equal(collated(digit_recipe(*AUGMENTED))[1].image_BCHW, plain)
    first, again, second = (collated(digit_recipe(*AUGMENTED), epoch=epoch)[1].image_BCHW for epoch in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, plain)
    assert not torch.equal(first, second)


def test_the_loss_is_the_smoothed_cross_entropy_of_torch() -> None:
    task, batch = collated(digit_recipe("train.smoothing=0.1"))
    model = build(task)
    expected = functional.cross_entropy(
        model(batch.image_BCHW), batch.labels.values, label_smoothing=0.1, reduction="sum"
    )
    torch.testing.assert_close(task.loss(model, batch), expected)


def test_what_fills_up_a_batch_or_splits_it_changes_no_loss() -> None:
    task, batch = collated(digit_recipe())
    model = build(task)
    whole, filled = task.loss(model, batch), batch.filled(100, 8, 50)
    assert (len(filled), filled.units) == (8, 5)
    torch.testing.assert_close(task.loss(model, filled), whole)
    torch.testing.assert_close(torch.stack([task.loss(model, part) for part in batch.split(2)]).sum(), whole)


def test_digits_are_learned_and_the_run_becomes_a_classifier(tmp_path: Path) -> None:
    large = ("image_classification.patch=7", "image_classification.pooling=mean", "model.width=48", "train.tokens=256")
    train_digits(tmp_path / "run", *large, "data.train.0.count=1500", "train.steps=200", "train.every=200")
    classifier = load_image_classifier(tmp_path / "run", "cpu")
    assert isinstance(classifier, ImageClassifier)
    unseen = list(digits("test", 200))
    results = classifier([digit.image for digit in unseen])
    assert np.mean([result.label == digit.label for result, digit in zip(results, unseen, strict=True)]) > 0.8


def test_a_run_is_refused_by_commands_for_texts(digits_run: Path) -> None:
    with pytest.raises(ValueError, match="trained with task = 'image_classification', but this needs"):
        load_classifier(digits_run)


def test_validation_reports_accuracy_macro_f1_and_calibration(tmp_path: Path) -> None:
    events = list(train(digit_recipe(*SMALL, "train.steps=2", "train.every=2"), tmp_path / "run", "cpu"))
    assert not any("removed" in event.message for event in events if isinstance(event, Noticed))
    (finished,) = [event for event in events if isinstance(event, Finished)]
    names = [score["name"] for score in finished.scores["valid"]["scores"]]
    assert [name.lower() for name in names] == ["accuracy", "macro f1", "calibration error"]


def test_a_resumed_run_with_augmentation_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    for name, steps in (("straight", (6,)), ("resumed", (4, 6))):
        for count in steps:
            train_digits(tmp_path / name, *SMALL, *AUGMENTED, f"train.steps={count}", "train.every=2")
    left, right = (load_file(tmp_path / name / "model.safetensors") for name in ("straight", "resumed"))
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_the_weights_of_another_run_can_be_the_start(tmp_path: Path, digits_run: Path) -> None:
    train_digits(tmp_path / "tuned", f"train.start={digits_run}", "train.steps=1", "train.every=1", "train.rate=1e-6")
    (before, after) = (load_file(folder / "model.safetensors") for folder in (digits_run, tmp_path / "tuned"))
    name = "encoder.layers.0.self.qkv.weight"
    torch.testing.assert_close(after[name], before[name], atol=1e-4, rtol=0.0)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["image_classification.patch=3"], r"patch = 3 does not divide image.size = 14; it may be 1, 2, 7, 14"),
        (["model.position=rotary"], "patches lie in a plane; choose 'sinusoidal', 'learned' or 'none'"),
        (["model.window=2"], "model.window is for tokens of a text; remove it"),
        (["model={ kind = 'rnn' }"], "is not a model for task = 'image_classification'; choose transformer"),
        (["task=classification"], "has settings of"),
        (["data.train=[{ kind = 'documents', label = 'topic' }]"], "has no pictures"),
    ],
)
def test_a_recipe_that_asks_for_the_impossible_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        digit_recipe(*overrides)


def test_balanced_weights_are_inversely_proportional_to_the_frequency(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    class Watching(ImageClassificationTask):
        def observe(self, model: torch.nn.Module, stores: Any) -> None:
            super().observe(model, stores)
            seen["weights"] = model.get_buffer("class_weights_V").clone()
            seen["counts"] = np.bincount(stores[0].fields["label"].ids, minlength=10)

    recipe = digit_recipe(*SMALL, "image_classification.weights=balanced", "train.steps=1", "train.every=1")
    list(train(recipe, tmp_path / "run", "cpu", task=Watching(recipe)))
    counts = seen["counts"]
    np.testing.assert_allclose(seen["weights"].numpy(), counts.sum() / (10 * counts), rtol=1e-5)
