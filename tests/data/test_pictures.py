"""Pictures of every kind become arrays of one size, and what is none is an error that names it."""

import io
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from PIL import Image

from regard.data.pictures import MOST_BYTES, MOST_PIXELS, Fit, load_image

RED, BLUE, GREEN, WHITE = (220, 30, 30), (30, 40, 210), (30, 160, 60), (255, 255, 255)
CORNERS = np.array([[RED, GREEN], [BLUE, WHITE]], np.uint8).repeat(20, 0).repeat(20, 1)
"""A picture with a colour in each corner."""


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    """The bytes of a picture file."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)  # type: ignore[arg-type]
    return buffer.getvalue()


def corners(pixels: NDArray[np.uint8]) -> list[tuple[int, ...]]:
    """The colours near the corners: upper left, upper right, lower left, lower right."""
    near, far = len(pixels) // 5, -len(pixels) // 5
    return [tuple(pixels[y, x].tolist()) for y in (near, far) for x in (near, far)]


def assert_near(found: object, expected: object, tolerance: int = 12) -> None:
    difference = np.abs(np.asarray(found, int) - np.asarray(expected, int))
    assert difference.max() <= tolerance, f"{found} is not {expected}"


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("PNG", {}),
        ("JPEG", {"quality": 95, "subsampling": 0}),
        ("WEBP", {"lossless": True}),
        ("WEBP", {"quality": 90}),
        ("BMP", {}),
        ("GIF", {}),
    ],
)
def test_every_format_is_read(tmp_path: Path, kind: str, options: dict[str, object]) -> None:
    path = tmp_path / "picture"
    path.write_bytes(encoded(Image.fromarray(CORNERS), kind, **options))
    pixels = load_image(str(path), 10)
    assert (pixels.shape, pixels.dtype) == ((10, 10, 3), np.dtype(np.uint8))
    assert_near(corners(pixels), [RED, GREEN, BLUE, WHITE], 40 if kind == "WEBP" else 12)
    for same in (path, path.read_bytes()):
        np.testing.assert_array_equal(load_image(same, 10), pixels)
    assert_near(load_image(Image.open(io.BytesIO(path.read_bytes())), 10), pixels, 25)


@given(arrays(np.uint8, st.sampled_from([(8, 8), (8, 8, 3)])))
def test_a_picture_of_the_right_size_is_not_changed(pixels: NDArray[np.uint8]) -> None:
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    loaded = load_image(pixels, 8, channels)
    np.testing.assert_array_equal(loaded, pixels.reshape(8, 8, channels))
    np.testing.assert_array_equal(load_image(encoded(Image.fromarray(pixels)), 8, channels), loaded)


@given(
    height=st.integers(1, 70),
    width=st.integers(1, 70),
    size=st.integers(1, 40),
    channels=st.sampled_from([1, 3]),
    fit=st.sampled_from(["squash", "crop", "pad"]),
)
def test_a_picture_of_any_size_gets_the_size_that_is_asked_for(
    height: int, width: int, size: int, channels: int, fit: Fit
) -> None:
    pixels = np.full((height, width, 3), 90, np.uint8)
    loaded = load_image(pixels, size, channels, fit)
    assert loaded.shape == (size, size, channels)
    is_padded = fit == "pad" and height != width
    assert set(np.unique(loaded).tolist()) <= ({90, 255} if is_padded else {90})
    assert 90 in loaded


def test_crop_keeps_the_middle_and_pad_the_whole() -> None:
    wide = np.concatenate([np.full((20, 20, 3), value, np.uint8) for value in (10, 100, 200)], 1)
    assert np.unique(load_image(wide, 20, fit="crop")[:, 2:-2]).tolist() == [100]
    padded = load_image(wide, 21, fit="pad")[:, :, 0]
    assert (padded[:6] == 255).all()
    assert (padded[-6:] == 255).all()
    assert [padded[10, column] for column in (2, 10, 18)] == [10, 100, 200]
    assert [load_image(wide, 21, fit="squash")[10, column, 0] for column in (2, 10, 18)] == [10, 100, 200]


SIDES = {1: "top left", 2: "top right", 3: "bottom right", 4: "bottom left", 5: "left top", 6: "right top",
         7: "right bottom", 8: "left bottom"}  # fmt: skip
"""For each orientation, the sides of the upright picture on which the first stored row and column are (EXIF 2.3)."""
OPPOSITE = {"top": "bottom", "bottom": "top", "left": "right", "right": "left"}
CORNER = {"left top": RED, "right top": GREEN, "bottom left": BLUE, "bottom right": WHITE}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_picture_is_turned_as_its_orientation_says(orientation: int, kind: str) -> None:
    row, column = SIDES[orientation].split()
    sides = [[(first, second) for second in (column, OPPOSITE[column])] for first in (row, OPPOSITE[row])]
    stored = [[CORNER[" ".join(sorted(pair))] for pair in line] for line in sides]
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = Image.fromarray(np.array(stored, np.uint8).repeat(20, 0).repeat(20, 1))
    data = encoded(image, kind, exif=exif.tobytes(), quality=95)
    assert_near(corners(load_image(data, 10)), [RED, GREEN, BLUE, WHITE], 40)


def test_damaged_metadata_do_not_matter_and_warn_nobody() -> None:
    data = encoded(Image.fromarray(CORNERS), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff garbage", quality=95)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert_near(corners(load_image(data, 10)), [RED, GREEN, BLUE, WHITE], 40)
    assert caught == []


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA", "P"])
def test_transparent_parts_become_white(mode: str) -> None:
    layer = Image.new("RGBA", (10, 10), (0, 0, 0, 0))
    layer.paste((40, 40, 40, 255), (0, 0, 10, 5))
    if mode == "P":
        image = Image.new("P", (10, 10), 1)
        image.putpalette([40, 40, 40, 0, 0, 0])
        image.paste(0, (0, 0, 10, 5))
        data = encoded(image, transparency=bytes([255, 0]))
    else:
        data = encoded(layer.convert(mode)) if mode != "PA" else encoded(layer.convert("PA").convert("RGBA"))
    pixels = load_image(data, 10)
    assert np.unique(pixels[:5]).tolist() == [40]
    assert np.unique(pixels[5:]).tolist() == [255]


def test_half_transparent_parts_are_mixed_with_white() -> None:
    assert_near(load_image(encoded(Image.new("RGBA", (4, 4), (0, 0, 0, 128))), 4), 127, 1)


def test_pictures_of_print_are_read_in_colours() -> None:
    cmyk = Image.fromarray(CORNERS).convert("CMYK")
    data = encoded(cmyk, "JPEG", quality=95, subsampling=0)
    assert_near(corners(load_image(data, 10)), [RED, GREEN, BLUE, WHITE], 20)


def test_grey_of_sixteen_bits_keeps_its_highest_eight() -> None:
    grey = np.array([[0, 255, 256, 0x7FFF], [0x8000, 0xABCD, 0xFF00, 0xFFFF]], np.uint16).repeat(2, 0)
    data = encoded(Image.fromarray(grey))
    expected = np.array([[0, 0, 1, 0x7F], [0x80, 0xAB, 0xFF, 0xFF]], np.uint8).repeat(2, 0)
    np.testing.assert_array_equal(load_image(data, 4, 1)[:, :, 0], expected)
    np.testing.assert_array_equal(load_image(data, 4, 3), expected[:, :, None].repeat(3, 2))
    np.testing.assert_array_equal(load_image(Image.fromarray(grey.astype(np.int32)), 4, 1)[:, :, 0], expected)


def test_black_and_white_is_grey() -> None:
    image = Image.new("1", (4, 4), 1)
    assert np.unique(load_image(encoded(image), 4, 1)).tolist() == [255]


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_of_an_animation_the_first_frame_is_used(kind: str) -> None:
    first, second = (Image.new("RGB", (8, 8), colour) for colour in (RED, BLUE))
    data = encoded(first, kind, save_all=True, append_images=[second], duration=50)
    assert_near(load_image(data, 8)[4, 4], RED)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_huge_picture_is_read(kind: str) -> None:
    side = 10_000 if kind == "JPEG" else 4_000
    image = Image.new("L", (side, side), 200)
    image.paste(50, (0, 0, side // 2, side))
    pixels = load_image(encoded(image, kind), 16, 1)
    assert (pixels[4:-4, 3, 0].tolist(), pixels[4:-4, 12, 0].tolist()) == ([50] * 8, [200] * 8)


def bomb(width: int, height: int) -> bytes:
    """A PNG file that says it is larger than it is."""
    data = bytearray(encoded(Image.new("1", (8, 8))))
    data[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    checksum = __import__("zlib").crc32(data[12:29])
    data[29:33] = checksum.to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize("size", [(15_001, 10_000), (100_000, 100_000), (2**31 - 1, 2**31 - 1)])
def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"too large: a picture may have {MOST_PIXELS:,} pixels"):
        load_image(bomb(*size), 16)


def test_the_limit_of_pixels_may_be_lower() -> None:
    for source in (encoded(Image.new("L", (20, 20))), Image.new("L", (20, 20))):
        assert load_image(source, 4, most_pixels=400).shape == (4, 4, 3)
        with pytest.raises(ValueError, match="20 x 20 pixels and is too large: a picture may have 399 pixels"):
            load_image(source, 4, most_pixels=399)


def test_a_picture_file_of_too_many_bytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.png"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(ValueError, match=r"huge\.png has 268,435,457 bytes, and a picture may have 268,435,456"):
        load_image(path, 4)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_a_truncated_file_is_an_error_that_names_it(tmp_path: Path, kind: str) -> None:
    noise = np.random.default_rng(1).integers(0, 255, (60, 60, 3), np.uint8)
    data = encoded(Image.fromarray(noise), kind)
    for part in (0.9, 0.5, 0.1):
        path = tmp_path / f"part-{part}"
        path.write_bytes(data[: int(len(data) * part)])
        with pytest.raises(ValueError, match=f"part-{part} is (damaged|not a picture)"):
            load_image(path, 16)


@given(seed=st.integers(0, 10**6), kind=st.sampled_from(["PNG", "JPEG", "WEBP", "GIF", "BMP"]))
def test_a_corrupt_file_is_read_or_a_value_error(seed: int, kind: str) -> None:
    draw = np.random.default_rng(seed)
    data = np.frombuffer(encoded(Image.fromarray(CORNERS), kind), np.uint8).copy()
    places = draw.integers(0, data.size, draw.integers(1, 20))
    data[places] = draw.integers(0, 256, places.size)
    try:
        assert load_image(data.tobytes(), 8).shape == (8, 8, 3)
    except ValueError as error:
        assert str(error)  # noqa: PT017


def test_what_is_no_picture_is_an_error_that_names_it(tmp_path: Path) -> None:
    text, empty = tmp_path / "text.png", tmp_path / "empty.png"
    text.write_text("not a picture")
    empty.write_bytes(b"")
    os.mkfifo(tmp_path / "pipe.png")
    problems = {
        "text.png": r"text\.png is not a picture in one of the formats PNG, JPEG, WEBP",
        "empty.png": r"empty\.png is empty",
        "missing.png": r"missing\.png does not exist",
        "pipe.png": r"pipe\.png is a pipe, socket or device",
        "": "is a folder",
    }
    for name, problem in problems.items():
        with pytest.raises(ValueError, match=problem):
            load_image(str(tmp_path / name), 8)
    with pytest.raises(ValueError, match="the picture is empty"):
        load_image(b"", 8)
    with pytest.raises(ValueError, match="the picture is not a picture in one of the formats"):
        load_image(b"%PDF-1.7", 8)


@pytest.mark.parametrize(
    "pixels",
    [
        np.zeros((4, 4), np.float32),
        np.zeros((4, 4), bool),
        np.zeros((4, 4, 2), np.uint8),
        np.zeros(4, np.uint8),
        np.zeros((0, 4), np.uint8),
        np.zeros((2, 4, 4, 3), np.uint8),
    ],
)
def test_an_array_that_is_no_picture_is_an_error(pixels: NDArray[np.uint8]) -> None:
    with pytest.raises(ValueError, match="is no picture: pass uint8 from 0 to 255"):
        load_image(pixels, 4)


@pytest.mark.parametrize("settings", [{"size": 0}, {"size": 4, "channels": 2}, {"size": 4, "fit": "stretch"}])
def test_an_impossible_size_is_an_error(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="by squash, crop or pad"):
        load_image(CORNERS, **settings)  # type: ignore[arg-type]


def test_a_name_may_be_that_of_a_generated_picture() -> None:
    from regard.data.digits import find_digit
    from regard.data.scenes import find_scene

    np.testing.assert_array_equal(load_image("scene:train/1/17", 64), find_scene("scene:train/1/17").image)
    np.testing.assert_array_equal(load_image("digit:test/0/3", 28, 1)[:, :, 0], find_digit("digit:test/0/3").image)
    for wrong in ("scene:train/1", "scene:other/1/2", "digit:novel/1/2", "digit:train/x/1"):
        with pytest.raises(ValueError, match=r"is no scene|is no digit|no split"):
            load_image(wrong, 8)


def test_threads_read_the_same_pictures() -> None:
    data = [encoded(Image.new("RGB", (50, 50), (value, 0, 0)), "JPEG") for value in range(0, 250, 5)]
    alone = [load_image(part, 8) for part in data]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda part: load_image(part, 8), data * 4))
    np.testing.assert_array_equal(together, alone * 4)
