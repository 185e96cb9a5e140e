"""Files of sentences are split as sacrebleu's command splits them, and an invalid one is named with its line."""

import gzip
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.score import read_sentences


@given(data=st.binary(max_size=60) | st.text(max_size=40).map(str.encode))
def test_any_bytes_are_lines_or_a_value_error_that_names_the_file(
    data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("bytes") / "file"
    path.write_bytes(data)
    try:
        invalid = not data.decode("utf-8-sig")  # a byte-order mark alone is no line
    except UnicodeDecodeError:
        invalid = True
    if invalid:
        with pytest.raises(ValueError, match=re.escape(str(path))):
            read_sentences(path)
    else:
        assert len(read_sentences(path)) == data.count(b"\n") + (not data.endswith(b"\n"))


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("eins\r\n\nzwei\u2028drei\x0b\x85vier \nfünf".encode())
    assert read_sentences(path) == ["eins", "", "zwei\u2028drei\x0b\x85vier", "fünf"]


def test_a_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfHallo\n")
    assert read_sentences(path) == ["Hallo"]


def test_invalid_utf8_is_named_by_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("gut\ngrün\n".encode() + "grün\n".encode("latin1"))
    with pytest.raises(ValueError, match=r"text, line 3: byte 3 \(0xfc\) is not UTF-8 .*iconv"):
        read_sentences(path)


def test_an_empty_file_a_missing_file_and_a_directory_are_different_errors(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="empty is empty; it must hold one sentence per line"):
        read_sentences(tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match="missing does not exist; check the path"):
        read_sentences(tmp_path / "missing")
    with pytest.raises(IsADirectoryError, match="is a directory; give the file"):
        read_sentences(tmp_path)


def test_a_gz_file_that_is_plain_or_truncated_is_named(tmp_path: Path) -> None:
    plain, cut = tmp_path / "plain.gz", tmp_path / "cut.gz"
    plain.write_text("Hallo\n", encoding="utf-8")
    cut.write_bytes(gzip.compress(b"Hallo\n" * 100)[:-12])
    for path in (plain, cut):
        with pytest.raises(ValueError, match=rf"{path.name} is not a complete gzip file"):
            read_sentences(path)
