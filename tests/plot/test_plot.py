import io
import logging
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from regard.plot import (
    BeamNode,
    CurvePanel,
    HeadNumbers,
    Series,
    alignment,
    beam,
    curves,
    growth,
    heads,
    lengths,
    lines,
    positions,
    render,
    save,
)
from regard.plot.style import INK
from regard.score import Alignment

SOURCE = ["I", "can", "go", "alone"]
GERMAN = ["Ich", "kann", "allein", "gehen"]
ARABIC = ["أستطيع", "الذهاب", "وحيداً"]
GOLD = Alignment(frozenset({(0, 0), (1, 1), (2, 3)}), frozenset({(3, 2)}))
TREE = [BeamNode("<s>", None, 0.0, "alive"), BeamNode("Ich", 0, -0.5, "finished"), BeamNode("Du", 0, -2.0, "pruned")]


def weights(rows: int, columns: int) -> NDArray[np.float64]:
    """Rows that sum to one."""
    drawn: NDArray[np.float64] = np.random.default_rng(0).random((rows, columns)) ** 4
    normal: NDArray[np.float64] = drawn / drawn.sum(axis=1, keepdims=True)
    return normal


FIGURES: dict[str, Callable[[], Figure]] = {
    "alignment": lambda: alignment(weights(4, 4), SOURCE, GERMAN, GOLD, title="I can go alone"),
    "lines": lambda: lines(weights(3, 4), SOURCE, ARABIC),
    "heads": lambda: heads(np.stack([[weights(4, 4)] * 3] * 2), SOURCE, GERMAN),
    "positions": lambda: positions(np.sin(np.outer(np.arange(9), np.arange(6)))),
    "curves": lambda: curves([CurvePanel("loss", [Series("training", [1, 2, 3], [3.0, 2.0, 1.0])])]),
    "beam": lambda: beam(TREE),
    "growth": lambda: growth(
        [CurvePanel("seconds", [Series("a", [32, 64], [1e-3, 4e-3])], "length n", marks=[(48.0, "n = d")])]
    ),
    "lengths": lambda: lengths(["1–4", "5–9"], [3.0, 7.0], {"one vector": [90.0, 40.0]}, "BLEU"),
}


@pytest.mark.parametrize(
    ("name", "suffix"), [*((name, "svg") for name in FIGURES), ("alignment", "png"), ("lines", "pdf")]
)
def test_drawing_a_figure_twice_gives_the_same_file(tmp_path: Path, name: str, suffix: str) -> None:
    first, second = (save(FIGURES[name](), tmp_path / f"{stem}.{suffix}").read_bytes() for stem in "ab")
    assert first == second
    assert first[:5] == {"png": b"\x89PNG\r", "svg": b"<?xml", "pdf": b"%PDF-"}[suffix]


def test_an_unknown_suffix_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"figure\.jpg: unknown format of a figure; use one of the suffixes \.png, \.svg, \.pdf"
    ):
        save(FIGURES["curves"](), tmp_path / "figure.jpg")
    assert list(tmp_path.iterdir()) == []


