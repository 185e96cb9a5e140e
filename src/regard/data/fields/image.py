"""Picture fields: a picture becomes the values of its pixels, channel by channel."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.data.pictures import load_image
from regard.data.rows import Rows
from regard.recipe import FieldKind, ImageSettings


class UnreadableImageError(ValueError):
    """A picture is missing or cannot be read."""

    def __init__(self, problem: str, index: int) -> None:
        """Keep the number of the picture among the encoded values."""
        super().__init__(problem)
        self.index = index


@dataclass(frozen=True)
class ImageField:
    """A picture, encoded as bytes in the order of `shape`: all rows of the first channel, and so on.

    A raw value names a picture: the path of a file, a picture in an archive (`train.images.npz#17`), or a generated one
    (`scene:train/0/17`); see `regard.data.pictures`.
    """

    settings: ImageSettings

    @property
    def kind(self) -> FieldKind:
        """The kind of field."""
        return "image"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return self.settings.shape

    @property
    def fingerprint(self) -> str:
        """The settings."""
        return f"image-{self.settings.size}-{self.settings.channels}-{self.settings.fit}"

    @property
    def dtype(self) -> np.dtype[Any]:
        """One byte for each channel of a pixel."""
        return np.dtype("u1")

    def __len__(self) -> int:
        """Return the number of values of a picture: channels · height · width."""
        channels, height, width = self.shape
        return channels * height * width

    def encode(self, values: Sequence[str]) -> Rows:
        """Read pictures, one row each; one that cannot be read raises an `UnreadableImageError`."""
        pixels = np.empty((len(values), *self.shape), np.uint8)
        for index, value in enumerate(values):
            try:
                image = load_image(value, self.settings.size, self.settings.channels, self.settings.fit)
            except ValueError as error:
                raise UnreadableImageError(str(error), index) from error
            pixels[index] = image.transpose(2, 0, 1)
        return Rows(pixels.reshape(-1), np.arange(len(values) + 1) * len(self))

    def decode(self, ids: Sequence[int]) -> str:
        """Return an empty string: the pixels do not say which file they are from."""
        return ""
