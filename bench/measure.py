"""Timing, memory and progress output, shared by the benchmarks."""

import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch


def log(message: str) -> None:
    """Print progress to stderr at once."""
    print(message, file=sys.stderr, flush=True)


def synchronize(device: torch.device) -> None:
    """Wait until a CUDA device has finished its work, so that a clock can be read."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(step: Callable[[], None], device: torch.device) -> float:
    """Return the seconds a step takes until the device has finished it."""
    synchronize(device)
    start = time.perf_counter()
    step()
    synchronize(device)
    return time.perf_counter() - start


def fastest(seconds: Sequence[float], tokens: Sequence[int]) -> tuple[float, float]:
    """Return the tokens per second and the mean seconds of all steps but the slowest fifth.

    Other work on the machine can only make a step slower, so the slowest steps say least.
    """
    steps = sorted(zip(seconds, tokens, strict=True), key=lambda step: step[0] / step[1])
    steps = steps[: max(1, math.ceil(len(steps) * 0.8))]
    total = sum(step_seconds for step_seconds, _ in steps)
    return sum(count for _, count in steps) / total, total / len(steps)


def reset_peak_memory(device: torch.device) -> None:
    """Start a new measurement of peak memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    elif Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory(device: torch.device) -> float:
    """Return the peak memory in bytes: of the CUDA allocator, or on Linux of the whole process with mapped files."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    # The peak that getrusage reports would include that of the parent process before exec.
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of the values does not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, round(share * (len(ranked) - 1)))]
