"""Captions that need no model, to compare captioners with: one caption for all pictures, and that of a similar picture.

A captioner that does not look at pictures cannot be better than the best constant caption, and one that has only
memorised its training pictures is about as good as the caption of the nearest one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.data.corpus import Reader
from regard.data.fields.lists import SEPARATOR
from regard.data.pictures import load_image
from regard.recipe import Corpus, Recipe
from regard.score.cider import CiderD

CANDIDATES, JUDGES = 100, 200
"""Training captions of which the most central is chosen, and pictures whose captions they are compared with."""
MOST_PICTURES = 10_000
"""Training pictures that are compared with a picture, from the first."""
SIDE = 16
"""Height and width in pixels at which pictures are compared."""


@dataclass(frozen=True)
class PictureRecord:
    """A picture with its captions."""

    name: str
    captions: tuple[str, ...]


def read_captioned(corpus: Corpus, recipe: Recipe, most: int | None = None) -> list[PictureRecord]:
    """Return the pictures of a corpus and their captions; at most `most`, from the first."""
    reader = Reader(("image", "captions"), Path(recipe.data.root), recipe.seed)
    records: list[PictureRecord] = []
    for name, value in reader.records(corpus):
        texts = tuple(stripped for text in value.split(SEPARATOR) if (stripped := text.strip()))
        if texts:
            records.append(PictureRecord(name, texts))
        if len(records) == most:
            break
    return records


def central_caption(records: Sequence[PictureRecord], seed: int = 0) -> str:
    """Return the caption of a sample that is most similar to those of other pictures, by mean CIDEr-D."""
    random = np.random.default_rng(seed)
    metric = CiderD([record.captions for record in records])
    drawn = random.permutation(len(records))
    candidates = dict.fromkeys(records[number].captions[0] for number in drawn[:CANDIDATES])
    judges = [records[number] for number in drawn[-JUDGES:]]

    def centrality(caption: str) -> float:
        others = [record.captions[:1] for record in judges if caption not in record.captions]
        return sum(metric.score(caption, texts) for texts in others) / max(1, len(others))

    return max(candidates, key=centrality)


def nearest_captions(pictures: Sequence[str], records: Sequence[PictureRecord], channels: int = 3) -> list[str]:
    """Return for each picture the first caption of the training picture whose pixels are nearest."""
    known, asked = (_thumbnails(names, channels) for names in ([record.name for record in records], pictures))
    nearest: list[int] = []
    for part in np.array_split(asked, max(1, len(asked) // 256)):
        distances = (known**2).sum(1) - 2 * part @ known.T
        nearest += distances.argmin(1).tolist()
    return [records[number].captions[0] for number in nearest]


def _thumbnails(names: Sequence[str], channels: int) -> NDArray[np.float32]:
    """Return small versions of pictures, one row each."""
    rows = [load_image(name, SIDE, channels).astype(np.float32).ravel() / 255 for name in names]
    return np.stack(rows)
