"""Judging the attention of a classifier on generated documents."""

import numpy as np
import pytest
import torch
from matplotlib.text import Text

from regard.analysis.attention import judge_attention, make_rationale
from regard.data.documents import documents
from regard.data.fields import LabelField, TextField, learn_fields
from regard.drawing import figure
from regard.explore.figures import document_figure
from regard.predict.classifier import AttendedSpan, ClassifiedText, TextClassifier
from regard.recipe import load
from regard.tasks import make_task

TEXT = "It rained. The soup was good."
SPANS = [(0, 2), (3, 10), (11, 14), (15, 19), (20, 23), (24, 29)]
WEIGHTS = [0.1, 0.0, 0.0, 0.2, 0.1, 0.6]
SMALL = ["text.size=500", "model.width=8", "model.embedding=8", "data.train.0.label=topic"]


def classified(words: int = 6, sentences: bool = False) -> ClassifiedText:
    attended = tuple(AttendedSpan(*span, weight) for span, weight in zip(SPANS, WEIGHTS, strict=True))[:words]
    parts = (AttendedSpan(0, 10, 0.3), AttendedSpan(11, 29, 0.7)) if sentences else None
    return ClassifiedText(TEXT, ("food",), 0.9, {"food": 0.9, "music": 0.1}, attended, parts)


@pytest.fixture(scope="module")
def classifier() -> TextClassifier:
    """Return an untrained hierarchical attention network for topics."""
    torch.manual_seed(1)
    recipe = load("documents", SMALL)
    task = make_task(recipe)
    records = [(document.text, document.label) for document in documents("topic", "train", 200)]
    fields = learn_fields(task.kinds, records, recipe)
    text, labels = fields["text"], fields["label"]
    assert isinstance(text, TextField)
    assert isinstance(labels, LabelField)
    model = task.build(fields.sizes).eval()
    return TextClassifier(model, text, labels, longest=256)  # type: ignore[arg-type]


def test_a_document_has_the_weights_of_its_words_and_sentences() -> None:
    rationale = make_rationale(classified(sentences=True), [(24, 28)])
    assert rationale.words == SPANS
    assert rationale.word_weights == WEIGHTS
    assert rationale.sentence_weights == [0.3, 0.7]
    assert rationale.gold_word_numbers == {5}
    assert rationale.gold_sentence_numbers == {1}


def test_without_weights_of_sentences_those_of_their_words_are_summed() -> None:
    rationale = make_rationale(classified())
    assert rationale.sentences == [(0, 10), (11, 29)]
    np.testing.assert_allclose(rationale.sentence_weights, [0.1, 0.9])


def test_sentences_that_the_model_did_not_read_are_left_out() -> None:
    assert make_rationale(classified(words=2)).sentences == [(0, 10)]


def test_a_text_that_was_classified_without_attention_is_an_error() -> None:
    with pytest.raises(ValueError, match="attention=True"):
        make_rationale(ClassifiedText(TEXT, ("food",), 0.9, {"food": 0.9}))


def test_an_untrained_classifier_is_judged_no_better_than_chance(classifier: TextClassifier) -> None:
    judgement = judge_attention(classifier, list(documents("topic", "test", 60)), erased=10)
    assert judgement.accuracy < 0.4
    assert judgement.hits.documents == 60
    assert abs(judgement.hits.word - judgement.hits.random_word) < 0.3
    for curve in judgement.curves:
        assert abs(curve.mean_comprehensiveness) < 0.1
    report = "\n".join(judgement.lines())
    assert "Attention is not an explanation" in report
    assert f"decides in {judgement.hits.sentence:.1%}" in report


def test_the_figure_of_a_classified_document_shows_every_word_and_the_label(classifier: TextClassifier) -> None:
    document = next(documents("topic", "test", 1))
    drawn = document_figure(classifier(document.text, attention=True), document.deciding_words)
    texts = [text.get_text() for text in drawn.axes[0].texts if isinstance(text, Text)]
    assert texts[len(document.sentences) : -1] == document.text.split()
    assert "probability" in texts[-1]
    assert len(drawn.axes[0].lines) == len(document.deciding_words)
    assert len(figure(classifier, document.text, "document").axes[0].texts) == len(texts)


def test_a_classifier_has_no_figure_of_heads(classifier: TextClassifier) -> None:
    with pytest.raises(ValueError, match="a classifier has no figure of kind heads; draw one of kind document"):
        figure(classifier, TEXT, "heads")
