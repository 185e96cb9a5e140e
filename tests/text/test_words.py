"""Words are split as `str.split` does, and further only in scripts that write no spaces."""

from itertools import pairwise

import pytest
from hypothesis import given
from tests.text.conftest import text

from regard.text import Tokenizer, TokenizerSettings, find_phrase, word_of, words


def split(line: str) -> list[str]:
    return [line[start:end] for start, end in words(line)]


@given(line=text)
def test_a_line_with_white_space_is_split_as_str_split_does(line: str) -> None:
    assert split(f"a {line}") == f"a {line}".split()


@given(line=text)
def test_words_cover_every_character_but_white_space_once_and_in_order(line: str) -> None:
    assert "".join(split(line)) == "".join(line.split())
    spans = words(line)
    assert all(start < end for start, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("私は学生です。", ["私", "は", "学生", "です", "。"]),
        ("コンピューターを2台買った！", ["コンピューター", "を", "2", "台買", "った", "！"]),
        ("らーめん食べたい", ["らーめん", "食", "べたい"]),
        ("Linuxは便利", ["Linux", "は", "便利"]),
        ("人々がい゙る", ["人々", "がい゙る"]),
        ("ｶﾞﾗｽの窓", ["ｶﾞﾗｽ", "の", "窓"]),
        ("ฉันรักคุณ", ["ฉันรักคุณ"]),
        ("ฉันชอบABC", ["ฉันชอบ", "ABC"]),
        ("ខ្ញុំស្រលាញ់អ្នក។", ["ខ្ញុំស្រលាញ់អ្នក", "។"]),
        ("𠮷野家", ["𠮷野家"]),
        ("  私は  ", ["私", "は"]),
        ("私は 学生", ["私は", "学生"]),
        ("私は\u3000学生", ["私は", "学生"]),
        ("don't", ["don't"]),
        ("twenty-four.", ["twenty-four."]),
        ("한국어는띄어쓰기", ["한국어는띄어쓰기"]),
        ("أستطيع الذهاب وحيداً", ["أستطيع", "الذهاب", "وحيداً"]),
        ("👩‍👩‍👧", ["👩‍👩‍👧"]),
        ("", []),
        (" \t ", []),
    ],
)
def test_words_of(line: str, expected: list[str]) -> None:
    assert split(line) == expected


def test_a_character_belongs_to_its_word_and_a_space_to_the_next_one() -> None:
    spans = words("I can go ")
    assert [word_of(spans, at) for at in range(9)] == [0, 1, 1, 1, 1, 2, 2, 2, 2]
    assert word_of([], 0) is None


@pytest.mark.parametrize(
    ("phrase", "line", "expected"),
    [
        ("Stra", "Straf Stra, Kastra", ["Stra,"]),
        ("ein Hund", "kein Hund, ein Hund!", ["ein Hund!"]),
        ("北京", "我在北京。", ["北京。"]),
        ("กา", "กา้กา", ["กา"]),  # a vowel mark belongs to the letter before it
        ("می", "می\u200cخواهم می", ["می"]),  # a zero-width joiner holds a word together
        ("e", "e\u0301 e", ["e"]),
        ("", "a", []),
    ],
)
def test_a_phrase_is_found_where_it_stands_as_whole_words(phrase: str, line: str, expected: list[str]) -> None:
    spans = find_phrase(phrase, line)
    assert [line[start : start + len(after)] for (start, _), after in zip(spans, expected, strict=True)] == expected


def test_a_phrase_of_a_script_without_spaces_is_encoded_without_a_space() -> None:
    lines = ["我在北京。", "北京很大", "你在北京吗", "a dog", "the dog"] * 4
    tokenizer = Tokenizer.learn(lines, 300, TokenizerSettings(bytes=True))
    assert tokenizer.decode(tokenizer.encode("在") + tokenizer.encode_phrase("北京")) == "在北京"
    assert tokenizer.decode(tokenizer.encode("a") + tokenizer.encode_phrase("dog")) == "a dog"
