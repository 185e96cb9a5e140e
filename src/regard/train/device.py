"""The device of a training: its name, its peak FLOP/s, and the precision of its matrix products."""

import time

import torch

from regard.bundle import find_device

# Sizes of a square matrix product that reaches the peak FLOP/s of the device and still takes little time.
_MATRIX_SIZES = {"cuda": 8192, "cpu": 1024}


def find_training_device(device: str) -> torch.device:
    """Return the device with this name; raise a ValueError if training does not run on it."""
    found = find_device(device)
    if found.type not in _MATRIX_SIZES:
        raise ValueError(f"training does not run on '{device}'; use cpu, cuda, cuda:1 and so on, or auto")
    return found


def device_name(device: torch.device) -> str:
    """Return the name of a device to show, such as `NVIDIA H200` or `CPU, 2 threads`."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"CPU, {threads} thread{'s' if threads > 1 else ''}"


def peak_flops(device: torch.device, precision: str) -> float:
    """Measure the FLOP/s of a large matrix product; the best of five."""
    size = _MATRIX_SIZES[device.type]
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    left, right = (torch.ones(size, size, device=device, dtype=dtype) for _ in range(2))

    def seconds() -> float:
        begin = time.perf_counter()
        torch.mm(left, right)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - begin

    return 2 * size**3 / min(seconds() for _ in range(5))


def choose_precision(requested: str, device: torch.device) -> str:
    """Resolve `auto`: bfloat16 if the device computes in it, otherwise float32.

    A CPU without bfloat16 instructions emulates them, hundreds of times slower than float32.
    """
    if requested != "auto":
        return requested
    native = device.type == "cuda" or (torch._C._has_mkldnn and torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return "bfloat16" if native else "float32"


def autocast(device: torch.device, precision: str, cached: bool = True) -> torch.autocast:
    """Return a context in which matrix products run in the given precision."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16", cache_enabled=cached)
