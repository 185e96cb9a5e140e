"""How files are split into lines, and which files are errors."""

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.files import LONGEST_LINE, read_lines

# Any text but the newline that ends a line; a final carriage return would be half of a line end.
LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n")).filter(lambda t: not t.endswith("\r"))


def written(folder: Path, data: bytes, name: str = "text") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(data, 1) if name.endswith(".gz") else data)
    return path


def lines_of(path: Path, block: int = 1 << 20) -> list[str]:
    return [line for lines in read_lines(path, block=block) for line in lines]


def lines_or_error(path: Path, block: int = 1 << 20) -> list[str] | str:
    try:
        return lines_of(path, block)
    except ValueError as error:
        return str(error)


@given(
    lines=st.lists(LINE),
    end=st.sampled_from(["\n", "\r\n"]),
    closed=st.booleans(),
    bom=st.booleans(),
    block=st.integers(1, 50),
    name=st.sampled_from(["a", "a.gz"]),
)
def test_written_lines_are_read_back(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[str],
    end: str,
    closed: bool,
    bom: bool,
    block: int,
    name: str,
) -> None:
    closed = closed or (bool(lines) and not lines[-1])  # an empty last line shows only by its end
    text = end.join(lines) + (end if closed and lines else "")
    data = text.encode("utf-8-sig" if bom else "utf-8")
    if not bom and text.startswith("\ufeff"):
        lines = [lines[0][1:], *lines[1:]]
    path = written(tmp_path_factory.mktemp("lines"), data, name)
    expected = [] if lines == [""] and not text.removeprefix("\ufeff") else lines
    assert lines_of(path, block) == expected


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r", "\0", "\x1b[2J"])
def test_only_newlines_end_a_line(tmp_path: Path, mark: str) -> None:
    path = written(tmp_path, f"a{mark}b\nc\n".encode())
    assert lines_of(path) == [f"a{mark}b", "c"]


def test_a_carriage_return_is_part_of_the_line_end_only_before_a_newline(tmp_path: Path) -> None:
    assert lines_of(written(tmp_path, b"a\r\nb\r\r\nc\rd\ne\r")) == ["a", "b\r", "c\rd", "e\r"]


def test_gzip_is_recognised_by_its_first_bytes_too(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    assert lines_of(path) == ["one", "two"]


@pytest.mark.parametrize("name", ["empty", "empty.gz"])
def test_an_empty_file_has_no_lines(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert lines_of(tmp_path / name) == []


def test_lines_of_a_megabyte_are_read(tmp_path: Path) -> None:
    lines = ["ä" * 1_000_000, "", "b" * 1_000_000, "c"]
    assert lines_of(written(tmp_path, "\n".join(lines).encode())) == lines


def test_an_endless_line_is_an_error_before_it_fills_memory(tmp_path: Path) -> None:
    path = tmp_path / "zeros"
    with path.open("wb") as file:
        file.truncate(2 * LONGEST_LINE)
    with pytest.raises(ValueError, match="zeros has a line of more than 64 MiB"):
        lines_of(path)


@pytest.mark.parametrize("block", [4, 7, 1 << 20])
def test_invalid_utf8_is_an_error_with_file_line_and_byte(tmp_path: Path, block: int) -> None:
    path = written(tmp_path, "gut\nsch\u00f6n\n".encode() + b"ros\xe9 wein\nrest\n")
    with pytest.raises(ValueError, match=r"text, line 3: byte 4 \(0xe9\) is not UTF-8 .*iconv"):
        lines_of(path, block)


def test_a_surrogate_is_invalid_utf8(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"line 2: byte 2 \(0xed\)"):
        lines_of(written(tmp_path, b"a\nb\xed\xa0\x80\n"))


def test_utf16_is_recognised(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="iconv -f UTF-16"):
        lines_of(written(tmp_path, "hello\n".encode("utf-16")))


@pytest.mark.parametrize("cut", [1, 5, 40, 100, -1, -9])
def test_a_truncated_gzip_file_is_an_error_with_its_name(tmp_path: Path, cut: int) -> None:
    whole = gzip.compress(random.Random(1).randbytes(1000).hex().encode())
    path = tmp_path / "text.gz"
    path.write_bytes(whole[:cut])
    with pytest.raises(ValueError, match=r"text\.gz is not a complete gzip file"):
        lines_of(path)


@given(data=st.data())
def test_a_damaged_gzip_file_is_read_correctly_or_is_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    text = random.Random(2).randbytes(300).hex()
    whole = bytearray(gzip.compress(text.encode(), mtime=0))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("gz") / "text.gz"
    path.write_bytes(whole)
    lines = lines_or_error(path)
    assert str(path) in lines if isinstance(lines, str) else lines == [text]


@given(data=st.binary())
def test_random_bytes_are_read_as_utf8_or_are_an_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = written(tmp_path_factory.mktemp("bytes"), data)
    lines = lines_or_error(path, 5)
    if isinstance(lines, str):
        assert str(path) in lines
    else:
        *ended, last = data.removeprefix(b"\xef\xbb\xbf").decode().split("\n")
        assert lines == [line.removesuffix("\r") for line in ended] + [last] * bool(last)
