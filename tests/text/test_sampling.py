"""Subword sampling: repeatable anywhere, and with the right probabilities."""

import math
import subprocess
import sys
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product
from pathlib import Path
from random import Random

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from tests.text.conftest import SYMBOLS, corpus, learned, text

from regard.text import Tokenizer
from regard.text.sampling import DropoutSampler, UnigramSampler
from regard.text.tokenizer import Batch

LINES = [*corpus()[:150], "Ünseen 🦓 <2de> the", "", "cat" * 500]
KINDS = ("bpe", "unigram")


def same(one: Batch, other: Batch) -> bool:
    return np.array_equal(one[0], other[0]) and np.array_equal(one[1], other[1])


@pytest.mark.parametrize("kind", KINDS)
@given(line=text, amount=st.floats(0, 1), seed=st.integers(0, 2**64))
def test_a_sample_spells_the_same_text(kind: str, line: str, amount: float, seed: int) -> None:
    for normalise in ("nfkc", "identity"):
        tokenizer = learned(kind, normalise)
        ids, _ = tokenizer.sample_batch([line], amount, seed)
        assert tokenizer.decode(ids) == tokenizer.normalise(line)


@pytest.mark.parametrize("kind", KINDS)
@given(line=text, seed=st.integers(0, 9))
def test_a_sample_has_every_symbol_whole_and_no_control_id(kind: str, line: str, seed: int) -> None:
    tokenizer = learned(kind)
    ids = tokenizer.sample_batch([line], 0.5, seed)[0].tolist()
    assert not {0, 1, 2, 3} & set(ids)
    for symbol in SYMBOLS:
        number = tokenizer.id(symbol)
        assert ids.count(number) == tokenizer.encode(line).count(number)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_ids_whatever_else_samples(kind: str) -> None:
    tokenizer = learned(kind)
    alone = tokenizer.sample_batch(LINES, 0.3, 11)
    fresh = Tokenizer(tokenizer.model).sample_batch(LINES, 0.3, 11, threads=3)
    with ThreadPoolExecutor(4) as pool:
        crowd = list(pool.map(lambda seed: tokenizer.sample_batch(LINES, 0.3, seed), [11, 5, 11, 6, 11]))
    assert same(alone, fresh)
    assert all(same(alone, crowd[at]) for at in (0, 2, 4))
    assert not same(alone, crowd[1])


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_ids_in_another_process(kind: str, tmp_path: Path) -> None:
    learned(kind).save(tmp_path / "some.model")
    program = (
        "import sys; from regard.text import Tokenizer;"
        "print(Tokenizer.load(sys.argv[1]).sample_batch(['the cat saw the street', 'allein'], 0.5, 3)[0].tolist())"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "some.model")]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    here = learned(kind).sample_batch(["the cat saw the street", "allein"], 0.5, 3)[0].tolist()
    assert found.strip() == str(here)


@pytest.mark.parametrize("kind", KINDS)
def test_no_sampling_is_encoding(kind: str) -> None:
    tokenizer = learned(kind)
    assert same(tokenizer.sample_batch(LINES, 0, 1), tokenizer.encode_batch(LINES))


@given(line=text)
def test_dropout_that_drops_nothing_is_encoding(line: str) -> None:
    for spelled in (True, False):
        tokenizer = learned("bpe", "nfkc", False, spelled)
        assert same(tokenizer.sample_batch([line], 1e-300, 1), tokenizer.encode_batch([line]))


def test_dropout_of_everything_is_characters() -> None:
    tokenizer = learned("bpe")
    ids, _ = tokenizer.sample_batch(["the cat"], 1, 1)
    assert [tokenizer.piece(number) for number in ids.tolist()] == list("▁the▁cat")


@pytest.mark.parametrize("tail", ["", "d" * 30], ids=["looked-up", "long"])
def test_dropout_drops_each_merge_with_its_probability(tail: str) -> None:
    """Of `abc` with merges ab, then abc: both are kept, or only ab, or none; bc is no merge."""
    scores = {"a": (4, 0.0), "b": (5, 0.0), "c": (6, 0.0), "d": (9, 0.0), "ab": (7, -1.0), "abc": (8, -2.0)}
    sampler = DropoutSampler(scores, [], [])
    random = Random(1)
    found = Counter(sampler.sample("abc" + tail, 0.3, random)[0] for _ in range(20_000))
    for first, expected in ((8, 0.7 * 0.7), (7, 0.7 * 0.3), (4, 0.3)):
        assert found[first] / 20_000 == pytest.approx(expected, abs=0.02)


