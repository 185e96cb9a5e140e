"""Classification of pictures in every form, and attention over their patches."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import regard
from regard.data.digits import digits
from regard.data.pictures import Source
from regard.predict import ImageClassifier
from regard.predict.rollout import attention_rollout
from regard.recipe import parse
from regard.tasks import load_image_classifier

DIGITS = list(digits("test", 6))


@pytest.fixture(scope="module")
def classifier(digits_run: Path) -> ImageClassifier:
    return load_image_classifier(digits_run, "cpu")


def test_a_picture_can_be_a_name_a_path_bytes_an_image_or_an_array(classifier: ImageClassifier, tmp_path: Path) -> None:
    digit, path = DIGITS[0], tmp_path / "digit.png"
    Image.fromarray(digit.image).save(path)
    forms: list[Source] = [digit.name, str(path), path, path.read_bytes(), Image.fromarray(digit.image), digit.image]
    assert len({classifier(form).probability for form in forms}) == 1
    assert [result.label for result in classifier(forms)] == [classifier(digit.image).label] * 6
    assert classifier([]) == []


def test_probabilities_sum_to_one_and_the_first_is_that_of_the_label(classifier: ImageClassifier) -> None:
    for result in classifier([digit.image for digit in DIGITS]):
        assert sum(result.probabilities.values()) == pytest.approx(1.0)
        assert next(iter(result.probabilities)) == result.label == result.labels[0]
        assert max(result.probabilities.values()) == result.probability
    assert classifier.classes == tuple("0123456789")


def test_a_larger_picture_with_colours_is_brought_to_the_size_of_the_model(classifier: ImageClassifier) -> None:
    image = Image.fromarray(DIGITS[0].image).resize((140, 140), Image.Resampling.NEAREST).convert("RGBA")
    assert classifier(image).label == classifier(DIGITS[0].image).label


def test_attention_changes_no_probability_and_sums_to_at_most_one_over_the_patches(classifier: ImageClassifier) -> None:
    images = [digit.image for digit in DIGITS]
    watched, plain = classifier.classify(images, attention=True), classifier.classify(images)
    for seen, unseen in zip(watched, plain, strict=True):
        assert unseen.attention is None
        assert seen.probabilities == pytest.approx(unseen.probabilities, abs=1e-5)
        assert seen.attention is not None
        assert seen.attention.weights.shape == (2, 2, 7, 7)
        assert seen.attention.rollout.shape == seen.attention.last.shape == (7, 7)
        for maps in (seen.attention.weights, seen.attention.rollout):
            sums = maps.sum((-2, -1))
            assert (maps >= 0).all()
            assert (sums > 0).all()
            assert (sums <= 1 + 1e-6).all()
        np.testing.assert_allclose(seen.attention.last, seen.attention.weights[1].mean(0))
    assert watched[0].to_json()["attention"]["rollout"]


def test_rollout_of_the_class_token_is_that_of_a_plain_loop(classifier: ImageClassifier) -> None:
    (result,) = classifier.classify([DIGITS[0].image], attention=True)
    with regard.recording(classifier.model, "encoder.layers.*.self.weights") as seen:
        classifier(DIGITS[0].image)
    share = np.eye(50)[0]  # what reaches the class token, traced from the last layer back to the first
    for (weights,) in reversed(list(seen.values())):
        mean = weights[0].mean(0).double().numpy()
        share = 0.5 * share + 0.5 * np.array([(share * mean[:, key]).sum() for key in range(50)])
    assert result.attention is not None
    np.testing.assert_allclose(result.attention.rollout.ravel(), share[1:], rtol=1e-6)


@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 999))
@settings(max_examples=20)
def test_rows_of_a_rollout_sum_to_one(layers: int, size: int, seed: int) -> None:
    weights = np.random.default_rng(seed).dirichlet(np.ones(size), (layers, size))
    rolled = attention_rollout(list(weights))
    assert (rolled >= 0).all()
    np.testing.assert_allclose(rolled.sum(-1), 1.0)
    np.testing.assert_allclose(attention_rollout([np.eye(size)] * layers), np.eye(size))


def test_without_a_class_token_attention_is_the_mean_over_the_patches(classifier: ImageClassifier) -> None:
    from tests.digit_classifier import RECIPE

    from regard.tasks.image_classification import ImageClassificationTask

    recipe = parse(RECIPE, ["image_classification.pooling=mean"])
    model = ImageClassificationTask(recipe).build({"label": 10}).eval()
    untrained = ImageClassifier(model, recipe.image, classifier.label_field)
    (result,) = untrained.classify([DIGITS[0].image], attention=True)
    assert result.attention is not None
    np.testing.assert_allclose(result.attention.weights.sum((-2, -1)), 1.0, rtol=1e-5)
    np.testing.assert_allclose(result.attention.rollout.sum(), 1.0, rtol=1e-5)


def test_a_picture_that_cannot_be_read_is_named(classifier: ImageClassifier, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere\.png does not exist"):
        classifier("nowhere.png")
    (tmp_path / "bad.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"bad\.png is not a picture"):
        classifier([DIGITS[0].image, tmp_path / "bad.png"])
