"""Subword sampling is reproducible in any process, and has the right probabilities."""

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
from regard.text.tokenizer import TokenBatch

LINES = [*corpus()[:150], "Ünseen 🦓 <2de> the", "", "cat" * 500]
KINDS = ("bpe", "unigram")


def same(a: TokenBatch, b: TokenBatch) -> bool:
    return np.array_equal(a[0], b[0]) and np.array_equal(a[1], b[1])


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
def test_the_same_seed_gives_the_same_ids_while_other_threads_sample(kind: str) -> None:
    tokenizer = learned(kind)
    alone = tokenizer.sample_batch(LINES, 0.3, 11)
    fresh = Tokenizer(tokenizer.model).sample_batch(LINES, 0.3, 11, threads=3)
    with ThreadPoolExecutor(4) as pool:
        concurrent = list(pool.map(lambda seed: tokenizer.sample_batch(LINES, 0.3, seed), [11, 5, 11, 6, 11]))
    assert same(alone, fresh)
    assert all(same(alone, concurrent[at]) for at in (0, 2, 4))
    assert not same(alone, concurrent[1])


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_ids_in_another_process(kind: str, tmp_path: Path) -> None:
    learned(kind).save(tmp_path / "some.model")
    program = (
        "import sys; from regard.text import Tokenizer;"
        "print(Tokenizer.load(sys.argv[1]).sample_batch(['the cat saw the street', 'allein'], 0.5, 3)[0].tolist())"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "some.model")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    here = learned(kind).sample_batch(["the cat saw the street", "allein"], 0.5, 3)[0].tolist()
    assert printed.strip() == str(here)


@pytest.mark.parametrize("kind", KINDS)
def test_sampling_with_amount_zero_is_encoding(kind: str) -> None:
    tokenizer = learned(kind)
    assert same(tokenizer.sample_batch(LINES, 0, 1), tokenizer.encode_batch(LINES))


@given(line=text)
def test_dropout_that_skips_nothing_is_encoding(line: str) -> None:
    for spelled in (True, False):
        tokenizer = learned("bpe", "nfkc", False, spelled)
        assert same(tokenizer.sample_batch([line], 1e-300, 1), tokenizer.encode_batch([line]))


def test_dropout_that_skips_everything_gives_characters() -> None:
    tokenizer = learned("bpe")
    ids, _ = tokenizer.sample_batch(["the cat"], 1, 1)
    assert [tokenizer.piece(number) for number in ids.tolist()] == list("▁the▁cat")


@pytest.mark.parametrize("tail", ["", "d" * 30], ids=["cached", "long"])
def test_dropout_skips_each_merge_with_its_probability(tail: str) -> None:
    """The word `abc` has the merges ab and then abc: both happen, or only ab, or none; bc is no merge."""
    scores = {"a": (4, 0.0), "b": (5, 0.0), "c": (6, 0.0), "d": (9, 0.0), "ab": (7, -1.0), "abc": (8, -2.0)}
    sampler = DropoutSampler(scores, [], [])
    random = Random(1)
    counts = Counter(sampler.sample("abc" + tail, 0.3, random)[0] for _ in range(20_000))
    for first, expected in ((8, 0.7 * 0.7), (7, 0.7 * 0.3), (4, 0.3)):
        assert counts[first] / 20_000 == pytest.approx(expected, abs=0.02)


def test_unigram_sampling_has_the_probabilities_of_the_model() -> None:
    """Compare with all segmentations of a word by brute force, weighted by P^α (Kudo 2018, §3.3)."""
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
    counts = Counter(tuple(sampler.sample(word, alpha, random)) for _ in range(20_000))
    assert set(counts) == set(weights)
    for ids, weight in weights.items():
        assert counts[ids] / 20_000 == pytest.approx(weight / sum(weights.values()), abs=0.02)


def test_a_skipped_merge_may_happen_later() -> None:
    """Compare with every outcome of Provilkov et al. 2020, algorithm 1, on a word whose merges compete."""
    scores = {piece: (4 + at, -float(at)) for at, piece in enumerate(["a", "b", "c", "d", "ab", "bc", "cd", "abcd"])}
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
    counts = Counter(tuple(sampler.sample(word, amount, random)) for _ in range(20_000))
    assert sum(expected.values()) == pytest.approx(1)
    assert set(counts) == {sampler.ids(pieces) for pieces in expected}
    for pieces, chance in expected.items():
        assert counts[sampler.ids(pieces)] / 20_000 == pytest.approx(chance, abs=0.02)


def test_unigram_samples_have_the_distribution_of_sentencepiece() -> None:
    """Its generator cannot be seeded, so the frequencies of the most common samples are compared."""
    tokenizer = learned("unigram")
    theirs = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    line, draws, amount = "student street", 4000, 0.3
    rows = theirs.encode([line] * draws, enable_sampling=True, alpha=amount, nbest_size=-1, num_threads=1)
    expected = Counter(map(tuple, rows))
    ids, offsets = tokenizer.sample_batch([line] * draws, amount, 5)
    counts = Counter(tuple(ids[start:end].tolist()) for start, end in pairwise(offsets))
    for row, count in expected.most_common(5):
        assert abs(counts[row] - count) < 6 * math.sqrt(2 * draws * 0.25)


@pytest.mark.parametrize("kind", ["word", "char"])
def test_sampling_from_words_or_characters_raises(kind: str) -> None:
    with pytest.raises(ValueError, match="sample with bpe or unigram"):
        learned(kind).sample_batch(["the cat"], 0.1, 1)


@pytest.mark.parametrize("amount", [-0.1, 1.5, math.nan])
def test_an_amount_out_of_range_raises(amount: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        learned("bpe").sample_batch(["the cat"], amount, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_sampling_a_very_long_word_takes_linear_time(kind: str) -> None:
    tokenizer = learned(kind)
    line = "cat" * 100_000
    assert tokenizer.decode(tokenizer.sample_batch([line], 0.1, 1)[0]) == line
