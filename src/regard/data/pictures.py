"""Read pictures of any size and format as arrays of one size.

A picture is turned as its EXIF orientation says, transparent parts become white, and of an animation the first frame is
used. A grey picture of 16 bits keeps its highest 8. The same picture gives the same array in training, in the server
and in the explorer.

A string names a picture in one of these ways; whoever reads pictures of strangers passes bytes instead:

    photo.jpg             a file in one of the formats `FORMATS`
    train.images.npz#17   picture 17, counted from 0, of an archive of numpy arrays (`regard.data.archive`)
    scene:train/1/17      a generated scene: split, seed and number (`regard.data.scenes`)
    digit:train/1/17      a generated digit (`regard.data.digits`)
"""

import io
import os
import stat
import threading
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from regard.data.archive import find_packed, open_archive
from regard.data.digits import find_digit
from regard.data.scenes import find_scene

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
"""The formats of picture files."""
MOST_PIXELS = 150_000_000
"""Maximum number of pixels of a picture, such as 15,000 x 10,000; decoding one needs up to 8 bytes a pixel."""
MOST_BYTES = 1 << 28
"""Maximum size of a picture file."""

Fit = Literal["squash", "crop", "pad"]
Pixels = NDArray[np.uint8]
Source = str | os.PathLike[str] | bytes | Image.Image | NDArray[Any]
"""A picture: its name, the bytes of a file, or pixels."""

_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What each EXIF orientation needs to be upright."""
_ORIENTATION = 0x0112
_REDUCING_GAP = 3.0  # a larger picture is first averaged over blocks, which differs by at most a few levels of grey
_FILTERS = threading.Lock()  # filters of warnings belong to the whole process


def load_image(
    source: Source, size: int, channels: int = 3, fit: Fit = "squash", most_pixels: int = MOST_PIXELS
) -> Pixels:
    """Return a picture as an array of the shape (size, size, channels).

    Example:
        >>> load_image("photo.jpg", 64).shape
        (64, 64, 3)

    Args:
        source: The name of a picture, the bytes of a picture file, a Pillow image, or an array of uint8 of the shape
            (height, width) or (height, width, channels) with 1, 3 or 4 channels.
        size: Height and width of the result.
        channels: 3 for colours, 1 for grey.
        fit: `squash` scales height and width separately, `crop` cuts the ends of the longer side off, `pad` adds white
            bars.
        most_pixels: Maximum number of pixels of the source.

    Raises:
        ValueError: If there is no such picture, or it is damaged, too large or of another format.
    """
    if fit not in ("squash", "crop", "pad") or channels not in (1, 3) or size < 1:
        raise ValueError(
            f"a picture is brought to a size of 1 or more with 1 or 3 channels by squash, crop or pad, not to {size} "
            f"with {channels} by {fit!r}"
        )
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else "the picture"
    try:
        image = _flat(_opened(source, name, size, most_pixels), channels)
        return np.array(_fitted(image, size, fit)).reshape(size, size, channels)
    except ValueError:
        raise
    except Exception as error:  # damaged files raise SyntaxError, EOFError, struct.error, IndexError and many more
        raise ValueError(f"{name} is damaged: {error or type(error).__name__}. Replace the picture.") from error


def _opened(source: Source, name: str, size: int, most_pixels: int) -> Image.Image:
    """Return an upright picture, decoded at a fraction of its size if that is enough for `size`."""
    if isinstance(source, Image.Image):
        _check_size(source, name, most_pixels)
        return _upright(source, _orientation(source))
    if isinstance(source, np.ndarray):
        return _from_array(source)
    if isinstance(source, str):
        found = _found(source)
        if isinstance(found, np.ndarray):
            return _from_array(found)
        data = _read(Path(source)) if found is None else found
    else:
        data = source if isinstance(source, bytes) else _read(Path(source))
    if not data:
        raise ValueError(f"{name} is empty. Replace the picture.")
    image, orientation = _opened_file(data, name, most_pixels)
    image.draft(None, (2 * size, 2 * size))  # JPEG files can be decoded at a half, a quarter or an eighth of their size
    image.load()
    return _upright(image, orientation)


def _found(name: str) -> Pixels | bytes | None:
    """Return a picture that is generated or part of an archive; None if the name is that of a file."""
    if name.startswith("scene:"):
        return find_scene(name).image
    if name.startswith("digit:"):
        return find_digit(name).image
    packed = find_packed(name)
    return None if packed is None else open_archive(packed[0]).picture(packed[1])


def _read(path: Path) -> bytes:
    """Return the bytes of a picture file."""
    path = path.expanduser()
    try:
        # Without O_NONBLOCK a pipe would wait for somebody to write into it.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode):
                raise ValueError(f"{path} is a pipe, socket or device. Name a picture file.")
            if state.st_size > MOST_BYTES:
                raise ValueError(f"{path} has {state.st_size:,} bytes, and a picture may have {MOST_BYTES:,}.")
            return file.read()
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist. Fix the path, or data.root, from which it starts.") from None
    except IsADirectoryError:
        raise ValueError(f"{path} is a folder. Name a picture file.") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}.") from error


def _opened_file(data: bytes, name: str, most_pixels: int) -> tuple[Image.Image, int]:
    """Read the header of a picture file, and return the picture, which is not decoded yet, and its orientation."""
    try:
        # Pillow warns of large pictures, which are checked here, and of damaged metadata, which are ignored.
        with _FILTERS, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(data), formats=FORMATS)
            orientation = _orientation(image)
    except UnidentifiedImageError:
        raise ValueError(f"{name} is not a picture in one of the formats {', '.join(FORMATS)}.") from None
    except Image.DecompressionBombError:
        raise _too_large(name, most_pixels) from None
    _check_size(image, name, most_pixels)
    return image, orientation


def _check_size(image: Image.Image, name: str, most_pixels: int) -> None:
    """Raise a ValueError if a picture has no pixels, or too many."""
    width, height = image.size
    if width * height > most_pixels:
        raise _too_large(f"{name} has {width:,} x {height:,} pixels and", most_pixels)
    if not width * height:
        raise ValueError(f"{name} has no pixels.")


def _too_large(name: str, most_pixels: int) -> ValueError:
    return ValueError(f"{name} is too large: a picture may have {most_pixels:,} pixels. Make it smaller.")


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation; 1 if there is none, or it is damaged."""
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # metadata of any kind must not make a picture unreadable
        return 1
    return value if isinstance(value, int) else 1


