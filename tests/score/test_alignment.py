"""The alignment error rate against a worked example, a plain loop, laws and the gold files."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.score import Alignment, alignment_error_rate, read_pharaoh, read_sentences

LINKS = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)
TRUTH = st.builds(Alignment, sure=LINKS, possible=LINKS)
CORPUS = st.lists(st.tuples(LINKS, TRUTH), min_size=1, max_size=6)


def test_a_worked_example() -> None:
    # A = {00, 11, 22, 32}; S = {00, 11, 33}; P adds 22 and 23: |A∩S| = 2, |A∩P| = 3, AER = 1 - (2 + 3) / (4 + 3).
    gold = Alignment(sure=frozenset({(0, 0), (1, 1), (3, 3)}), possible=frozenset({(2, 2), (2, 3)}))
    rates = alignment_error_rate([{(0, 0), (1, 1), (2, 2), (3, 2)}], [gold])
    assert rates.aer == pytest.approx(2 / 7)
    assert rates.precision == 3 / 4
    assert rates.recall == 2 / 3
    assert rates.f1 == pytest.approx(12 / 17)
    assert rates.signature == "pairs:1|sure:3|possible:5|proposed:4|formula:och-ney"
    assert "= 28.57% (precision 75.00%, recall 66.67%, F1 70.59%)" in str(rates)


@given(corpus=CORPUS)
def test_the_rates_equal_a_plain_loop_over_every_cell(
    corpus: list[tuple[frozenset[tuple[int, int]], Alignment]],
) -> None:
    hits_sure = hits_possible = proposed = sure = 0
    for links, truth in corpus:
        for i in range(6):
            for j in range(6):
                is_sure = (i, j) in truth.sure
                is_possible = is_sure or (i, j) in truth.possible
                if (i, j) in links:
                    proposed += 1
                    hits_sure += is_sure
                    hits_possible += is_possible
                sure += is_sure
    rates = alignment_error_rate([links for links, _ in corpus], [truth for _, truth in corpus])
    if proposed + sure:
        assert rates.aer == pytest.approx(1 - (hits_sure + hits_possible) / (proposed + sure), abs=1e-12)
    if proposed:
        assert rates.precision == hits_possible / proposed
    if sure:
        assert rates.recall == hits_sure / sure


@given(corpus=CORPUS)
def test_the_error_is_zero_exactly_between_sure_and_possible(
    corpus: list[tuple[frozenset[tuple[int, int]], Alignment]],
) -> None:
    between = all(truth.sure <= links <= truth.possible for links, truth in corpus)
    rates = alignment_error_rate([links for links, _ in corpus], [truth for _, truth in corpus])
    assert (rates.aer == 0) == between
    assert 0 <= rates.aer <= 1


@given(truth=TRUTH, extra=LINKS)
def test_any_choice_between_sure_and_possible_is_free_of_error(
    truth: Alignment, extra: frozenset[tuple[int, int]]
) -> None:
    assert alignment_error_rate([truth.sure | (extra & truth.possible)], [truth]).aer == 0


@given(corpus=CORPUS, rng=st.randoms(use_true_random=False))
def test_the_order_of_sentence_pairs_changes_nothing(
    corpus: list[tuple[frozenset[tuple[int, int]], Alignment]], rng: random.Random
) -> None:
    shuffled = rng.sample(corpus, len(corpus))
    before, after = (alignment_error_rate([a for a, _ in some], [g for _, g in some]) for some in (corpus, shuffled))
    assert before == after


@given(corpus=CORPUS)
def test_without_possible_links_the_error_is_one_minus_f1(
    corpus: list[tuple[frozenset[tuple[int, int]], Alignment]],
) -> None:
    gold = [Alignment(sure=truth.sure) for _, truth in corpus]
    rates = alignment_error_rate([links for links, _ in corpus], gold)
    if rates.proposed and rates.sure:
        assert rates.aer == pytest.approx(1 - rates.f1, abs=1e-12)


@given(sure=LINKS, possible=LINKS)
def test_every_sure_link_is_possible(sure: frozenset[tuple[int, int]], possible: frozenset[tuple[int, int]]) -> None:
    assert Alignment(sure, possible).possible == sure | possible


def test_rates_without_proposed_or_sure_links_are_defined() -> None:
    gold, nothing = Alignment(frozenset({(0, 0)})), Alignment()
    silent = alignment_error_rate([nothing], [gold])
    assert (silent.aer, silent.precision, silent.recall, silent.f1) == (1.0, 1.0, 0.0, 0.0)
    idle = alignment_error_rate([nothing], [nothing])
    assert (idle.aer, idle.precision, idle.recall, idle.f1) == (0.0, 1.0, 1.0, 1.0)
    useless = alignment_error_rate([{(1, 1)}], [gold])
    assert (useless.aer, useless.f1) == (1.0, 0.0)


def test_unequal_or_empty_corpora_and_negative_words_are_errors() -> None:
    with pytest.raises(ValueError, match="1 predicted alignments but 2 gold"):
        alignment_error_rate([Alignment()], [Alignment(), Alignment()])
    with pytest.raises(ValueError, match="at least one"):
        alignment_error_rate([], [])
    with pytest.raises(ValueError, match="link -1-0 is negative"):
        Alignment(frozenset({(-1, 0)}))


@pytest.mark.parametrize(
    ("name", "pairs", "sure", "merely_possible"),
    [
        ("de-en.europarl", 100, 1232, 0),
        ("en-fr.hansards", 447, 4038, 13400),
        ("ro-en.wpt", 248, 6198, 0),
        ("ja-en.kftt.dev", 291, 7096, 0),
        ("en-it.xlwa.dev", 103, 1980, 0),
    ],
)
def test_the_gold_files_read_whole_and_within_their_sentences(
    name: str, pairs: int, sure: int, merely_possible: int, shared_data: Path
) -> None:
    folder = shared_data / "alignments"
    languages = name.split(".")[0].split("-")
    source, target = (read_sentences(folder / f"{name}.{language}.gz") for language in languages)
    lengths = [(len(words.split()), len(translated.split())) for words, translated in zip(source, target, strict=True)]
    gold = read_pharaoh(folder / f"{name}.align.gz", lengths=lengths)
    diagonal = [{(i, i) for i in range(min(length))} for length in lengths]
    rates = alignment_error_rate(diagonal, gold)
    assert (rates.pairs, rates.sure, rates.possible) == (pairs, sure, sure + merely_possible)
    assert 0.1 < rates.aer < 1
    assert alignment_error_rate(gold, gold).aer == 0
