import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.plot.fonts import JOINER, font_families, right_to_left, subword_labels


@pytest.mark.parametrize(
    ("text", "expected"),
    [("I can go", False), ("أستطيع", True), ("«2» أستطيع abc", True), ("123 …", False), ("", False), ("שלום", True)],
)
def test_the_first_letter_determines_the_direction(text: str, expected: bool) -> None:
    assert right_to_left(text) is expected


def test_the_first_word_with_letters_determines_the_direction() -> None:
    assert right_to_left(["…", "1", "وحيداً", "abc"])


def test_labels_have_no_space_marks() -> None:
    assert subword_labels(["▁I", "▁can", "▁a", "lone", "▁"]) == ["I", "can", "a", "lone", "▁"]


def test_a_cut_inside_an_arabic_word_keeps_its_letters_joined() -> None:
    assert subword_labels(["▁الذ", "هاب", "▁وحيد", "اً"]) == [
        f"الذ{JOINER}",
        f"{JOINER}هاب",
        f"وحيد{JOINER}",
        f"{JOINER}اً",
    ]


def test_words_of_latin_letters_get_no_joiner() -> None:
    assert subword_labels(["▁ge", "hen", "▁م", "x"]) == ["ge", "hen", "م", "x"]


@given(st.lists(st.text("▁abجده", min_size=1, max_size=4), max_size=6))
def test_there_is_one_label_per_subword_and_none_is_empty(pieces: list[str]) -> None:
    labels = subword_labels(pieces)
    assert len(labels) == len(pieces)
    assert all(labels)


def test_the_default_font_suffices_for_the_phrasebook() -> None:
    assert font_families(["Straße", "أستطيع الذهاب وحيداً", "étudiant"]) == ["DejaVu Sans"]
