"""Samples have the distribution of the model, and depend on the seed only."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decode.table import END, Table, forced, sequences
from tests.decode.test_beam import PLAIN, run, seeds

from regard.decode import LengthLimits, SamplingOptions, SentenceOptions, search
from regard.decode.sampling import RowSampling, draw, uniform

DRAWS = 20_000


def chi_squared(counts: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the p-value of counts under a χ² test, approximated by Wilson & Hilferty (1931)."""
    seen = expected > 0
    statistic = float(((counts - expected)[seen] ** 2 / expected[seen]).sum())
    free = int(seen.sum()) - 1
    z = ((statistic / free) ** (1 / 3) - (1 - 2 / (9 * free))) / math.sqrt(2 / (9 * free))
    return 0.5 * math.erfc(z / math.sqrt(2))


def filtered(p: torch.Tensor, sampling: SamplingOptions) -> torch.Tensor:
    """Return the distribution that top-k, top-p and min-p leave, by a plain loop."""
    p = p ** (1 / sampling.temperature)
    p = p / p.sum()
    order = p.argsort(descending=True).tolist()
    order = order[: sampling.top_k]
    whole = sum(float(p[token]) for token in order)
    kept, reached = [], 0.0
    for token in order:
        if reached >= sampling.top_p:
            break
        kept.append(token)
        reached += float(p[token]) / whole
    kept = [token for token in kept if p[token] >= sampling.min_p * p[order[0]]]
    remaining = torch.zeros_like(p)
    remaining[kept] = p[kept]
    return remaining / remaining.sum()


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingOptions(),
        SamplingOptions(temperature=0.5),
        SamplingOptions(temperature=2.0),
        SamplingOptions(top_k=4),
        SamplingOptions(top_p=0.7),
        SamplingOptions(min_p=0.2),
        SamplingOptions(temperature=1.3, top_k=6, top_p=0.8, min_p=0.1),
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [12, 1500])
def test_tokens_have_the_frequencies_of_their_probabilities(sampling: SamplingOptions, size: int) -> None:
    generator = torch.Generator().manual_seed(5)
    logprobs = (torch.randn(size, generator=generator, dtype=torch.float64) * math.log10(size)).log_softmax(0)
    numbers = uniform(torch.full((DRAWS,), 7), torch.arange(DRAWS), torch.zeros(DRAWS, dtype=torch.int64))
    rows = RowSampling([sampling] * 500, "cpu")
    tokens = torch.cat([draw(logprobs.expand(500, -1), part, rows) for part in numbers.view(-1, 500)])
    expected = filtered(logprobs.exp(), sampling) * DRAWS
    counts = tokens.bincount(minlength=size).double()
    assert bool((counts[expected == 0] == 0).all())
    # Rare tokens are counted together: the test holds only for expectations that are not small.
    common = expected >= 20
    rest = [(~common).double() @ values for values in (counts, expected)]
    assert chi_squared(torch.cat([counts[common], rest[0][None]]), torch.cat([expected[common], rest[1][None]])) > 1e-3


def test_sequences_have_the_frequencies_of_their_probabilities() -> None:
    table, limits = Table(3, 4), LengthLimits(maximum=2)
    options = replace(PLAIN, nbest=50, sampling=SamplingOptions(), limits=limits)
    requests = [SentenceOptions(seed=seed) for seed in range(80)]
    sentences = [0] * len(requests)
    found = search(table, table.start(sentences, options.rows), requests, options)
    counts = Counter(sample.tokens for samples in found for sample in samples)
    possible = list(sequences(3, 2))
    # A sequence of maximal length ends whatever the probability of the end symbol, so this factor is left out.
    chances = [math.exp(sum(forced(table, 0, tokens)[: 2 if len(tokens) == 2 else None])) for tokens in possible]
    assert sum(counts.values()) == 4000
    drawn = torch.tensor([counts[tokens] for tokens in possible], dtype=torch.float64)
    assert chi_squared(drawn, torch.tensor(chances, dtype=torch.float64) * 4000) > 1e-3


