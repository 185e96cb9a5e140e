"""Measure the cost of layers by sequence length and width, and fit power laws to it.

The paper's table is about growth, so a power law cost ≈ c · nᵃ · dᵇ is fitted by least squares on logarithms. Only the
larger half of the lengths and widths is used, where the overhead of a call does not matter.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from regard.analysis.layers import KINDS, LayerKind, make_pass, matmul_flops

LENGTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
WIDTHS = (64, 128, 256, 512, 1024)
BUDGET = 2.0  # seconds that a pass may take
ENOUGH_SECONDS, MAX_PASSES = 0.1, 100  # repeat a pass until either is reached, and take the fastest


@dataclass(frozen=True)
class LayerCost:
    """The cost of one forward pass of a layer over one sequence."""

    kind: LayerKind
    length: int
    width: int
    flops: float
    """FLOPs of the matrix products."""
    seconds: float | None = None
    """The fastest of several passes; None if skipped."""
    memory: float | None = None
    """Bytes saved for the backward pass."""
    skipped: str = ""
    """Why the pass was skipped; empty if it was measured."""


@dataclass(frozen=True)
class PowerLaw:
    """Fitted exponents of length and width, and the number of measurements."""

    in_length: float
    in_width: float
    measurements: int


def measure(
    lengths: Sequence[int] = LENGTHS,
    widths: Sequence[int] = WIDTHS,
    *,
    kinds: Sequence[LayerKind] = KINDS,
    budget: float = BUDGET,
    device: str = "cpu",
) -> Iterator[LayerCost]:
    """Measure each layer at each width and length, and yield each cost when it is known.

    On a CPU this uses one thread, to measure work and not parallelism. A pass that would take longer than `budget`
    seconds, extrapolated from the next shorter length, is skipped.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for kind in kinds:
            for width in widths:
                yield from _row(kind, width, lengths, budget, torch.device(device))
    finally:
        torch.set_num_threads(threads)


def _row(
    kind: LayerKind, width: int, lengths: Sequence[int], budget: float, device: torch.device
) -> Iterator[LayerCost]:
    """Measure one layer at one width."""
    seconds_per_flop: float | None = None  # at the last length
    for length in lengths:
        flops = matmul_flops(kind, length, width)
        expected = None if seconds_per_flop is None else seconds_per_flop * flops
        if expected is not None and expected > budget:
            reason = f"skipped: a pass would take about {expected:.1f} s, more than {budget:g} s"
            yield LayerCost(kind, length, width, flops, skipped=reason)
            continue
        seconds, memory = _measure_pass(make_pass(kind, length, width, device), device)
        seconds_per_flop = seconds / flops
        yield LayerCost(kind, length, width, flops, seconds, memory)


def _measure_pass(run: Callable[[], Tensor], device: torch.device) -> tuple[float, float]:
    """Return the seconds of the fastest of several passes, and the bytes saved for the backward pass."""
    memory = saved_bytes(run)  # also warms up
    # The CPU time of the thread does not depend on other processes.
    clock = time.perf_counter if device.type == "cuda" else time.thread_time
    best, spent, passes = float("inf"), 0.0, 0
    while passes < 2 or (spent < ENOUGH_SECONDS and passes < MAX_PASSES):
        start = clock()
        with torch.no_grad():
            run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        took = max(clock() - start, 1e-9)
        best, spent, passes = min(best, took), spent + took, passes + 1
    return best, memory


def saved_bytes(run: Callable[[], Tensor]) -> float:
    """Return the bytes that a pass saves for its backward pass, without weights and input; each storage counts once."""
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if not (tensor if tensor._base is None else tensor._base).is_leaf:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        output = run()
    total = float(sum(storages.values()))
    del output  # storages must not be freed and reused before they are counted
    return total


def fit(costs: Sequence[LayerCost], kind: LayerKind, value: Callable[[LayerCost], float | None]) -> PowerLaw | None:
    """Fit a power law to a measured value of a layer, or return None if there are too few measurements."""
    points = [(cost, y) for cost in costs if cost.kind == kind and cost.seconds and (y := value(cost))]
    for axis in ("length", "width"):
        sizes = sorted({getattr(cost, axis) for cost, _ in points})
        larger = set(sizes[len(sizes) // 2 :]) if len(sizes) > 3 else set(sizes)
        points = [(cost, y) for cost, y in points if getattr(cost, axis) in larger]
    rows = np.array([[1.0, np.log(cost.length), np.log(cost.width)] for cost, _ in points])
    if len(points) < 3 or np.linalg.matrix_rank(rows) < 3:
        return None
    solution = np.linalg.lstsq(rows, np.log([y for _, y in points]), rcond=None)[0]
    return PowerLaw(float(solution[1]), float(solution[2]), len(points))


def crossover_length(
    costs: Sequence[LayerCost],
    kind: LayerKind,
    baseline: LayerKind,
    width: int,
    value: Callable[[LayerCost], float | None],
) -> float | None:
    """Return the length from which a layer costs more than a baseline at one width.

    The length is interpolated on a logarithmic scale between two measured lengths. The result is None if the two costs
    do not cross within the measured lengths.
    """
    layer, other = (
        {cost.length: y for cost in costs if cost.kind == name and cost.width == width and (y := value(cost))}
        for name in (kind, baseline)
    )
    lengths = sorted(layer.keys() & other.keys())
    gaps = [float(np.log(layer[length] / other[length])) for length in lengths]
    for index in range(len(lengths) - 1, 0, -1):
        if gaps[index - 1] <= 0 < gaps[index]:
            fraction = -gaps[index - 1] / (gaps[index] - gaps[index - 1])
            return float(lengths[index - 1] * (lengths[index] / lengths[index - 1]) ** fraction)
    return None
