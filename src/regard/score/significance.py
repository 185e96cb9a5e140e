"""Two systems' hypotheses in, whether their difference could be chance out.

Paired bootstrap (Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation") and paired
approximate randomisation (Riezler & Maxwell 2005), with the draws, the statistic and the precision of sacrebleu's
significance module, so that the same seed gives the same figures. Three things differ. Draws are made a row at a time,
where its table of all draws takes gigabytes for 100,000 lines. The seed is an argument, 0 included. And p is the chance
of a difference at least as large as the observed one, ties included: a system compared with itself has p = 1, where
sacrebleu's strict comparison says 1/1001. Without ties the two agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.score.metric import Metric, References, Score, named_metric, reference_streams

_TRIALS = 32  # Flips are cut from 32-bit draws, so only a multiple of 32 rows leaves the stream as one call would.
_TIE = 1e-9  # Score points; the same counts summed in another order are still a tie.

Interval = tuple[float, float]


@dataclass(frozen=True)
class Comparison:
    """A system beside a baseline on the same sentences.

    `difference` is system − baseline; `p_value` is how often chance alone would show one as large, on either side.
    The bootstrap adds 95 % intervals and `wins`, the share of resampled test sets on which the system was better.
    """

    system: Score
    baseline: Score
    difference: float
    p_value: float
    test: str
    signature: str
    interval: Interval | None = None
    system_interval: Interval | None = None
    baseline_interval: Interval | None = None
    wins: float | None = None

    def __str__(self) -> str:
        """One line: both scores, the difference and how sure it is."""
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
    """Draw test sets of the same size with replacement and see how far the difference moves."""
    measure = named_metric(metric, tokenize)
    ours, theirs, scores = _counted(measure, system, baseline, references, samples, seed)
    lines, columns = ours.shape
    both = np.hstack([ours, theirs]).astype(np.float64)
    rng = np.random.default_rng(seed)
    # sacrebleu scores its samples in float32; so do we, or the last digits would not be its own.
    sums = np.stack(
        [np.bincount(rng.choice(lines, size=lines), minlength=lines) @ both for _ in range(samples)]
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
    """Swap the two systems' outputs sentence by sentence at random and see how often the difference is as large."""
    measure = named_metric(metric, tokenize)
    ours, theirs, scores = _counted(measure, system, baseline, references, samples, seed)
    rng = np.random.default_rng(seed)
    total, kind = ours.sum(axis=0) + theirs.sum(axis=0), np.result_type(ours, theirs)
    gap = (theirs - ours).astype(np.float64)
    spread = []
    for start in range(0, samples, _TRIALS):
        swapped = rng.integers(2, size=(min(_TRIALS, samples - start), len(ours)), dtype=bool)
        first = (swapped.astype(np.float64) @ gap + ours.sum(axis=0)).astype(kind)
        spread += [
            abs(measure.value(one) - measure.value(other)) for one, other in zip(first, total - first, strict=True)
        ]
    difference = scores[0].value - scores[1].value
    return Comparison(
        *scores,
        difference=difference,
        p_value=_p_value(np.array(spread), abs(difference)),
        test="paired approximate randomisation",
        signature=measure.signature(ar=samples, seed=seed),
    )


def _counted(
    measure: Metric, system: Sequence[str], baseline: Sequence[str], references: References, samples: int, seed: int
) -> tuple[NDArray[Any], NDArray[Any], tuple[Score, Score]]:
    """Counts of both systems, a row for each sentence, and their scores."""
    if samples < 1:
        raise ValueError(f"{samples} samples cannot be drawn; 1000 are usual")
    if seed < 0:
        raise ValueError(f"the seed is {seed}, but must be 0 or more")
    if len(system) != len(baseline):
        raise ValueError(
            f"{len(system)} lines from the system but {len(baseline)} from the baseline; both need the same"
        )
    streams = reference_streams(system, references)
    ours = measure.count(system, streams)
    theirs = measure.count(baseline, streams)
    return np.array(ours), np.array(theirs), (measure.score(ours), measure.score(theirs))


def _p_value(spread: NDArray[Any], observed: float) -> float:
    # One is added above and below so that a finite number of draws never claims p = 0.
    return float((np.count_nonzero(spread >= observed - _TIE) + 1) / (len(spread) + 1))


def _interval(values: NDArray[Any]) -> Interval:
    """The middle 95 %, cut where sacrebleu cuts: one in forty from each end."""
    ordered, cut = np.sort(values), len(values) // 40
    return float(ordered[cut]), float(ordered[-cut - 1])
