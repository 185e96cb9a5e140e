"""Sentences cover a text in order, and end where readers of many scripts expect it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text.sentences import split_sentences

PIECES = [
    "A",
    "b",
    "Dr",
    "e.g",
    "3",
    ".",
    "!",
    "?",
    "…",
    ";",
    "。",
    "！",
    "।",
    "؟",
    " ",
    "\n",
    "\n\n",
    "\t",
    '"',
    "”",
    ")",
]
TEXT = st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join))


def sentences(text: str) -> list[str]:
    return [text[begin:end] for begin, end in split_sentences(text)]


@given(TEXT)
def test_spans_are_in_order_and_only_white_space_is_between_them(text: str) -> None:
    at = 0
    for begin, end in split_sentences(text):
        assert at <= begin < end
        assert not text[at:begin].strip()
        assert text[begin:end] == text[begin:end].strip()
        at = end
    assert not text[at:].strip()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It rains. It pours!", ["It rains.", "It pours!"]),
        ("It rains", ["It rains"]),
        ('He said "no." She left.', ['He said "no."', "She left."]),
        ("Really?! Yes…", ["Really?!", "Yes…"]),
        ("(It rains.) We stay.", ["(It rains.)", "We stay."]),
        ("He lives in St. Louis with Dr. No.", ["He lives in St. Louis with Dr. No."]),
        ("Fruit, e.g. apples. And pears.", ["Fruit, e.g. apples.", "And pears."]),
        ("J. S. Bach wrote it. Now listen.", ["J. S. Bach wrote it.", "Now listen."]),
        ("It costs 3.50 euros. Cheap.", ["It costs 3.50 euros.", "Cheap."]),
        ("yahoo! is a name. So is this.", ["yahoo! is a name.", "So is this."]),
        ("Das kostet z.B. Geld. Ja.", ["Das kostet z.B. Geld.", "Ja."]),
        ("A title\n\nThe text. More", ["A title", "The text.", "More"]),
        ("One line\nof a sentence. Two", ["One line\nof a sentence.", "Two"]),
        ("今日は雨だ。家にいる！はい", ["今日は雨だ。", "家にいる！", "はい"]),
        ("「はい。」と言った。", ["「はい。」", "と言った。"]),
        ("वह आया। वह गया।", ["वह आया।", "वह गया।"]),
        ("هل جاء؟ نعم.", ["هل جاء؟", "نعم."]),
        ("Τι κάνεις; Καλά.", ["Τι κάνεις;", "Καλά."]),
        ("He came; she left. End.", ["He came; she left.", "End."]),
        ("Նա եկավ։ Նա գնաց։", ["Նա եկավ։", "Նա գնաց։"]),
        ("သူလာသည်။ သူသွားသည်။", ["သူလာသည်။", "သူသွားသည်။"]),
        ("သူ၊ ငါ လာသည်။", ["သူ၊ ငါ လာသည်။"]),
        ("", []),
        (" \n\t\n ", []),
    ],
)
def test_a_text_is_split_where_a_reader_expects_it(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@pytest.mark.parametrize("text", ["." * 300_000, '."' * 150_000, "\n" * 300_000, " " * 300_000, "?" * 300_000 + " A"])
def test_a_long_run_of_marks_takes_linear_time(text: str) -> None:
    assert len(split_sentences(text)) <= 2


def test_thousands_of_sentences_are_found() -> None:
    assert len(split_sentences(" ".join(f"This is number {number}." for number in range(2000)))) == 2000