def test_figures_leave_the_state_of_pyplot_alone(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    save(FIGURES["alignment"](), tmp_path / "a.svg")
    assert dict(matplotlib.rcParams) == before
    from matplotlib import pyplot

    assert pyplot.get_fignums() == []


def test_the_brightest_cell_is_at_the_largest_weight() -> None:
    figure = alignment(np.eye(4)[[0, 1, 3, 2]], SOURCE, GERMAN)
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    picture = imread(io.BytesIO(stream.getvalue()))
    bright = set()
    for row, column in np.ndindex(4, 4):
        x, y = figure.axes[0].transData.transform((column, row))
        red, green, blue, _ = picture[picture.shape[0] - round(y), round(x)]
        if red > 0.8 and green > 0.8 and blue < 0.4:  # cividis ends in yellow
            bright.add((row, column))
    assert bright == {(0, 0), (1, 1), (2, 3), (3, 2)}


def test_the_colour_bar_shows_the_true_range() -> None:
    drawn = weights(4, 4)
    bar = alignment(drawn, SOURCE, GERMAN).axes[1]
    assert bar.get_ylim() == pytest.approx((0.0, drawn.max()))


def test_the_columns_of_arabic_run_right_to_left() -> None:
    left, right = alignment(weights(4, 3), ARABIC, SOURCE).axes[0].get_xlim()
    assert left > right
    left, right = alignment(weights(3, 4), SOURCE, ARABIC).axes[0].get_xlim()
    assert left < right
    left, right = heads(weights(4, 3)[None, None], ARABIC, SOURCE).axes[0].get_xlim()
    assert left > right


def test_an_arabic_sentence_runs_right_to_left_between_lines() -> None:
    figure = lines(weights(3, 4), SOURCE, ARABIC)
    places = {text.get_text(): text.get_position()[0] for text in figure.axes[0].texts}
    assert [places[word] for word in ARABIC] == sorted((places[word] for word in ARABIC), reverse=True)
    assert [places[word] for word in SOURCE] == sorted(places[word] for word in SOURCE)


def test_gold_links_are_framed_and_possible_ones_dashed() -> None:
    frames = alignment(weights(4, 4), SOURCE, GERMAN, GOLD).axes[0].patches
    middles = {
        (round(frame.get_x() + 0.42), round(frame.get_y() + 0.42)): frame.get_linestyle()
        for frame in frames
        if isinstance(frame, Rectangle)
    }
    assert set(middles) == set(GOLD.possible)
    assert {link for link, stroke in middles.items() if stroke in ("-", "solid")} == set(GOLD.sure)


def test_lines_below_the_threshold_are_not_drawn() -> None:
    figure = lines(np.array([[0.95, 0.05], [0.5, 0.5]]), ["a", "b"], ["c", "d"], threshold=0.1)
    assert len(figure.axes[0].lines) == 3


def test_a_link_outside_the_map_is_an_error() -> None:
    with pytest.raises(ValueError, match="gold link 7-0 is outside the map of 4 source and 4 target words"):
        alignment(weights(4, 4), SOURCE, GERMAN, Alignment(frozenset({(7, 0)})))


@pytest.mark.parametrize("bad", [weights(3, 4), weights(4, 4) * np.nan])
def test_weights_that_do_not_fit_the_words_are_refused(bad: NDArray[np.float64]) -> None:
    with pytest.raises(ValueError, match="weights_TS"):
        alignment(bad, SOURCE, GERMAN)


def test_arrays_of_wrong_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(layers, heads, target, source\)"):
        heads(weights(4, 4), SOURCE, GERMAN)
    with pytest.raises(ValueError, match="one row per position"):
        positions([1.0, 2.0])
    with pytest.raises(ValueError, match="nothing to draw"):
        alignment(np.zeros((0, 4)), SOURCE, [])


def test_dollar_signs_start_no_formula() -> None:
    assert render(alignment([[1.0]], ["$x_1$"], [r"$\nonsense{$"]), "svg")


def test_characters_without_a_font_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    rune = "\U00016a0b"  # hardly any font has Bamum's supplement or Mro
    with caplog.at_level(logging.WARNING):
        render(alignment([[1.0]], [rune], ["x"]), "png")
        render(alignment([[1.0]], [rune], ["x"]), "png")
    assert len(caplog.records) == 1
    assert "no installed font has 1 of the characters" in caplog.text


def test_a_curve_has_gaps_at_values_that_are_not_finite() -> None:
    figure = curves([CurvePanel("loss", [Series("training", [1, 2, 3], [3.0, float("inf"), 1.0])])])
    assert np.isnan(np.asarray(figure.axes[0].lines[0].get_ydata())).tolist() == [False, True, False]


def test_curves_differ_in_more_than_colour() -> None:
    figure = curves([CurvePanel("loss", [Series(name, [1, 2], [3.0, 1.0]) for name in "abcdef"])])
    drawn = figure.axes[0].lines
    assert len({line.get_color() for line in drawn}) == len(drawn)
    assert len({str(line._dash_pattern) for line in drawn}) == len(drawn)  # type: ignore[attr-defined]


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(ValueError, match="no series"):
        curves([])
    with pytest.raises(ValueError, match="no node"):
        beam([])
    with pytest.raises(ValueError, match="2 x values but 1 y values"):
        Series("a", [1, 2], [1.0])


def test_a_parent_must_come_before_its_children() -> None:
    with pytest.raises(ValueError, match="a parent must come before its children"):
        beam([BeamNode("a", 1, 0.0, "alive"), BeamNode("b", None, 0.0, "alive")])


def test_a_page_can_recolour_all_text_and_lines() -> None:
    for figure in (FIGURES["curves"](), FIGURES["alignment"]()):
        text = render(figure, "svg", transparent=True).decode()
        assert INK in text
        assert not re.search(r"fill: ?#000|stroke: ?#000", text)


def test_growth_has_logarithmic_axes() -> None:
    figure = growth([CurvePanel("seconds", [Series("square", [2, 4, 8], [4.0, 16.0, 64.0])], "n")])
    axes = figure.axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_a_cost_of_zero_is_an_error() -> None:
    with pytest.raises(ValueError, match="'idle' has a value that is not positive"):
        growth([CurvePanel("seconds", [Series("idle", [2, 4], [0.0, 1.0])], "n")])


def test_a_system_without_a_score_for_every_length_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="one vector has 1 scores for 2 groups"):
        lengths(["1–4", "5–9"], [3.0, 7.0], {"one vector": [90.0]}, "BLEU")


