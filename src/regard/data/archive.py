"""Archives of pictures: `.npz` files with many pictures, either encoded or as pixels, and perhaps their labels.

Encoded pictures are PNG, JPEG or WebP files end to end (`blob`, bytes) and where each begins (`offset`, one more than
there are pictures). Pixels are `x`, of the shape (pictures, height, width) or with channels as a fourth dimension.
Labels are `y`, numbers or strings.
"""

import re
import zipfile
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NAME = re.compile(r"(.+\.npz)#(\d+)", re.DOTALL)
_OPEN = 4  # archives that are kept in memory


@dataclass(frozen=True, eq=False)
class ImageArchive:
    """The pictures of an archive, in memory."""

    path: Path
    arrays: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        """Return the number of pictures."""
        return len(self.arrays["x"]) if "x" in self.arrays else len(self.arrays["offset"]) - 1

    def picture(self, number: int) -> NDArray[np.uint8] | bytes:
        """Return the pixels of a picture, or its encoded file; pictures are counted from 0.

        Raises:
            ValueError: If there is no such picture.
        """
        if not 0 <= number < len(self):
            raise ValueError(f"{self.path} has the pictures 0 to {len(self) - 1}, and no picture {number}.")
        if "x" in self.arrays:
            pixels: NDArray[np.uint8] = self.arrays["x"][number]
            return pixels
        begin, end = self.arrays["offset"][number : number + 2].tolist()
        return self.arrays["blob"][begin:end].tobytes()

    def name(self, number: int) -> str:
        """Return the string that names a picture, as a raw value of a record."""
        return f"{self.path}#{number}"

    def labels(self) -> list[str]:
        """Return the label of each picture.

        Raises:
            ValueError: If the archive has no labels.
        """
        if "y" not in self.arrays:
            raise ValueError(f"{self.path} has no array 'y' with the labels of its pictures. Add it to the archive.")
        return [str(label) for label in self.arrays["y"].tolist()]


def find_packed(name: str) -> tuple[Path, int] | None:
    """Return the archive and the number in a name such as `train.npz#17`; None if it is the name of something else."""
    match = _NAME.fullmatch(name)
    return None if match is None else (Path(match[1]), int(match[2]))


def open_archive(path: Path) -> ImageArchive:
    """Return an archive, which stays in memory until others are opened or the file changes.

    Raises:
        ValueError: If the file is missing or is not an archive of pictures.
    """
    try:
        state = path.stat()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}. Name an archive of pictures.") from None
    return _read_archive(path, (state.st_size, state.st_mtime_ns, state.st_ino))


@lru_cache(_OPEN)
def _read_archive(path: Path, _state: tuple[int, ...]) -> ImageArchive:
    """Read and check an archive."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in ("x", "y", "blob", "offset") if name in archive.files}
            found = ", ".join(archive.files[:10])
    except (OSError, ValueError, EOFError, KeyError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is not an archive of numpy arrays ({error}). Write it with numpy.savez.") from error
    if "x" not in arrays and not {"blob", "offset"} <= arrays.keys():
        raise ValueError(
            f"{path} has no pictures: it has the arrays {found or 'none'}, but needs 'x' with pixels, or 'blob' and "
            "'offset' with encoded pictures."
        )
    _check_arrays(path, arrays)
    return ImageArchive(path, arrays)


def _check_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Raise a ValueError unless the arrays fit together."""
    if "x" in arrays:
        x = arrays["x"]
        if x.dtype != np.uint8 or x.ndim not in (3, 4) or not x.size or (x.ndim == 4 and x.shape[3] not in (1, 3, 4)):
            raise ValueError(
                f"{path}: 'x' is {x.dtype} with the shape {x.shape}, but must be uint8 with the shape (pictures, "
                "height, width) or (pictures, height, width, channels), with 1, 3 or 4 channels."
            )
        count = len(x)
    else:
        offset, blob = arrays["offset"], arrays["blob"]
        is_valid = offset.dtype.kind in "iu" and offset.ndim == blob.ndim == 1 and blob.dtype == np.uint8
        steps = np.diff(offset.astype(np.int64)) if is_valid else np.zeros(0, np.int64)
        if not steps.size or (steps < 0).any() or offset[0] < 0 or offset[-1] > blob.size:
            raise ValueError(
                f"{path}: 'offset' does not divide 'blob': it must rise from 0 to the {blob.size:,} bytes of the "
                "uint8 array 'blob', with one number more than there are pictures."
            )
        count = steps.size
    if "y" in arrays and arrays["y"].shape != (count,):
        raise ValueError(f"{path}: 'y' has the shape {arrays['y'].shape}, but there are {count} pictures.")
