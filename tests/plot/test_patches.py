"""The figure of a picture with weights of its patches."""

from pathlib import Path

import numpy as np
import pytest

from regard.plot import patches, save

IMAGE = np.arange(12 * 12, dtype=np.uint8).reshape(12, 12)
MAPS = {"rollout": np.full((3, 3), 0.1), "last layer": np.eye(3) / 3}


def test_a_map_covers_the_whole_picture_and_has_its_name(tmp_path: Path) -> None:
    figure = patches(IMAGE, MAPS, caption="7 (99 %)", title="a digit")
    pictures = figure.axes[:3]
    assert [axes.get_title() for axes in pictures] == ["7 (99 %)", "rollout", "last layer"]
    assert [len(axes.images) for axes in pictures] == [1, 2, 2]
    for axes in pictures[1:]:
        below, above = axes.images
        assert tuple(below.get_extent()) == tuple(above.get_extent())
        assert np.asarray(above.get_array()).shape == (3, 3)
    save(figure, tmp_path / "patches.svg")
    assert (tmp_path / "patches.svg").stat().st_size > 1000


def test_a_picture_in_colours_is_grey_below_its_maps() -> None:
    coloured = np.stack([IMAGE, 0 * IMAGE, 0 * IMAGE], -1)
    first, second = patches(coloured, {"rollout": MAPS["rollout"]}).axes[:2]
    assert np.asarray(first.images[0].get_array()).shape == (12, 12, 3)
    assert np.asarray(second.images[0].get_array()).shape == (12, 12)


@pytest.mark.parametrize(
    ("image", "weights", "message"),
    [
        (IMAGE.astype(np.float32), np.eye(3), "a picture is uint8 with 1 or 3 channels; got float32"),
        (IMAGE[None, None], np.eye(3), r"of the shape \(1, 1, 12, 12\)"),
        (IMAGE, np.ones(3), r"rollout \(rows, columns\) must have shape"),
        (IMAGE, np.full((3, 3), np.nan), "not finite"),
    ],
)
def test_what_cannot_be_drawn_is_refused(image: np.ndarray, weights: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        patches(image, {"rollout": weights})