def test_the_chi_squared_test_rejects_a_wrong_distribution() -> None:
    expected = torch.tensor([0.5, 0.3, 0.2]) * DRAWS
    assert chi_squared(torch.tensor([0.48, 0.3, 0.22]) * DRAWS, expected) < 1e-3
    assert chi_squared(torch.tensor([0.501, 0.3, 0.199]) * DRAWS, expected) > 0.1


@given(st.lists(seeds, min_size=1, max_size=6), st.integers(1, 4))
@settings(max_examples=20)
def test_other_sentences_in_the_batch_change_no_sample(drawn_from: list[int], count: int) -> None:
    table = Table(5, 1)
    options = replace(PLAIN, nbest=count, sampling=SamplingOptions(top_k=4))
    requests = [SentenceOptions(seed=seed) for seed in drawn_from]
    together = run(table, options, requests)
    assert together == [run(table, options, [requested], first)[0] for first, requested in enumerate(requests)]


@given(seeds)
def test_more_samples_include_those_of_a_smaller_number(seed: int) -> None:
    table, requested = Table(6, 2), SentenceOptions(seed=seed)
    few, many = (
        run(table, replace(PLAIN, nbest=count, sampling=SamplingOptions()), [requested])[0] for count in (2, 6)
    )
    assert not Counter(sample.tokens for sample in few) - Counter(sample.tokens for sample in many)


def test_another_seed_draws_other_samples() -> None:
    table = Table(30, 3)
    found = run(table, replace(PLAIN, sampling=SamplingOptions()), [SentenceOptions(seed=seed) for seed in range(2)])
    again = [
        run(table, replace(PLAIN, sampling=SamplingOptions()), [SentenceOptions(seed=seed)])[0] for seed in range(20)
    ]
    assert found[0] == again[0]
    assert len({samples[0].tokens for samples in again}) > 10


@given(seeds, st.sampled_from([0.4, 3.0]))
def test_the_score_of_a_sample_is_its_log_probability_before_temperature_and_top_k(
    seed: int, temperature: float
) -> None:
    table = Table(5, seed)
    options = replace(PLAIN, nbest=3, sampling=SamplingOptions(temperature, top_k=3), length_penalty=0.0)
    for sample in run(table, options, [SentenceOptions(seed=seed)])[0]:
        assert sample.token_logprobs == pytest.approx(forced(table, 0, sample.tokens))
        assert sample.score == sample.logprob


@given(seeds)
def test_samples_obey_the_rules_of_a_search(seed: int) -> None:
    table, limits = Table(5, seed, sharpness=0.3), LengthLimits(minimum=2, maximum=5)
    options = replace(PLAIN, nbest=4, sampling=SamplingOptions(), limits=limits, banned=(3,), no_repeat=2)
    requested = SentenceOptions(prefix=(4,), avoid=((2, 0),), seed=seed)
    for sample in run(table, options, [requested])[0]:
        pairs = list(zip(sample.tokens, sample.tokens[1:], strict=False))
        assert sample.tokens[0] == 4
        assert 3 not in sample.tokens
        assert END not in sample.tokens
        assert (2, 0) not in pairs
        assert len(set(pairs)) == len(pairs)
        assert 2 <= len(sample.tokens) <= 5


def test_sampling_from_one_remaining_token_is_greedy_search() -> None:
    table = Table(6, 8)
    greedy = run(table, replace(PLAIN, beam=1), [SentenceOptions()] * 3)
    assert run(table, replace(PLAIN, sampling=SamplingOptions(top_k=1)), [SentenceOptions(seed=5)] * 3) == greedy
    assert run(table, replace(PLAIN, sampling=SamplingOptions(top_p=1e-9)), [SentenceOptions(seed=6)] * 3) == greedy
    assert run(table, replace(PLAIN, sampling=SamplingOptions(min_p=1.0)), [SentenceOptions(seed=7)] * 3) == greedy


def test_random_numbers_are_uniform_and_below_one() -> None:
    numbers = uniform(torch.arange(100)[:, None], torch.arange(200), torch.tensor(3))
    assert float(numbers.min()) >= 0
    assert float(numbers.max()) < 1
    counts = (numbers.flatten() * 50).long().bincount(minlength=50).double()
    assert chi_squared(counts, torch.full((50,), 400.0)) > 1e-3
