"""Terminology: which phrases of a line ask for which phrases of its translation."""

from pathlib import Path

import pytest

from regard.options import Terminology
from regard.options.terminology import read_phrases


@pytest.mark.parametrize(
    ("line", "phrases"),
    [
        ("The Dog barks", ("Hund",)),
        ("hotdogs and dogs", ()),
        ("a dog-house", ("Hund",)),
        ("the Guide Dog and the dog", ("Blindenhund", "Hund")),
        ("dog dog dog", ("Hund",)),
        ("U.S. law", ("US-Recht",)),
        ("", ()),
    ],
)
def test_whole_words_are_found_the_longest_phrase_first_and_each_once(line: str, phrases: tuple[str, ...]) -> None:
    assert Terminology({"dog": "Hund", "guide dog": "Blindenhund", "u.s. law": "US-Recht"}).required_in(line) == phrases


def test_a_table_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("# a comment\n\ndog\tHund \ncat\tKatze\ndog\tDackel\n", encoding="utf-8")
    terms = Terminology.read(tmp_path / "terms.tsv")
    assert (len(terms), terms.required_in("dog, cat")) == (2, ("Dackel", "Katze"))
    assert terms == Terminology({"Dog": "Dackel", "cat": "Katze"})


@pytest.mark.parametrize("line", ["dog", "dog\t", "\tHund", "dog Hund"])
def test_a_line_that_is_no_term_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text(f"a\tb\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"line 2: .* is not a term"):
        Terminology.read(tmp_path / "terms.tsv")


def test_a_file_of_phrases_has_one_on_each_line(tmp_path: Path) -> None:
    (tmp_path / "never.txt").write_text(" dog \n\nguide dog\n", encoding="utf-8")
    assert read_phrases(tmp_path / "never.txt") == ("dog", "guide dog")
