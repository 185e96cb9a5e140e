"""Splitting long lines into segments, and joining the translations of segments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.predict.segments import join_segments, leading_symbols, split_line
from regard.text import Tokenizer, TokenizerSettings

TEXT = [
    "I saw a cat. It was on a mat! Was it tired? Nobody knows.",
    "猫がいた。犬もいた。",
    "the dog, the cat and 3.5 men",
]
BPE = Tokenizer.learn(TEXT, 330)
WORDS = Tokenizer.learn(TEXT, 40, TokenizerSettings(kind="word", bytes=False, symbols=("<2de>", "<2fr>")))


def parts(line: str, tokenizer: Tokenizer, longest: int) -> list[str]:
    return [line[start:end] for start, end in split_line(line, tokenizer, longest)]


def test_a_line_is_split_at_the_last_sentence_end_that_fits() -> None:
    line = "I saw a cat. It was on a mat! Was it tired? Nobody knows."
    assert parts(line, WORDS, 9) == ["I saw a cat. It was on a mat!", "Was it tired? Nobody knows."]
    assert parts(line, WORDS, 8) == ["I saw a cat.", "It was on a mat! Was it tired?", "Nobody knows."]


def test_without_a_sentence_end_a_line_is_split_at_a_space_and_a_decimal_point_ends_no_sentence() -> None:
    assert parts("the dog, a cat and 3.5 men", WORDS, 5) == ["the dog, a cat and", "3.5 men"]


def test_without_a_space_a_line_is_split_at_a_token() -> None:
    segments = parts("a" * 50, BPE, 7)
    assert "".join(segments) == "a" * 50
    assert max(len(BPE.encode(part)) for part in segments) <= 7


def test_a_closing_quote_belongs_to_its_sentence() -> None:
    assert parts('"I saw a cat." It was', WORDS, 4) == ['"I saw a cat."', "It was"]


def test_scripts_without_spaces_are_split_at_their_full_stop() -> None:
    assert parts("猫がいた。犬もいた。", BPE, len(BPE.encode("猫がいた。犬も"))) == ["猫がいた。", "犬もいた。"]


def test_leading_symbols_are_separated_from_the_text() -> None:
    line = " <2de> <2fr>I saw"
    assert leading_symbols(line, WORDS) == ([WORDS.id("<2de>"), WORDS.id("<2fr>")], line.index("I"))
    assert leading_symbols("I saw <2de>", WORDS) == ([], 0)
    assert leading_symbols("", WORDS) == ([], 0)


@given(st.text(), st.integers(1, 12))
def test_no_segment_is_too_long_and_no_character_is_lost(line: str, longest: int) -> None:
    segments = parts(line, BPE, longest)
    assert "".join("".join(segments).split()) == "".join(line.split())
    # One character may be several bytes, and no part is less than a character.
    assert all(len(BPE.encode(part)) <= longest or len(part) == 1 for part in segments)


def test_ten_thousand_words_are_split_in_equal_segments() -> None:
    segments = parts(" ".join(["cat"] * 10_000), WORDS, 100)
    assert [len(part.split()) for part in segments] == [100] * 100


@pytest.mark.parametrize(
    ("texts", "line", "begins"),
    [
        (["Eins.", "Zwei."], "Eins. Zwei.", [0, 6]),
        (["猫。", "犬。"], "猫。犬。", [0, 2]),
        (["", "Zwei.", ""], "Zwei.", [0, 0, 5]),
        ([], "", []),
    ],
)
def test_segments_are_joined_with_spaces_only_in_scripts_that_have_them(
    texts: list[str], line: str, begins: list[int]
) -> None:
    assert join_segments(texts) == (line, begins)
