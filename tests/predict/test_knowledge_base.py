"""Knowledge bases: the formats of their files, broken lines, and duplicates."""

import gzip
import json
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.predict import KnowledgeBase, QuestionReply

GOOD = "Where is the bank?\tAround the corner.\nHow are you?\tFine.\n"


def read(path: Path, text: str | bytes, strict: bool = False) -> KnowledgeBase:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return KnowledgeBase.read(path, strict=strict)


def test_a_tsv_file_has_a_question_and_a_reply_on_each_line_and_blank_lines_are_left_out(tmp_path: Path) -> None:
    expected = (QuestionReply("Where is the bank?", "Around the corner.", 1), QuestionReply("How are you?", "Fine.", 4))
    text = GOOD.replace("\n", "\r\n\n  \n", 1)
    assert read(tmp_path / "a.tsv", text).pairs == expected
    assert read(tmp_path / "a.txt", text).pairs == expected
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(text.encode()))
    assert KnowledgeBase.read(tmp_path / "a.tsv.gz").pairs == expected


def test_a_jsonl_file_has_pairs_or_dialogues(tmp_path: Path) -> None:
    lines = [
        {"question": "How\nare you?", "reply": "Fine.", "source": "me"},
        {"turns": ["Hi.", "", "Hello.", {"text": "Bye.", "speaker": "B"}, {"text": "See you.", "speaker": "B"}]},
        {"turns": ["Alone."]},
    ]
    base = read(tmp_path / "a.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert base.pairs == (
        QuestionReply("How are you?", "Fine.", 1),
        QuestionReply("Hi.", "Hello.", 2),
        QuestionReply("Hello.", "Bye. See you.", 2),
    )


def test_a_plain_text_file_has_turns_and_a_blank_line_after_each_dialogue(tmp_path: Path) -> None:
    base = read(tmp_path / "a.txt", "Hi.\nHello.\nBye.\n\nYes?\nNo.\n")
    expected = [("Hi.", "Hello.", 2), ("Hello.", "Bye.", 3), ("Yes?", "No.", 6)]
    assert base.pairs == tuple(QuestionReply(*pair) for pair in expected)


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("a.tsv", b"no tab here", "it has no tab"),
        ("a.tsv", b"a\tb\tc", "it has 3 columns"),
        ("a.tsv", b"\tan answer", "its question is empty"),
        ("a.tsv", b"a question\t \xc2\xa0", "its reply is empty"),
        ("a.tsv", b"\xe9t\xe9\tyes", "is not UTF-8"),
        ("a.tsv", b"a\tred \x1b[31m text", "its reply contains the control character U+001B"),
        ("a.tsv", b"a\x00b\tc", "its question contains the control character U+0000"),
        ("a.jsonl", b'{"question": "a"}', "it needs the strings 'question' and 'reply'"),
        ("a.jsonl", b'{"question": "a", "reply": 3}', "it needs the strings 'question' and 'reply'"),
        ("a.jsonl", b'{"question": "\\ud83d", "reply": "b"}', "its question contains \\ud83d, a lone surrogate"),
        ("a.jsonl", b'{"question": "a", "reply": ', "not JSON"),
        ("a.jsonl", b"[1, 2]", "must be an object with an array of turns"),
        ("a.jsonl", b'{"turns": "a"}', "must be an array of turns"),
        ("a.jsonl", b'{"turns": ["a", "b\\u0007"]}', "its reply contains the control character U+0007"),
    ],
)
def test_a_broken_line_is_skipped_with_a_warning_or_is_an_error_that_names_file_and_line(
    name: str, line: bytes, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = GOOD.encode()
    if name == "a.jsonl":
        good = b'{"question": "Where is the bank?", "reply": "Around the corner."}\n'
    expected = read(tmp_path / name, good).pairs
    assert read(tmp_path / name, good + line + b"\n").pairs == expected
    number = good.count(b"\n") + 1
    (warning,) = caplog.messages
    assert warning.startswith(f"{tmp_path / name}: 1 broken line(s) are skipped: line {number}: ")
    assert reason in warning
    with pytest.raises(ValueError, match=rf"{name}, line {number}: ") as error:
        KnowledgeBase.read(tmp_path / name, strict=True)
    assert reason in str(error.value)


def test_many_broken_lines_are_counted_in_one_warning_that_names_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "regard"):
        assert len(read(tmp_path / "a.tsv", GOOD + "broken\n" * 7)) == 2
    (warning,) = caplog.messages
    assert "7 broken line(s) are skipped: line 3: " in warning
    assert "line 5: " in warning
    assert "line 6: " not in warning
    assert warning.endswith("; and 4 more")


def test_a_turn_of_a_plain_text_dialogue_with_a_control_character_is_in_no_pair(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = read(tmp_path / "a.txt", "Hi.\nHel\x07lo.\nBye.\nSee you.\n")
    assert [pair.line for pair in base.pairs] == [4]
    assert "2 broken line(s)" in caplog.text


@pytest.mark.parametrize("text", ["", "\n\n", "no tab\n", "\t\n"])
def test_a_file_without_any_pair_is_an_error_that_names_it(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a.tsv has no pair of a question and a reply: (line 1|it has no lines)"):
        read(tmp_path / "a.tsv", text)


def test_a_knowledge_base_of_no_pairs_or_of_an_empty_reply_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one pair"):
        KnowledgeBase.of([])
    with pytest.raises(ValueError, match="line 2: its reply is empty"):
        KnowledgeBase.of([("a", "b"), ("a", " ")])


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), min_size=1, max_size=12))
def test_of_equal_pairs_the_first_is_kept_in_the_order_of_the_lines(pairs: list[tuple[str, str]]) -> None:
    base = KnowledgeBase.of(pairs)
    assert [(pair.question, pair.reply) for pair in base.pairs] == list(dict.fromkeys(pairs))
    assert all(pairs.index((pair.question, pair.reply)) == pair.line - 1 for pair in base.pairs)
    replies, numbers = base.distinct_replies()
    assert len(set(replies)) == len(replies)
    assert [replies[number] for number in numbers] == [pair.reply for pair in base.pairs]
