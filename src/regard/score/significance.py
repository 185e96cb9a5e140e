"""Significance tests: could the difference between two systems be chance?

Paired bootstrap (Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation") and paired
approximate randomisation (Riezler & Maxwell 2005). Draws, statistic and precision are those of sacrebleu's significance
module, so the same seed gives the same numbers. Three things differ:

- Samples are drawn row by row; sacrebleu's table of all draws takes gigabytes for 100,000 lines.
- The seed is an argument.
- p is the probability of a difference at least as large as the observed one, ties included: a system compared with
  itself has p = 1, where sacrebleu's strict comparison gives 1/1001. Without ties the two agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.score.metric import Metric, References, Score, make_metric, reference_streams

_TRIALS = 32  # numpy cuts booleans from 32-bit draws: only blocks of a multiple of 32 rows continue the same stream
_TIE = 1e-9  # score points: equal counts summed in another order still tie

Interval = tuple[float, float]


@dataclass(frozen=True)
class Comparison:
    """The comparison of a system with a baseline on the same sentences."""

    system: Score
    baseline: Score
    difference: float
    """Score of the system minus score of the baseline."""
    p_value: float
    """Probability that chance alone shows a difference as large, in either direction."""
    test: str
    signature: str
    interval: Interval | None = None
    """95 % confidence interval of the difference (bootstrap only)."""
    system_interval: Interval | None = None
    baseline_interval: Interval | None = None
    wins: float | None = None
    """Fraction of resampled test sets on which the system is better (bootstrap only)."""

    def __str__(self) -> str:
        """Format both scores, their difference and the p-value in one line."""
        between = f" [{self.interval[0]:+.2f}, {self.interval[1]:+.2f}]" if self.interval else ""
        return (
            f"{self.system.name}|{self.signature} = {self.system.value:.2f} against {self.baseline.value:.2f}: "
            f"{self.difference:+.2f}{between}, p = {self.p_value:.4f} ({self.test})"
        )


def paired_bootstrap(
    system: Sequence[str],
    baseline: Sequence[str],
    references: References,
    *,
    metric: str = "bleu",
    samples: int = 1000,
    seed: int = 12345,
    tokenize: str = "13a",
) -> Comparison:
    """Compare two systems by paired bootstrap resampling.

    Test sets of the same size are drawn from the sentences with replacement.

    Args:
        system: Hypotheses of the system.
        baseline: Hypotheses of the baseline, line by line for the same sentences.
        references: One or more streams of references.
        metric: One of `METRICS`.
        samples: Number of test sets to draw.
        seed: Seed of the random draws.
        tokenize: sacrebleu's tokenizer, for BLEU.
    """
    measure = make_metric(metric, tokenize)
    system_counts, baseline_counts, scores = _count(measure, system, baseline, references, samples, seed)
    lines, columns = system_counts.shape
    counts = np.hstack([system_counts, baseline_counts]).astype(np.float64)
    rng = np.random.default_rng(seed)
    # sacrebleu scores its samples in float32, and so must we to give the same digits.
    sums = np.stack(
        [np.bincount(rng.choice(lines, size=lines), minlength=lines) @ counts for _ in range(samples)]
    ).astype(np.float32)
    system_values = np.array([measure.value(row) for row in sums[:, :columns]])
    baseline_values = np.array([measure.value(row) for row in sums[:, columns:]])
    differences = system_values - baseline_values
    spread = np.abs(differences)
    difference = scores[0].value - scores[1].value
    return Comparison(
        *scores,
        difference=difference,
        p_value=_p_value(spread - spread.mean(), abs(difference)),
        test="paired bootstrap",
        signature=measure.signature(bs=samples, seed=seed),
        interval=_interval(differences),
        system_interval=_interval(system_values),
        baseline_interval=_interval(baseline_values),
        wins=float(np.mean(differences > 0 if measure.higher_is_better else differences < 0)),
    )


def paired_randomisation(
    system: Sequence[str],
    baseline: Sequence[str],
    references: References,
    *,
    metric: str = "bleu",
    samples: int = 10_000,
    seed: int = 12345,
    tokenize: str = "13a",
) -> Comparison:
    """Compare two systems by paired approximate randomisation.

    The outputs of the two systems are swapped at random, sentence by sentence. See `paired_bootstrap` for the
    arguments.
    """
    measure = make_metric(metric, tokenize)
    system_counts, baseline_counts, scores = _count(measure, system, baseline, references, samples, seed)
    rng = np.random.default_rng(seed)
    total = system_counts.sum(axis=0) + baseline_counts.sum(axis=0)
    dtype = np.result_type(system_counts, baseline_counts)
    gap = (baseline_counts - system_counts).astype(np.float64)
    spread = []
    for start in range(0, samples, _TRIALS):
        swapped = rng.integers(2, size=(min(_TRIALS, samples - start), len(system_counts)), dtype=bool)
        first = (swapped.astype(np.float64) @ gap + system_counts.sum(axis=0)).astype(dtype)
        spread += [abs(measure.value(a) - measure.value(b)) for a, b in zip(first, total - first, strict=True)]
    difference = scores[0].value - scores[1].value
    return Comparison(
        *scores,
        difference=difference,
        p_value=_p_value(np.array(spread), abs(difference)),
        test="paired approximate randomisation",
        signature=measure.signature(ar=samples, seed=seed),
    )


def _count(
    metric: Metric, system: Sequence[str], baseline: Sequence[str], references: References, samples: int, seed: int
) -> tuple[NDArray[Any], NDArray[Any], tuple[Score, Score]]:
    """Return the counts of both systems, one row per sentence, and their scores."""
    if samples < 1:
        raise ValueError(f"the number of samples must be at least 1, got {samples}; 1000 is usual")
    if seed < 0:
        raise ValueError(f"the seed must be at least 0, got {seed}")
    if len(system) != len(baseline):
        raise ValueError(
            f"the system has {len(system)} lines but the baseline has {len(baseline)}; both need the same number"
        )
    streams = reference_streams(system, references)
    system_counts = metric.count(system, streams)
    baseline_counts = metric.count(baseline, streams)
    scores = metric.score(system_counts), metric.score(baseline_counts)
    return np.array(system_counts), np.array(baseline_counts), scores


def _p_value(spread: NDArray[Any], observed: float) -> float:
    # Adding one to both counts keeps a finite number of draws from claiming p = 0.
    return float((np.count_nonzero(spread >= observed - _TIE) + 1) / (len(spread) + 1))


def _interval(values: NDArray[Any]) -> Interval:
    """Return the middle 95 %, cut as sacrebleu cuts: a fortieth of the values from each end."""
    ordered, cut = np.sort(values), len(values) // 40
    return float(ordered[cut]), float(ordered[-cut - 1])
