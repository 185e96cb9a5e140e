"""Samples are what the distribution says, and nothing but the seed decides which."""

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
from regard.decode.sampling import draw, uniform

DRAWS = 20_000


def chi_squared(counts: torch.Tensor, expected: torch.Tensor) -> float:
    """The probability of counts as far from the expected ones as these, or farther (Wilson & Hilferty 1931)."""
    seen = expected > 0
    statistic = float(((counts - expected)[seen] ** 2 / expected[seen]).sum())
    free = int(seen.sum()) - 1
    z = ((statistic / free) ** (1 / 3) - (1 - 2 / (9 * free))) / math.sqrt(2 / (9 * free))
    return 0.5 * math.erfc(z / math.sqrt(2))


def kept(p: torch.Tensor, sampling: SamplingOptions) -> torch.Tensor:
    """The distribution that remains, token by token, by a plain loop."""
    p = p ** (1 / sampling.temperature)
    p = p / p.sum()
    order = p.argsort(descending=True).tolist()
    order = order[: sampling.top_k]
    whole = sum(float(p[token]) for token in order)
    staying, reached = [], 0.0
    for token in order:
        if reached >= sampling.top_p:
            break
        staying.append(token)
        reached += float(p[token]) / whole
    staying = [token for token in staying if p[token] >= sampling.min_p * p[order[0]]]
    left = torch.zeros_like(p)
    left[staying] = p[staying]
    return left / left.sum()


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
def test_tokens_come_as_often_as_their_probability_says(sampling: SamplingOptions, size: int) -> None:
    generator = torch.Generator().manual_seed(5)
    logprobs = (torch.randn(size, generator=generator, dtype=torch.float64) * math.log10(size)).log_softmax(0)
    numbers = uniform(torch.full((DRAWS,), 7), torch.arange(DRAWS), torch.zeros(DRAWS, dtype=torch.int64))
    tokens = torch.cat([draw(logprobs.expand(500, -1), part, sampling) for part in numbers.view(-1, 500)])
    expected = kept(logprobs.exp(), sampling) * DRAWS
    counts = tokens.bincount(minlength=size).double()
    assert bool((counts[expected == 0] == 0).all())
    # Rare tokens are counted together: the test holds only for expectations that are not small.
    common = expected >= 20
    rest = [(~common).double() @ each for each in (counts, expected)]
    assert chi_squared(torch.cat([counts[common], rest[0][None]]), torch.cat([expected[common], rest[1][None]])) > 1e-3


def test_sequences_come_as_often_as_their_probability_says() -> None:
    table, limits = Table(3, 4), LengthLimits(maximum=2)
    options = replace(PLAIN, nbest=50, sampling=SamplingOptions(), limits=limits)
    requests = [SentenceOptions(seed=seed) for seed in range(80)]
    sentences = [0] * len(requests)
    found = search(table, table.start(sentences, options.rows), requests, options)
    counts = Counter(each.tokens for samples in found for each in samples)
    every = list(sequences(3, 2))
    # Behind the last place stands the end, whatever its probability: what counts is how likely one gets there.
    chances = [math.exp(sum(forced(table, 0, each)[: 2 if len(each) == 2 else None])) for each in every]
    assert sum(counts.values()) == 4000
    drawn = torch.tensor([counts[each] for each in every], dtype=torch.float64)
    assert chi_squared(drawn, torch.tensor(chances, dtype=torch.float64) * 4000) > 1e-3


def test_the_test_for_frequencies_sees_a_wrong_distribution() -> None:
    expected = torch.tensor([0.5, 0.3, 0.2]) * DRAWS
    assert chi_squared(torch.tensor([0.48, 0.3, 0.22]) * DRAWS, expected) < 1e-3
    assert chi_squared(torch.tensor([0.501, 0.3, 0.199]) * DRAWS, expected) > 0.1


@given(st.lists(seeds, min_size=1, max_size=6), st.integers(1, 4))
@settings(max_examples=20)
def test_company_changes_no_sample(drawn_from: list[int], count: int) -> None:
    table = Table(5, 1)
    options = replace(PLAIN, nbest=count, sampling=SamplingOptions(top_k=4))
    requests = [SentenceOptions(seed=seed) for seed in drawn_from]
    together = run(table, options, requests)
    assert together == [run(table, options, [requested], first)[0] for first, requested in enumerate(requests)]


@given(seeds)
def test_more_samples_are_the_same_samples_and_others(seed: int) -> None:
    table, requested = Table(6, 2), SentenceOptions(seed=seed)
    few, many = (
        run(table, replace(PLAIN, nbest=count, sampling=SamplingOptions()), [requested])[0] for count in (2, 6)
    )
    assert not Counter(each.tokens for each in few) - Counter(each.tokens for each in many)


def test_another_seed_draws_other_samples() -> None:
    table = Table(30, 3)
    found = run(table, replace(PLAIN, sampling=SamplingOptions()), [SentenceOptions(seed=seed) for seed in range(2)])
    again = [
        run(table, replace(PLAIN, sampling=SamplingOptions()), [SentenceOptions(seed=seed)])[0] for seed in range(20)
    ]
    assert found[0] == again[0]
    assert len({samples[0].tokens for samples in again}) > 10


@given(seeds, st.sampled_from([0.4, 3.0]))
def test_a_sample_is_worth_what_the_model_says_not_what_it_was_drawn_from(seed: int, temperature: float) -> None:
    table = Table(5, seed)
    options = replace(PLAIN, nbest=3, sampling=SamplingOptions(temperature, top_k=3), length_penalty=0.0)
    for each in run(table, options, [SentenceOptions(seed=seed)])[0]:
        assert each.token_logprobs == pytest.approx(forced(table, 0, each.tokens))
        assert each.score == each.logprob


@given(seeds)
def test_rules_hold_for_samples_too(seed: int) -> None:
    table, limits = Table(5, seed, sharpness=0.3), LengthLimits(minimum=2, maximum=5)
    options = replace(PLAIN, nbest=4, sampling=SamplingOptions(), limits=limits, banned=(3,), no_repeat=2)
    requested = SentenceOptions(prefix=(4,), avoid=((2, 0),), seed=seed)
    for each in run(table, options, [requested])[0]:
        pairs = list(zip(each.tokens, each.tokens[1:], strict=False))
        assert each.tokens[0] == 4
        assert 3 not in each.tokens
        assert END not in each.tokens
        assert (2, 0) not in pairs
        assert len(set(pairs)) == len(pairs)
        assert 2 <= len(each.tokens) <= 5


def test_only_the_most_probable_token_left_is_greedy() -> None:
    table = Table(6, 8)
    greedy = run(table, replace(PLAIN, beam=1), [SentenceOptions()] * 3)
    assert run(table, replace(PLAIN, sampling=SamplingOptions(top_k=1)), [SentenceOptions(seed=5)] * 3) == greedy
    assert run(table, replace(PLAIN, sampling=SamplingOptions(top_p=1e-9)), [SentenceOptions(seed=6)] * 3) == greedy
    assert run(table, replace(PLAIN, sampling=SamplingOptions(min_p=1.0)), [SentenceOptions(seed=7)] * 3) == greedy


def test_numbers_are_even_and_never_one() -> None:
    numbers = uniform(torch.arange(100)[:, None], torch.arange(200), torch.tensor(3))
    assert float(numbers.min()) >= 0
    assert float(numbers.max()) < 1
    counts = (numbers.flatten() * 50).long().bincount(minlength=50).double()
    assert chi_squared(counts, torch.full((50,), 400.0)) > 1e-3
