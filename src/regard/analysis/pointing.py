"""Judge the attention of a captioner on generated scenes, of which it is known which region each word is about."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.data.scenes import Scene
from regard.predict.captioner import Captioner

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Pointing:
    """How well attention points at what words are about."""

    scenes: int
    words: int
    """Words that are about a region and that the model says as the caption does."""
    argmax: float
    """Share of these words whose largest weight is inside of the region: the centre of the grid cell is."""
    mass: float
    """Mean share of the weights of a word that are inside of its region."""
    chance_argmax: float
    """`argmax` if every cell were equally likely."""
    chance_mass: float
    """`mass` of equal weights."""
    exact: float
    """Share of the scenes whose caption is said word by word."""

    def lines(self) -> list[str]:
        """Return a report in words and numbers."""
        return [
            f"exact caption {self.exact:.1%} of {self.scenes} scenes",
            f"the largest weight of a word is on what it is about: {self.argmax:.1%} of {self.words} words "
            f"(chance {self.chance_argmax:.1%})",
            f"the weights of a word are on what it is about: {self.mass:.1%} (equal weights {self.chance_mass:.1%})",
        ]


def judge_pointing(captioner: Captioner, scenes: Sequence[Scene], beam: int = 1) -> Pointing:
    """Judge where a captioner looks when it says the words of scenes.

    A word counts if the model says it at the same place as the scene's caption, because then it is known what it is
    about. Scaling must not cut or pad pictures: `image.fit = "squash"`, or the square scenes themselves.

    Args:
        captioner: A captioner with attention.
        scenes: Scenes in the language of the model, unseen in training.
        beam: Beam width.

    Raises:
        ValueError: The model has no attention, or there are no scenes.
    """
    if not captioner.has_attention:
        raise ValueError("this model has no attention, so it points at nothing; train one with attention")
    if not scenes:
        raise ValueError("there are no scenes to judge attention by; give one at least")
    hits, masses, chances, shares = [], [], [], []
    exact = 0
    for scene, caption in zip(scenes, captioner([scene.image for scene in scenes], beam=beam), strict=True):
        assert caption.attention is not None, "the model has attention"
        exact += caption.text.lower() == scene.caption.lower()
        for word, said, weights in zip(scene.words, caption.words, caption.attention, strict=False):
            if word.boxes is None or word.text.lower() != said.lower():
                continue
            hit, mass = point(weights, word.boxes)
            hits.append(hit)
            masses.append(mass)
            centres = inside(weights.shape, word.boxes)
            chances.append(float(centres.mean()))
            shares.append(float(coverage(weights.shape, word.boxes).mean()))
    means = [float(np.mean(values)) if values else 0.0 for values in (hits, masses, chances, shares)]
    return Pointing(len(scenes), len(hits), *means, exact / len(scenes))


def point(weights: NDArray[np.float32], boxes: Sequence[Box]) -> tuple[bool, float]:
    """Return whether the centre of the cell with the largest weight is inside of a box, and the weight inside of boxes.

    Args:
        weights: The weights of a word over a grid (rows, columns).
        boxes: Left, top, right and bottom of each box, in parts of the picture.
    """
    hit = bool(inside(weights.shape, boxes).flat[int(weights.argmax())])
    total = float(weights.sum())
    return hit, float((weights * coverage(weights.shape, boxes)).sum()) / total if total else 0.0


def inside(shape: tuple[int, ...], boxes: Sequence[Box]) -> NDArray[np.bool_]:
    """Return which cells of a grid have their centre inside of a box."""
    rows, columns = ((np.arange(count) + 0.5) / count for count in shape)
    table = np.zeros(shape, bool)
    for left, top, right, bottom in boxes:
        table |= ((rows >= top) & (rows <= bottom))[:, None] & ((columns >= left) & (columns <= right))
    return table


def coverage(shape: tuple[int, ...], boxes: Sequence[Box], fine: int = 16) -> NDArray[np.float64]:
    """Return the part of each cell of a grid that is inside of boxes, to a sixteenth of its side."""
    rows, columns = shape
    table = inside((rows * fine, columns * fine), boxes)
    return table.reshape(rows, fine, columns, fine).mean((1, 3))
