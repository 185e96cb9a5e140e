import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.plot.lettering import JOINER, families, piece_labels, right_to_left


@pytest.mark.parametrize(
    ("text", "expected"),
    [("I can go", False), ("أستطيع", True), ("«2» أستطيع abc", True), ("123 …", False), ("", False), ("שלום", True)],
)
def test_a_text_runs_as_its_first_letter_says(text: str, expected: bool) -> None:
    assert right_to_left(text) is expected


def test_a_sentence_runs_as_its_first_word_with_letters() -> None:
    assert right_to_left(["…", "1", "وحيداً", "abc"])


def test_pieces_lose_their_marks() -> None:
    assert piece_labels(["▁I", "▁can", "▁a", "lone", "▁"]) == ["I", "can", "a", "lone", "▁"]


def test_a_cut_inside_an_arabic_word_keeps_its_letters_joined() -> None:
    assert piece_labels(["▁الذ", "هاب", "▁وحيد", "اً"]) == [
        f"الذ{JOINER}",
        f"{JOINER}هاب",
        f"وحيد{JOINER}",
        f"{JOINER}اً",
    ]


def test_words_of_latin_letters_get_no_joiner() -> None:
    assert piece_labels(["▁ge", "hen", "▁م", "x"]) == ["ge", "hen", "م", "x"]


@given(st.lists(st.text("▁abجده", min_size=1, max_size=4), max_size=6))
def test_labels_are_one_a_piece_and_never_empty(pieces: list[str]) -> None:
    labels = piece_labels(pieces)
    assert len(labels) == len(pieces)
    assert all(labels)


def test_our_own_font_comes_first_and_suffices_for_the_phrasebook() -> None:
    assert families(["Straße", "أستطيع الذهاب وحيداً", "étudiant"]) == ["DejaVu Sans"]
