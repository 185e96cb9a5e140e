"""Metrics of classification against values computed by hand, from the definitions that scikit-learn documents."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.score.classification import (
    accuracy,
    class_scores,
    confusion_matrix,
    expected_calibration_error,
    macro_f1,
    mcnemar,
    wilson_interval,
)

# The example of scikit-learn's classification_report: precision 0.5, 0, 1; recall 1, 0, 2/3; F1 2/3, 0, 0.8.
LABELS = ["0", "1", "2", "2", "2"]
PREDICTIONS = ["0", "0", "2", "2", "1"]

names = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1, max_size=30)


def test_accuracy_is_the_percentage_of_equal_labels() -> None:
    assert accuracy(LABELS, PREDICTIONS).value == pytest.approx(60.0)
    assert accuracy(LABELS, PREDICTIONS).detail == "(3 of 5)"


def test_precision_recall_and_f1_of_each_class_are_those_of_the_definition() -> None:
    rows = {score.name: (score.precision, score.recall, score.f1) for score in class_scores(LABELS, PREDICTIONS)}
    assert rows["0"] == pytest.approx((0.5, 1.0, 2 / 3))
    assert rows["1"] == (0.0, 0.0, 0.0)
    assert rows["2"] == pytest.approx((1.0, 2 / 3, 0.8))
    assert [score.support for score in class_scores(LABELS, PREDICTIONS)] == [1, 1, 3]


def test_macro_f1_is_the_mean_over_classes_that_occur_as_label_or_prediction() -> None:
    assert macro_f1(LABELS, PREDICTIONS).value == pytest.approx(100 * (2 / 3 + 0 + 0.8) / 3)
    assert macro_f1(["a", "a"], ["a", "b"]).value == pytest.approx(100 * (2 / 3 + 0) / 2)


def test_several_labels_of_a_text_must_all_be_right_and_classes_are_counted_apart() -> None:
    labels, predictions = [("a", "b"), (), ("b",)], [("b", "a"), (), ("a", "b")]
    assert accuracy(labels, predictions).value == pytest.approx(200 / 3)
    rows = {score.name: (score.precision, score.recall) for score in class_scores(labels, predictions)}
    assert rows == {"a": (0.5, 1.0), "b": (1.0, 1.0)}


def test_a_confusion_matrix_has_labels_in_rows_and_predictions_in_columns() -> None:
    assert confusion_matrix(LABELS, PREDICTIONS, ["0", "1", "2"]).tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 2]]


def test_a_label_that_the_confusion_matrix_does_not_have_is_an_error() -> None:
    with pytest.raises(ValueError, match="the label 'z' is none of the 1 classes"):
        confusion_matrix(["z"], ["a"], ["a"])


@given(names)
def test_the_diagonal_of_the_confusion_matrix_is_the_accuracy(pairs: list[tuple[str, str]]) -> None:
    labels, predictions = [label for label, _ in pairs], [prediction for _, prediction in pairs]
    matrix = confusion_matrix(labels, predictions, ["a", "b", "c"])
    assert accuracy(labels, predictions).value == pytest.approx(100 * matrix.trace() / matrix.sum())
    for score in class_scores(labels, predictions):
        assert score.support == matrix["abc".index(score.name)].sum()


def test_the_calibration_error_weighs_the_gap_of_each_bin_by_its_size() -> None:
    # Two bins: two predictions at 0.6 of which one is right, and one at 0.4 that is wrong.
    assert expected_calibration_error([0.6, 0.6, 0.4], [True, False, False], bins=2).value == pytest.approx(
        100 * (2 / 3 * abs(0.6 - 0.5) + 1 / 3 * abs(0.4 - 0.0))
    )


def test_a_confidence_at_the_border_of_two_bins_belongs_to_the_lower_one() -> None:
    # With 0.5 in the lower bin, the gaps 0.5 - 1 and 0.7 - 0 do not cancel; in one bin they would.
    assert expected_calibration_error([0.5, 0.7], [True, False], bins=2).value == pytest.approx(60.0)


def test_a_perfectly_calibrated_classifier_has_no_calibration_error() -> None:
    assert expected_calibration_error([1.0, 1.0, 0.0], [True, True, False]).value == 0.0


def test_confidences_beyond_one_are_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        expected_calibration_error([1.5], [True])


def test_the_wilson_interval_is_that_of_published_tables() -> None:
    # Newcombe 1998, table 1, method 3: 81 of 263, and 15 of 148; 0 of 20.
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


def test_mcnemars_test_is_a_two_sided_binomial_test_of_the_texts_where_one_errs() -> None:
    labels = ["a"] * 8
    system, baseline = ["a"] * 6 + ["b"] * 2, ["b"] * 5 + ["a"] * 2 + ["b"]
    test = mcnemar(labels, system, baseline)
    assert (test.only_system, test.only_baseline) == (5, 1)
    assert test.p_value == pytest.approx(2 * (1 + 6) / 64)


@given(names)
def test_mcnemars_test_is_symmetric_and_equal_classifiers_do_not_differ(
    pairs: list[tuple[str, str]],
) -> None:
    labels, system = [label for label, _ in pairs], [prediction for _, prediction in pairs]
    baseline = system[::-1]
    assert mcnemar(labels, system, baseline).p_value == mcnemar(labels, baseline, system).p_value
    assert mcnemar(labels, system, system).p_value == 1.0


def test_mcnemars_test_is_exact_for_thousands_of_texts() -> None:
    labels, system, baseline = ["a"] * 3000, ["a"] * 1600 + ["b"] * 1400, ["b"] * 1600 + ["a"] * 1400
    tail = sum(Fraction(math.comb(3000, count), 2**3000) for count in range(1401))
    assert mcnemar(labels, system, baseline).p_value == pytest.approx(float(2 * tail))


def test_unequal_numbers_of_labels_and_predictions_are_an_error() -> None:
    with pytest.raises(ValueError, match="got 2 labels and 1 predictions"):
        accuracy(["a", "b"], ["a"])
    with pytest.raises(TypeError, match="must be lists"):
        accuracy("ab", ["a", "b"])
