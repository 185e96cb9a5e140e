"""chrF between all pairs of some texts, as minimum Bayes risk decoding needs it."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

ORDER, BETA = 6, 2.0  # of chrF2: character n-grams of up to six characters; recall counts twice as much as precision
BLOCK = 4096
"""Distinct n-grams whose counts are in memory at a time."""


def pairwise_chrf(texts: Sequence[str]) -> NDArray[np.float64]:
    """Return the chrF2 of each text with each text as its reference (Popović 2015): that of (i, j) is at [i, j].

    It is the value of `chrf([texts[i]], [texts[j]])`. The n-grams of a text are counted once, not once for each pair.
    """
    lines, size = ["".join(text.split()) for text in texts], len(texts)
    precision, recall, orders = (np.zeros((size, size)) for _ in range(3))
    for order in range(1, ORDER + 1):
        total = np.array([max(len(line) - order + 1, 0) for line in lines], dtype=float)
        matches = np.zeros((size, size))
        for table in _count_ngrams(lines, order):
            for i in range(size):
                matches[i] += np.minimum(table[:, i : i + 1], table).sum(0)
        # An order counts if both texts are long enough for it.
        is_counted = np.minimum(total[:, None], total) > 0
        precision += np.divide(matches, total[:, None], out=np.zeros_like(matches), where=is_counted)
        recall += np.divide(matches, total, out=np.zeros_like(matches), where=is_counted)
        orders += is_counted
    orders = np.maximum(orders, 1)
    precision, recall = precision / orders, recall / orders
    weighted = BETA**2 * precision + recall
    product = (1 + BETA**2) * precision * recall
    return 100 * np.divide(product, weighted, out=np.zeros_like(product), where=weighted > 0)


def _count_ngrams(lines: Sequence[str], order: int) -> Iterator[NDArray[np.int32]]:
    """Yield how often each line has each distinct n-gram, in tables with a row for each of up to `BLOCK` n-grams."""
    index: dict[str, int] = {}
    cells = [
        index.setdefault(line[start : start + order], len(index)) * len(lines) + number
        for number, line in enumerate(lines)
        for start in range(len(line) - order + 1)
    ]
    distinct, counts = np.unique(np.array(cells, dtype=np.int64), return_counts=True)
    for begin in range(0, len(index), BLOCK):
        end = min(begin + BLOCK, len(index))
        own = slice(*np.searchsorted(distinct, (begin * len(lines), end * len(lines))))
        table = np.zeros((end - begin) * len(lines), dtype=np.int32)
        table[distinct[own] - begin * len(lines)] = counts[own]
        yield table.reshape(-1, len(lines))
