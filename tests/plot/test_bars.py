"""Grouped bars as a figure."""

from itertools import pairwise

import pytest

from regard.plot import bars, render


def test_each_system_has_a_bar_of_each_series_that_has_a_value() -> None:
    figure = bars(["flat", "hran", "bm25"], {"all turns": [1.5, 2.25, None], "last turn": [20.0, 300.0, None]}, "ppl")
    axes = figure.axes[0]
    heights = [[bar.get_height() for bar in container] for container in axes.containers]
    assert heights == [[1.5, 2.25], [20.0, 300.0]]
    assert [text.get_text() for text in axes.texts] == ["1.50", "2.25", "20.0", "300"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["flat", "hran", "bm25"]
    assert render(figure, "png")


def test_bars_of_one_system_do_not_overlap() -> None:
    figure = bars(["a", "b"], {name: [1.0, 2.0] for name in "xyz"}, "score", logarithmic=True)
    spans = sorted(
        (bar.get_x(), bar.get_x() + bar.get_width()) for container in figure.axes[0].containers for bar in container
    )
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    assert figure.axes[0].get_yscale() == "log"


def test_series_of_another_length_and_empty_figures_are_refused() -> None:
    with pytest.raises(ValueError, match="has 1 values for 2 systems"):
        bars(["a", "b"], {"x": [1.0]}, "score")
    with pytest.raises(ValueError, match="no system or no series"):
        bars([], {"x": []}, "score")
