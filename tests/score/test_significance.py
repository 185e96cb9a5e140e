"""Significance tests agree with sacrebleu's, are reproducible, and find no difference where there is none."""

import random
from collections.abc import Callable, Sequence
from math import comb

import pytest
import sacrebleu
from sacrebleu.significance import PairedTest, Result

from regard.score import METRICS, Comparison, paired_bootstrap, paired_randomisation, score

TEXT = "der die das hund katze läuft schläft über neben grüne alte straße wiese nicht weil er wer müde war ."
WORDS = TEXT.split()
Test = Callable[..., Comparison]
TESTS: list[Test] = [paired_bootstrap, paired_randomisation]


def corpus(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(3, 20))) for _ in range(count)]


def corrupted(lines: list[str], rate: float, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choice(WORDS) if rng.random() < rate else word for word in line.split()) for line in lines]


REFERENCES = corpus(301, seed=1)  # an odd number, so that no draw ends on a round boundary
GOOD = corrupted(REFERENCES, 0.20, seed=2)
SIMILAR = corrupted(REFERENCES, 0.21, seed=3)
BAD = corrupted(REFERENCES, 0.50, seed=4)


def sacrebleu_result(
    metric: sacrebleu.metrics.base.Metric, baseline: list[str], kind: str, samples: int
) -> tuple[str, Result, Result]:
    systems: list[tuple[str, Sequence[str]]] = [("baseline", baseline), ("system", GOOD)]
    signatures, results = PairedTest(systems, {"metric": metric}, [REFERENCES], test_type=kind, n_samples=samples)()
    ((name, signature),) = signatures.items()
    first, second = results[name]
    assert isinstance(first, Result)
    assert isinstance(second, Result)
    return str(signature), first, second


@pytest.mark.parametrize("baseline", [SIMILAR, BAD])
@pytest.mark.parametrize(
    ("metric", "inner"), [("bleu", sacrebleu.BLEU()), ("chrf", sacrebleu.CHRF()), ("ter", sacrebleu.TER())]
)
def test_the_bootstrap_gives_sacrebleus_p_value_interval_and_signature(
    metric: str, inner: sacrebleu.metrics.base.Metric, baseline: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "77")
    signature, their_baseline, their_system = sacrebleu_result(inner, baseline, "bs", samples=200)
    ours = paired_bootstrap(GOOD, baseline, REFERENCES, metric=metric, samples=200, seed=77)
    assert (ours.system.value, ours.baseline.value) == (their_system.score, their_baseline.score)
    assert (ours.p_value, ours.signature) == (their_system.p_value, signature)
    exact = metric == "bleu"  # sacrebleu halves the others' intervals in float32
    for interval, result in ((ours.system_interval, their_system), (ours.baseline_interval, their_baseline)):
        assert interval is not None
        assert (interval[1] - interval[0]) / 2 == pytest.approx(result.ci, rel=0 if exact else 1e-5, abs=0)


@pytest.mark.parametrize("baseline", [SIMILAR, BAD])
@pytest.mark.parametrize(("metric", "inner"), [("bleu", sacrebleu.BLEU()), ("chrf", sacrebleu.CHRF())])
def test_randomisation_gives_sacrebleus_p_value_and_signature(
    metric: str, inner: sacrebleu.metrics.base.Metric, baseline: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "77")
    signature, _, their_system = sacrebleu_result(inner, baseline, "ar", samples=250)
    ours = paired_randomisation(GOOD, baseline, REFERENCES, metric=metric, samples=250, seed=77)
    assert (ours.p_value, ours.signature) == (their_system.p_value, signature)


def test_ties_count_as_at_least_as_large_unlike_in_sacrebleu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "77")
    _, _, theirs = sacrebleu_result(sacrebleu.TER(), SIMILAR, "ar", samples=250)  # whole edits, hence many ties
    ours = paired_randomisation(GOOD, SIMILAR, REFERENCES, metric="ter", samples=250, seed=77)
    assert theirs.p_value is not None
    assert ours.p_value > theirs.p_value