def test_unigram_sampling_has_the_probabilities_of_the_model() -> None:
    """Every segmentation of a word by brute force, weighed by P^α (Kudo 2018, §3.3)."""
    scores = {"a": (4, -2.0), "b": (5, -3.0), "ab": (6, -1.5), "ba": (7, -2.5), "aba": (8, -4.0)}
    word, alpha = "abab", 0.4
    weights: dict[tuple[int, ...], float] = {}
    for cuts in product([False, True], repeat=len(word) - 1):
        marks = [0, *(at + 1 for at, cut in enumerate(cuts) if cut), len(word)]
        pieces = [word[start:end] for start, end in pairwise(marks)]
        if all(piece in scores for piece in pieces):
            weights[tuple(scores[piece][0] for piece in pieces)] = math.exp(alpha * sum(scores[p][1] for p in pieces))
    random = Random(2)
    sampler = UnigramSampler(scores, [], [])
    found = Counter(tuple(sampler.sample(word, alpha, random)) for _ in range(20_000))
    assert set(found) == set(weights)
    for ids, weight in weights.items():
        assert found[ids] / 20_000 == pytest.approx(weight / sum(weights.values()), abs=0.02)


def test_a_merge_passed_over_may_come_back() -> None:
    """Every run of Provilkov et al. 2020, algorithm 1, on a word whose merges compete, with its probability."""
    scores = {each: (4 + at, -float(at)) for at, each in enumerate(["a", "b", "c", "d", "ab", "bc", "cd", "abcd"])}
    word, amount = "abcd", 0.4
    expected: defaultdict[tuple[str, ...], float] = defaultdict(float)

    def follow(pieces: tuple[str, ...], chance: float) -> None:
        merges = sorted(
            (at for at in range(len(pieces) - 1) if pieces[at] + pieces[at + 1] in scores),
            key=lambda at: -scores[pieces[at] + pieces[at + 1]][1],
        )
        for at in merges:
            follow((*pieces[:at], pieces[at] + pieces[at + 1], *pieces[at + 2 :]), chance * (1 - amount))
            chance *= amount
        expected[pieces] += chance

    follow(tuple(word), 1.0)
    sampler, random = DropoutSampler(scores, [], []), Random(3)
    found = Counter(tuple(sampler.sample(word, amount, random)) for _ in range(20_000))
    assert sum(expected.values()) == pytest.approx(1)
    assert set(found) == {sampler.ids(pieces) for pieces in expected}
    for pieces, chance in expected.items():
        assert found[sampler.ids(pieces)] / 20_000 == pytest.approx(chance, abs=0.02)


def test_unigram_samples_are_those_sentencepiece_draws() -> None:
    """Its generator cannot be repeated, so the two are compared by what they draw most, with room for chance."""
    tokenizer = learned("unigram")
    theirs = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    line, draws, amount = "student street", 4000, 0.3
    rows = theirs.encode([line] * draws, enable_sampling=True, alpha=amount, nbest_size=-1, num_threads=1)
    expected = Counter(map(tuple, rows))
    ids, offsets = tokenizer.sample_batch([line] * draws, amount, 5)
    found = Counter(tuple(ids[start:end].tolist()) for start, end in pairwise(offsets))
    for row, count in expected.most_common(5):
        assert abs(found[row] - count) < 6 * math.sqrt(2 * draws * 0.25)


@pytest.mark.parametrize("kind", ["word", "char"])
def test_kinds_with_one_way_to_cut_refuse_to_sample(kind: str) -> None:
    with pytest.raises(ValueError, match="sample with bpe or unigram"):
        learned(kind).sample_batch(["the cat"], 0.1, 1)


@pytest.mark.parametrize("amount", [-0.1, 1.5, math.nan])
def test_an_amount_out_of_range_is_refused(amount: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        learned("bpe").sample_batch(["the cat"], amount, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_sampling_a_megabyte_in_one_word_ends(kind: str) -> None:
    tokenizer = learned(kind)
    line = "cat" * 100_000
    assert tokenizer.decode(tokenizer.sample_batch([line], 0.1, 1)[0]) == line