def _upright(image: Image.Image, orientation: int) -> Image.Image:
    method = _TRANSPOSE.get(orientation)
    return image if method is None else image.transpose(method)


def _from_array(pixels: NDArray[Any]) -> Image.Image:
    """Return an array of pixels as a Pillow image."""
    shaped = pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    is_picture = shaped.ndim == 2 or (shaped.ndim == 3 and shaped.shape[2] in (3, 4))
    if pixels.dtype != np.uint8 or not is_picture or not pixels.size:
        raise ValueError(
            f"an array of {pixels.dtype} with the shape {pixels.shape} is no picture: pass uint8 from 0 to 255 with "
            "the shape (height, width) or (height, width, channels), with 1, 3 or 4 channels"
        )
    return Image.fromarray(np.ascontiguousarray(shaped))


def _flat(image: Image.Image, channels: int) -> Image.Image:
    """Return a picture in grey or in colours, on white where it is transparent."""
    mode = "L" if channels == 1 else "RGB"
    if image.mode in ("I", "I;16", "I;16L", "I;16B"):
        image = Image.fromarray((np.asarray(image).astype(np.int64).clip(0, 65_535) >> 8).astype(np.uint8))
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        image = Image.new("RGB", layer.size, "white")
        image.paste(layer, mask=layer.getchannel("A"))
    return image if image.mode == mode else image.convert(mode)


def _fitted(image: Image.Image, size: int, fit: Fit) -> Image.Image:
    """Return a picture scaled to a square."""
    width, height = image.size
    if (width, height) == (size, size):
        return image
    if fit == "pad" and width != height:
        scale = size / max(width, height)
        inner = max(1, round(width * scale)), max(1, round(height * scale))
        square = Image.new(image.mode, (size, size), "white")
        square.paste(_scaled(image, inner, None), ((size - inner[0]) // 2, (size - inner[1]) // 2))
        return square
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return _scaled(image, (size, size), (left, top, left + side, top + side) if fit == "crop" else None)


def _scaled(image: Image.Image, size: tuple[int, int], box: tuple[float, float, float, float] | None) -> Image.Image:
    return image.resize(size, Image.Resampling.LANCZOS, box, _REDUCING_GAP)
