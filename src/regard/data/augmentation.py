"""Augmentation of pictures in training: each is moved, rotated and scaled at random (Simard et al. 2003)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.data.batch import RandomKey
from regard.data.draws import uniform

Images = NDArray[np.uint8]
_Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Augmentation:
    """How much pictures vary. Every picture gets random numbers of its own, which follow from its `RandomKey`."""

    shift: float = 0.0
    """Largest movement in each direction, as a fraction of the size."""
    rotation: float = 0.0
    """Largest angle in degrees, in both directions."""
    scale: float = 0.0
    """Largest change of height and width, each, as a fraction."""

    def apply(self, image_BCHW: Images, draw: RandomKey) -> Images:
        """Return changed pictures; what comes in from outside of a picture continues its edge.

        Args:
            image_BCHW: Pictures as uint8, of the shape (pictures, channels, height, width).
            draw: What all random choices depend on.
        """
        if not (self.shift or self.rotation or self.scale) or not len(image_BCHW):
            return image_BCHW
        _, _, height, width = image_BCHW.shape
        signed = 2 * uniform(draw.key, draw.numbers, 5).astype(np.float32) - 1
        angle = signed[:, 0] * np.float32(np.radians(self.rotation))
        stretch_y, stretch_x = (1 + self.scale * signed[:, column] for column in (1, 2))
        rows, columns = (plane.astype(np.float32) for plane in np.indices((height, width)))
        y, x = rows - (height - 1) / 2, columns - (width - 1) / 2
        # Each pixel of the result looks up where it was before: the inverse of scaling, rotation and movement.
        y = y - _column(self.shift * height * signed[:, 3])
        x = x - _column(self.shift * width * signed[:, 4])
        sine, cosine = _column(np.sin(angle)), _column(np.cos(angle))
        before_y = (cosine * y + sine * x) / _column(stretch_y) + (height - 1) / 2
        before_x = (cosine * x - sine * y) / _column(stretch_x) + (width - 1) / 2
        return _interpolated(image_BCHW, before_y, before_x)


def _column(values: NDArray[np.floating]) -> _Floats:
    """Return one value for each picture, to be combined with planes of pixels."""
    return values.astype(np.float32)[:, None, None]


def _interpolated(image_BCHW: Images, y_BHW: _Floats, x_BHW: _Floats) -> Images:
    """Return the brightness of each picture at these places, interpolated linearly between pixels."""
    count, channels, height, width = image_BCHW.shape
    y_BHW, x_BHW = np.clip(y_BHW, 0, height - 1), np.clip(x_BHW, 0, width - 1)
    top, left = y_BHW.astype(np.int64), x_BHW.astype(np.int64)
    down, right = (y_BHW - top)[:, None], (x_BHW - left)[:, None]
    flat = image_BCHW.reshape(count, channels, height * width)

    def pixels(row: NDArray[np.int64], column: NDArray[np.int64]) -> _Floats:
        index = (np.minimum(row, height - 1) * width + np.minimum(column, width - 1)).reshape(count, 1, -1)
        return np.take_along_axis(flat, index, 2).reshape(count, channels, *row.shape[1:]).astype(np.float32)

    upper = pixels(top, left) * (1 - right) + pixels(top, left + 1) * right
    lower = pixels(top + 1, left) * (1 - right) + pixels(top + 1, left + 1) * right
    result: Images = np.rint(upper * (1 - down) + lower * down).astype(np.uint8)
    return result
