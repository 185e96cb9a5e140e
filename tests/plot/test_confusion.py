"""The confusion matrix as a figure."""

import numpy as np
import pytest

from regard.plot import confusion, render


def test_cells_show_counts_and_the_fraction_of_their_row_as_colour() -> None:
    figure = confusion([[8, 2], [0, 5]], ["negative", "positive"], title="reviews")
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ["8", "2", "5"]
    assert np.asarray(axes.collections[0].get_array()).ravel().tolist() == pytest.approx([0.8, 0.2, 0.0, 1.0])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["negative", "positive"]
    assert render(figure, "svg") == render(
        confusion([[8, 2], [0, 5]], ["negative", "positive"], title="reviews"), "svg"
    )


def test_a_class_without_texts_and_many_classes_can_be_drawn() -> None:
    counts = [[int(row == column) * row for column in range(60)] for row in range(60)]
    figure = confusion(counts, [f"class {number} $x$" for number in range(60)])
    assert not figure.axes[0].texts
    assert render(figure, "png")


def test_a_matrix_of_another_size_than_its_classes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"counts .* must have shape \(2, 2\)"):
        confusion([[1]], ["a", "b"])