def test_a_logarithmic_scale_covers_small_weights_down_to_its_limit() -> None:
    drawn = np.array([[0.9, 0.1], [0.999, 0.00001]])
    bar = alignment(drawn, ["a", "b"], ["c", "d"], scale="log").axes[1]
    assert bar.get_yscale() == "log"
    assert bar.get_ylim() == pytest.approx((0.000999, 0.999))
    everything = alignment(np.array([[0.9, 0.1]]), ["a", "b"], ["c"], scale="log").axes[1]
    assert everything.get_ylim() == pytest.approx((0.1, 0.9))


def test_given_head_numbers_are_labelled_counting_from_one() -> None:
    figure = heads(np.stack([[weights(4, 4)] * 2]), SOURCE, GERMAN, HeadNumbers([3], [0, 5]))
    assert [axes.get_title() for axes in figure.axes[:2]] == ["head 1", "head 6"]
    assert figure.axes[0].get_ylabel() == "layer 4"


def test_illegible_words_are_replaced_by_their_positions() -> None:
    figure = heads(np.stack([[weights(90, 90)] * 16]), ["word"] * 90, ["Wort"] * 90)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["20", "40", "60", "80"]


@pytest.mark.parametrize("words", [40, 100])
def test_a_long_sentence_is_vertical_and_fits_a_page(words: int) -> None:
    figure = lines(weights(words, words), ["a longer word"] * words, ARABIC[:1] * words)
    assert figure.get_figwidth() < 8
    heights = [text.get_position()[1] for text in figure.axes[0].texts[:words]]
    assert min(above - below for above, below in pairwise(heights)) > 11  # rows do not touch: points of the letters


def test_a_long_search_continues_below() -> None:
    chain = [BeamNode("<s>", None, 0.0, "alive", best=True)]
    chain += [BeamNode(f"w{at}", at, -0.1 * at, "alive", best=True) for at in range(24)]
    figure = beam(chain)
    assert [len(axes.texts) // 2 for axes in figure.axes] == [10, 10, 5]
    assert figure.get_figwidth() < 13


def test_the_tree_of_an_arabic_search_runs_right_to_left() -> None:
    tree = [
        BeamNode("<s>", None, 0.0, "alive"),
        BeamNode(ARABIC[0], 0, -1.0, "alive"),
        BeamNode("</s>", 1, -1.0, "finished"),
    ]
    left, right = beam(tree).axes[0].get_xlim()
    assert left > right


def test_the_best_path_differs_in_more_than_colour() -> None:
    tree = [
        BeamNode("<s>", None, 0.0, "alive", True),
        BeamNode("a", 0, -1.0, "alive", True),
        BeamNode("b", 0, -2.0, "alive"),
    ]
    figure = beam(tree)
    assert [text.get_text() for text in figure.axes[0].texts if text.get_fontweight() == "bold"] == ["<s>", "a"]
    assert "best" in [text.get_text() for text in figure.legends[0].get_texts()]
