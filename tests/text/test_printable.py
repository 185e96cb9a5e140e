"""Text that is printed cannot control a terminal, and stays readable."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text import printable, printable_json

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT)
def test_printable_text_has_no_control_characters_and_can_be_encoded(text: str) -> None:
    shown = printable(text)
    assert not {"Cc", "Cs", "Zl", "Zp"} & {unicodedata.category(character) for character in shown}
    assert not {"LRO", "RLO", "LRE", "RLE", "PDF", "LRI", "RLI", "FSI", "PDI"} & set(
        map(unicodedata.bidirectional, shown)
    )
    shown.encode()


@pytest.mark.parametrize(
    "text", ["naïve", "أنا \u200f", "می\u200cخواهم", "👩‍👩‍👧 🇩🇪", "a\u00a0b\u3000c", "\\n", "\ufeff"]
)
def test_text_without_control_characters_is_not_changed(text: str) -> None:
    assert printable(text) == text


def test_control_characters_are_written_as_escape_sequences() -> None:
    assert printable("\x1b[2J\x9b1m\n\0\x7f\u202e\ud800") == r"\x1b[2J\x9b1m\n\x00\x7f\u202e\ud800"


@given(st.recursive(ANY_TEXT, lambda values: st.lists(values) | st.dictionaries(ANY_TEXT, values), max_leaves=5))
def test_printable_json_is_json_of_the_same_value(value: object) -> None:
    line = printable_json(value)
    assert json.loads(line) == value
    assert printable(line) == line
    line.encode()


def test_printable_json_does_not_escape_other_scripts() -> None:
    assert printable_json({"text": "für 猫 \x9b"}) == r'{"text": "für 猫 \u009b"}'