@pytest.mark.parametrize(("wins", "losses"), [(6, 0), (9, 2), (7, 6)])
def test_randomised_exact_match_is_the_sign_test(wins: int, losses: int) -> None:
    system = ["x"] * losses + REFERENCES[losses:]
    baseline = REFERENCES[:-wins] + ["x"] * wins
    flips = wins + losses
    gaps = [abs(2 * heads - flips) for heads in range(flips + 1)]
    exact = sum(comb(flips, heads) for heads, gap in enumerate(gaps) if gap >= wins - losses) / 2**flips
    comparison = paired_randomisation(system, baseline, REFERENCES, metric="exact", samples=4000)
    assert comparison.p_value == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 4000) ** 0.5 + 1 / 4000)


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("metric", METRICS)
def test_a_system_does_not_differ_from_itself(test: Test, metric: str) -> None:
    comparison = test(GOOD, GOOD, REFERENCES, metric=metric, samples=50)
    assert (comparison.difference, comparison.p_value) == (0, 1)


@pytest.mark.parametrize("test", TESTS)
def test_one_sentence_more_is_no_significant_difference(test: Test) -> None:
    better = [REFERENCES[0], *GOOD[1:]]
    worse = [BAD[0], *GOOD[1:]]
    comparison = test(better, worse, REFERENCES, samples=200)
    assert comparison.difference > 0
    assert comparison.p_value > 0.05


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("metric", ["bleu", "chrf++", "ter", "bleu-lowercase-tokenised"])
def test_a_clearly_better_system_is_found_better(test: Test, metric: str) -> None:
    comparison = test(GOOD, BAD, REFERENCES, metric=metric, samples=200)
    assert comparison.p_value == 1 / 201
    assert comparison.difference > 0 if comparison.system.higher_is_better else comparison.difference < 0


def test_a_clearly_better_system_wins_every_sample_whichever_way_its_score_points() -> None:
    for metric in ("bleu", "ter"):
        assert paired_bootstrap(GOOD, BAD, REFERENCES, metric=metric, samples=100).wins == 1
        assert paired_bootstrap(BAD, GOOD, REFERENCES, metric=metric, samples=100).wins == 0


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("seed", [0, 5])
def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(test: Test, seed: int) -> None:
    first, second = (test(GOOD, SIMILAR, REFERENCES, samples=100, seed=seed) for _ in range(2))
    assert first == second
    other = test(GOOD, SIMILAR, REFERENCES, samples=100, seed=seed + 1)
    assert (other.p_value, other.interval) != (first.p_value, first.interval)


@pytest.mark.parametrize("test", TESTS)
def test_swapping_the_systems_negates_the_difference_and_keeps_its_p_value(test: Test) -> None:
    forth = test(GOOD, SIMILAR, REFERENCES, samples=100)
    back = test(SIMILAR, GOOD, REFERENCES, samples=100)
    assert back.difference == -forth.difference
    assert back.p_value == forth.p_value


def test_the_interval_of_the_difference_holds_it_and_is_printed_beside_it() -> None:
    comparison = paired_bootstrap(GOOD, BAD, [REFERENCES, GOOD], samples=400)
    assert comparison.interval is not None
    assert comparison.interval[0] < comparison.difference < comparison.interval[1]
    assert "nrefs:2|bs:400|seed:12345" in comparison.signature
    assert f"{comparison.difference:+.2f} [{comparison.interval[0]:+.2f}, " in str(comparison)


@pytest.mark.parametrize("metric", METRICS)
def test_the_scores_in_a_comparison_are_the_scores_by_themselves(metric: str) -> None:
    comparison = paired_bootstrap(GOOD, BAD, REFERENCES, metric=metric, samples=2)
    assert (comparison.system, comparison.baseline) == (score(metric, GOOD, REFERENCES), score(metric, BAD, REFERENCES))


def test_exact_match_resamples_whole_sentences() -> None:
    half = [line if number % 2 else "falsch" for number, line in enumerate(REFERENCES)]
    comparison = paired_bootstrap(REFERENCES, half, REFERENCES, metric="exact", samples=300)
    assert comparison.system_interval == (100.0, 100.0)
    assert comparison.baseline_interval is not None
    assert 40 < comparison.baseline_interval[0] < comparison.baseline.value < comparison.baseline_interval[1] < 60
    assert comparison.p_value == 1 / 301


def test_unequal_systems_no_samples_and_a_negative_seed_are_errors() -> None:
    with pytest.raises(ValueError, match="the system has 301 lines but the baseline has 300"):
        paired_bootstrap(GOOD, BAD[1:], REFERENCES)
    with pytest.raises(ValueError, match="samples must be at least 1, got 0"):
        paired_bootstrap(GOOD, BAD, REFERENCES, samples=0)
    with pytest.raises(ValueError, match="the seed must be at least 0, got -1"):
        paired_randomisation(GOOD, BAD, REFERENCES, seed=-1)
