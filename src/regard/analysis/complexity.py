"""Lengths and widths in, what each layer costs there out: seconds, operations, memory, and the exponents they follow.

The table of the paper is about growth, so a power law is fitted to what was measured: cost ≈ c · nᵃ · dᵇ, by least
squares on logarithms, over the larger half of the lengths and widths, where a call's own cost no longer counts.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from regard.analysis.layers import KINDS, Kind, make_pass, products

LENGTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
WIDTHS = (64, 128, 256, 512, 1024)
BUDGET = 2.0  # seconds a pass may take
ENOUGH, MOST = 0.1, 100  # seconds, and passes, after which the quickest one is believed


@dataclass(frozen=True)
class Cell:
    """What one pass of a layer over one sequence costs."""

    kind: Kind
    length: int
    width: int
    flops: float
    """Operations of its matrix products."""
    seconds: float | None = None
    """The quickest of several passes; none where it was skipped."""
    memory: float | None = None
    """Bytes kept for the way back."""
    skipped: str = ""
    """Why it was not measured, where it was not."""


@dataclass(frozen=True)
class Fit:
    """Exponents of length and width in a cost, with how many cells say so; none where too few were measured."""

    in_length: float
    in_width: float
    cells: int


def measure(
    lengths: Sequence[int] = LENGTHS,
    widths: Sequence[int] = WIDTHS,
    *,
    kinds: Sequence[Kind] = KINDS,
    budget: float = BUDGET,
    device: str = "cpu",
) -> Iterator[Cell]:
    """Every layer at every width and length, the short ones first, each cell as soon as it is known.

    On a CPU by one thread: what is measured is work, not how well it is shared out. A cell that would take longer than
    `budget` seconds, judged by the one before it, is skipped and says so.
    """
    where, threads = torch.device(device), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for kind in kinds:
            for width in widths:
                yield from _row(kind, width, lengths, budget, where)
    finally:
        torch.set_num_threads(threads)


def _row(kind: Kind, width: int, lengths: Sequence[int], budget: float, device: torch.device) -> Iterator[Cell]:
    """One layer at one width."""
    pace: float | None = None  # seconds an operation took at the last length
    for length in lengths:
        flops = products(kind, length, width)
        expected = None if pace is None else pace * flops
        if expected is not None and expected > budget:
            word = f"skipped: a pass would take about {expected:.1f} s, more than {budget:g} s"
            yield Cell(kind, length, width, flops, skipped=word)
            continue
        seconds, memory = _measured(make_pass(kind, length, width, device), device)
        pace = seconds / flops
        yield Cell(kind, length, width, flops, seconds, memory)


def _measured(once: Callable[[], Tensor], device: torch.device) -> tuple[float, float]:
    """The quickest of a few passes, and what one keeps; on a CPU the thread's own time, whatever else runs there."""
    memory = kept_bytes(once)  # the first pass, which warms up too
    clock = time.perf_counter if device.type == "cuda" else time.thread_time
    best, spent, passes = float("inf"), 0.0, 0
    while passes < 2 or (spent < ENOUGH and passes < MOST):
        begin = clock()
        with torch.no_grad():
            once()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        took = max(clock() - begin, 1e-9)
        best, spent, passes = min(best, took), spent + took, passes + 1
    return best, memory


def kept_bytes(once: Callable[[], Tensor]) -> float:
    """Bytes that a pass keeps for its way back, each storage once; its weights and its input are there anyway."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if not (tensor if tensor._base is None else tensor._base).is_leaf:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        made = once()
    total = float(sum(kept.values()))
    del made
    return total


def fit(cells: Sequence[Cell], kind: Kind, cost: Callable[[Cell], float | None]) -> Fit | None:
    """The exponents of a layer's cost over its measured cells; none where they do not differ enough to tell."""
    mine = [(cell, value) for cell in cells if cell.kind == kind and cell.seconds and (value := cost(cell))]
    for column in ("length", "width"):
        found = sorted({getattr(cell, column) for cell, _ in mine})
        larger = set(found[len(found) // 2 :]) if len(found) > 3 else set(found)
        mine = [(cell, value) for cell, value in mine if getattr(cell, column) in larger]
    rows = np.array([[1.0, np.log(cell.length), np.log(cell.width)] for cell, _ in mine])
    if len(mine) < 3 or np.linalg.matrix_rank(rows) < 3:
        return None
    solved = np.linalg.lstsq(rows, np.log([value for _, value in mine]), rcond=None)[0]
    return Fit(float(solved[1]), float(solved[2]), len(mine))


def crossing(
    cells: Sequence[Cell], one: Kind, other: Kind, width: int, cost: Callable[[Cell], float | None]
) -> float | None:
    """The length from which on `one` costs more than `other` at a width, between two measured lengths on a log scale.

    None where the lines do not cross within what was measured.
    """
    sides: list[dict[int, float]] = [
        {cell.length: value for cell in cells if cell.kind == kind and cell.width == width and (value := cost(cell))}
        for kind in (one, other)
    ]
    both = sorted(sides[0].keys() & sides[1].keys())
    gaps = [float(np.log(sides[0][n] / sides[1][n])) for n in both]
    for at in range(len(both) - 1, 0, -1):
        if gaps[at - 1] <= 0 < gaps[at]:
            share = -gaps[at - 1] / (gaps[at] - gaps[at - 1])
            return float(both[at - 1] * (both[at] / both[at - 1]) ** share)
    return None
