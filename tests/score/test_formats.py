"""Alignment files survive a round trip, and an invalid line is named by file and number."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.score import Alignment, read_alignments, read_naacl, read_pharaoh

LINKS = st.frozensets(st.tuples(st.integers(0, 200), st.integers(0, 200)), max_size=8)
CORPUS = st.lists(st.builds(Alignment, sure=LINKS, possible=LINKS), min_size=1, max_size=6)


def written(folder: Path, text: str) -> Path:
    path = folder / "links"
    path.write_text(text, encoding="utf-8")
    return path


def pharaoh_line(alignment: Alignment, base: int) -> str:
    return " ".join(
        f"{source + base}{'-' if (source, target) in alignment.sure else 'p'}{target + base}"
        for source, target in sorted(alignment.possible)
    )


@given(corpus=CORPUS, one_based=st.booleans())
def test_pharaoh_round_trip(corpus: list[Alignment], one_based: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    lines = "".join(pharaoh_line(alignment, base=int(one_based)) + "\n" for alignment in corpus)
    path = written(tmp_path_factory.mktemp("pharaoh"), lines)
    assert read_pharaoh(path, one_based=one_based) == corpus
    assert read_alignments(path, one_based=one_based) == corpus


@given(corpus=CORPUS)
def test_naacl_round_trip(corpus: list[Alignment], tmp_path_factory: pytest.TempPathFactory) -> None:
    lines = [
        f"{number} {source + 1} {target + 1} {'S' if (source, target) in alignment.sure else 'P'}"
        for number, alignment in enumerate(corpus, start=1)
        for source, target in sorted(alignment.possible)
    ] or [""]
    path = written(tmp_path_factory.mktemp("naacl"), "\n".join(lines) + "\n")
    assert read_naacl(path, pairs=len(corpus)) == corpus
    if lines != [""]:
        assert read_alignments(path, pairs=len(corpus)) == corpus


def test_pharaoh_distinguishes_sure_and_possible_links_and_keeps_empty_lines(tmp_path: Path) -> None:
    path = written(tmp_path, "0-0 1-2 3p4 5?6 1p2\n\n7-8\n")
    assert read_pharaoh(path) == [
        Alignment(sure=frozenset({(0, 0), (1, 2)}), possible=frozenset({(3, 4), (5, 6)})),
        Alignment(),
        Alignment(sure=frozenset({(7, 8)})),
    ]


def test_naacl_reads_flags_confidences_gaps_and_words_aligned_to_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, "0003 2 1\n1 1 1 S\n1 2 3 P 0.5\n\n1 4 4 0.25\n1 0 2 S\n3 1 0\n")
    first = Alignment(sure=frozenset({(0, 0), (3, 3)}), possible=frozenset({(1, 2)}))
    third = Alignment(sure=frozenset({(1, 0)}))
    assert read_naacl(path) == [first, Alignment(), third]
    assert read_naacl(path, pairs=4) == [first, Alignment(), third, Alignment()]


@pytest.mark.parametrize("token", ["1", "1-", "-1-2", "1-2-3", "1x2", "a-b", "1P2", "0-99999999999", "1-2:0.5", "٣-٤"])
def test_a_malformed_pharaoh_link_is_named_by_file_and_line(tmp_path: Path, token: str) -> None:
    path = written(tmp_path, f"0-0\n0-0 {token} 1-1\n")
    with pytest.raises(ValueError, match=r"links:2: .* is not a Pharaoh link; join .*0-0 or 3p4"):
        read_pharaoh(path)


@pytest.mark.parametrize(
    "line", ["1 2", "1 2 3 X", "1 2 3 S 0.5 9", "0 1 1", "a 1 1", "1 -1 2", "1 2 3 7", "1 2 3 P 5", "0-0"]
)
def test_a_malformed_naacl_link_is_named_by_file_and_line(tmp_path: Path, line: str) -> None:
    path = written(tmp_path, f"1 1 1\n{line}\n")
    with pytest.raises(ValueError, match=r"links:2: .* is not a NAACL link; write"):
        read_naacl(path)


def test_a_link_beyond_its_sentence_is_named(tmp_path: Path) -> None:
    lengths = [(2, 3), (1, 1)]
    pharaoh = written(tmp_path, "0-2 1-0\n1-0\n")
    with pytest.raises(ValueError, match=r"links:2: link 1-0 .* exceeds the 1 words of the source sentence"):
        read_pharaoh(pharaoh, lengths=lengths)
    naacl = written(tmp_path, "1 2 3\n2 1 2 P\n")
    with pytest.raises(ValueError, match=r"links:2: link 0-1 .* exceeds the 1 words of the target sentence"):
        read_naacl(naacl, lengths=lengths)


def test_a_number_of_lines_other_than_of_sentence_pairs_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "0-0\n0-0\n")
    with pytest.raises(ValueError, match="links has 2 lines for 3 sentence pairs"):
        read_pharaoh(path, lengths=[(1, 1)] * 3)


def test_a_sentence_number_out_of_bounds_is_an_error_and_not_an_endless_list(tmp_path: Path) -> None:
    path = written(tmp_path, "1 1 1\n999999999 1 1\n")
    with pytest.raises(ValueError, match="links:2: sentence 999999999 exceeds the limit of 10000000"):
        read_naacl(path)
    with pytest.raises(ValueError, match="links:2: sentence 999999999 exceeds the limit of 7"):
        read_naacl(path, pairs=7)


def test_word_0_in_a_one_based_file_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, "1-1\n0-1\n")
    with pytest.raises(ValueError, match="links:2: '0-1' has a word 0"):
        read_pharaoh(path, one_based=True)
    assert read_pharaoh(path)[1] == Alignment(sure=frozenset({(0, 1)}))
