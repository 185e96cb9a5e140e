"""The surprisal of words adds up to the likelihood of a text, whatever its tokens are."""

import math
from pathlib import Path

import pytest

import regard
from regard.drawing import surprisal_figure
from regard.predict import MaskFiller, TextGenerator, word_surprisals


@pytest.fixture(scope="module")
def generator(memorised_text: Path) -> TextGenerator:
    loaded = regard.load(memorised_text, "cpu")
    assert isinstance(loaded, TextGenerator)
    return loaded


@pytest.fixture(scope="module")
def filler(masked_run: Path) -> MaskFiller:
    loaded = regard.load(masked_run, "cpu")
    assert isinstance(loaded, MaskFiller)
    return loaded


def test_surprisals_and_the_end_add_up_to_the_likelihood_of_a_text(generator: TextGenerator) -> None:
    text = "I can go alone , I saw unbelievables"
    words = word_surprisals(generator, text)
    assert [text[word.start : word.end] for word in words] == text.split()
    logprobs = generator.token_logprobs(text)
    nats = math.log(2) * sum(word.bits for word in words) - logprobs[-1]
    assert nats == pytest.approx(-sum(logprobs), rel=1e-6)
    assert nats == pytest.approx(generator.perplexity([text]).nats, rel=1e-6)


def test_the_words_before_a_change_keep_their_surprisal(generator: TextGenerator) -> None:
    right, wrong = (word_surprisals(generator, text) for text in ("I can go alone", "I can alone go"))
    assert [word.bits for word in right[:2]] == pytest.approx([word.bits for word in wrong[:2]], rel=1e-4)
    assert right[2].bits != pytest.approx(wrong[2].bits)


def test_a_masked_model_predicts_each_word_from_both_sides(filler: MaskFiller) -> None:
    words = word_surprisals(filler, "b s x")
    assert math.log(2) * sum(word.bits for word in words) == pytest.approx(filler.perplexity(["b s x"]).nats, rel=1e-6)
    assert words[1].bits < 1.0  # its neighbours determine it


def test_each_line_of_a_text_and_each_text_has_a_line(generator: TextGenerator) -> None:
    figure = surprisal_figure(generator, ["I can\ngo", "alone"], marked={(1, 0)})
    written = [text.get_text() for text in figure.axes[0].texts]
    assert [word for word in written if word.isalpha()] == ["I", "can", "go", "alone"]
    assert sum(word.endswith(" bits") for word in written) == 3
    assert len(figure.axes[0].lines) == 1
    with pytest.raises(ValueError, match="no words to draw"):
        surprisal_figure(generator, [" "])
