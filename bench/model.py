"""One training step, forward and backward, of a Transformer: ours beside torch's and Hugging Face's, in one run.

    python bench/model.py                      # what this machine has, float32 and bfloat16
    python bench/model.py --device cuda --size big --out big.json
    python bench/model.py --only regard,marian --precision bfloat16 --json

All contenders train on the same sentences. Those that pad get them sorted by length, as their users do; ours gets them
in random order. tok/s counts target tokens without padding; FLOP/s counts the operations that these tokens need, so
padding does not count as work. The slowest fifth of the steps of each contender is left out.
"""

import argparse
import json
import math
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from measure import fastest, log, peak_memory, reset_peak_memory, timed
from training_contenders import SIZES, Batch, Step, batches, marian_step, our_step, required_flops, torch_step


@dataclass
class Contender:
    """The training step of a model on its batches, and its measurements."""

    name: str
    batches: list[Batch]
    step: Step = field(repr=False)
    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    flops: float = 0.0
    peak: float = 0.0

    def rate(self) -> float:
        """Return the target tokens per second."""
        return fastest(self.seconds, self.tokens)[0]

    def row(self, ceiling: float, first: float) -> dict[str, float | str]:
        """Return the results; ratios are to the rate `first`."""
        rate, seconds = fastest(self.seconds, self.tokens)
        return {
            "name": self.name,
            "tokens_per_second": rate,
            "milliseconds": 1e3 * seconds,
            "flops": rate * self.flops,
            "of_ceiling": rate * self.flops / ceiling,
            "peak_gb": self.peak,
            "first_over_this": first / rate,
        }


def matmul_ceiling(device: torch.device, dtype: torch.dtype) -> float:
    """Return the FLOP/s of a large matrix product, the best of six."""
    n = 8192 if device.type == "cuda" else 2048
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))

    def product() -> None:
        torch.mm(a, b)

    return 2 * n**3 / min(timed(product, device) for _ in range(6))


def prepare(options: argparse.Namespace, device: torch.device, dtype: torch.dtype | None) -> list[Contender]:
    """Build the contenders and take their first steps; one that fails is reported and left out."""
    outline, vocabulary = SIZES[options.size], options.vocabulary
    shuffled = batches(options.tokens, options.batches, vocabulary, order="none")
    by_length = batches(options.tokens, options.batches, vocabulary, options.order)
    builders: dict[str, tuple[list[Batch], Callable[..., Step]]] = {
        "regard": (shuffled, partial(our_step, mode="eager")),
        "regard-fixed": (shuffled, partial(our_step, mode="fixed")),
        "torch": (by_length, partial(torch_step, lean=False)),
        "torch-lean": (by_length, partial(torch_step, lean=True)),
        "marian": (by_length, marian_step),
    }
    ready = []
    if "marian" in options.only and find_spec("transformers"):
        # It registers types with torch, after which everything compiled before is compiled again.
        import_module("transformers.models.marian")
    for name in options.only.split(","):
        try:
            own, build = builders[name]
            start = time.perf_counter()
            contender = Contender(name, own, build(outline, vocabulary, own, device, dtype))
            for i in range(len(own)):
                before = torch.cuda.memory_allocated() if device.type == "cuda" else 0
                reset_peak_memory(device)
                timed(partial(contender.step, i), device)
                contender.peak = max(contender.peak, (peak_memory(device) - before) / 1e9)
            total = sum(required_flops(batch, outline, vocabulary) for batch in own)
            contender.flops = total / sum(batch.tokens for batch in own)
            log(f"{name}: the first pass over its batches took {time.perf_counter() - start:.1f} s")
            ready.append(contender)
        except Exception:
            log(f"{name} failed:\n{traceback.format_exc(limit=-4)}")
    return ready


def measure(contenders: list[Contender], rounds: int, seconds: float, device: torch.device) -> None:
    """Let the contenders take turns, so that other work on the machine affects all of them."""
    start = time.perf_counter()
    for number in range(rounds):
        for contender in contenders:
            for i, batch in enumerate(contender.batches):
                contender.seconds.append(timed(partial(contender.step, i), device))
                contender.tokens.append(batch.tokens)
        rates = ", ".join(f"{contender.name} {contender.rate():,.0f}" for contender in contenders)
        log(f"round {number + 1}: {rates} tok/s")
        if time.perf_counter() - start > seconds:
            log("time is up")
            return


def table(rows: list[dict[str, float | str]]) -> str:
    """Return the results as a table."""
    lines = [f"{'':16}{'tok/s':>10}{'ms/step':>10}{'TFLOP/s':>10}{'of GEMM':>9}{'GB':>7}{'ratio':>8}"]
    for row in rows:
        figures = {key: float(value) for key, value in row.items() if key != "name"}
        lines.append(
            f"{row['name']:16}{figures['tokens_per_second']:10,.0f}{figures['milliseconds']:10.1f}"
            f"{figures['flops'] / 1e12:10.2f}{figures['of_ceiling']:9.0%}{figures['peak_gb']:7.1f}"
            f"{figures['first_over_this']:8.2f}"
        )
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=SIZES, help="default: small on a CPU, base on CUDA")
    parser.add_argument(
        "--tokens", type=int, help="target tokens per step; default: 24,000 on CUDA, 4,096 (small) or 2,048 on a CPU"
    )
    parser.add_argument("--vocabulary", type=int, help="default: 10,000 for small, 37,000 for the others")
    parser.add_argument("--precision", help="default: float32,bfloat16 on a CPU, bfloat16 on CUDA")
    parser.add_argument("--batches", type=int, help="batches per round; default: 8 on CUDA, 3 on a CPU")
    parser.add_argument(
        "--order",
        choices=["both", "source", "none"],
        default="both",
        help="sort sentences for contenders that pad by both lengths (least padding), by source length, or not",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=90, help="start no new round after this time")
    parser.add_argument("--threads", type=int, help="CPU threads; default: all")
    parser.add_argument("--only", help="contenders, separated by commas; ratios are to the first")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--out", type=Path, help="also write JSON to this file")
    options = parser.parse_args()
    cuda = options.device.startswith("cuda")
    options.size = options.size or ("base" if cuda else "small")
    options.tokens = options.tokens or (24_000 if cuda else 4_096 if options.size == "small" else 2_048)
    options.vocabulary = options.vocabulary or (10_000 if options.size == "small" else 37_000)
    options.precision = options.precision or ("bfloat16" if cuda else "float32,bfloat16")
    options.batches = options.batches or (8 if cuda else 3)
    options.only = options.only or ("regard-fixed," if cuda else "") + "regard,torch,torch-lean,marian"
    return options


def main() -> None:
    options = parse_arguments()
    device = torch.device(options.device)
    if options.threads:
        torch.set_num_threads(options.threads)
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    results: dict[str, Any] = {}
    report = {
        "device": name,
        "torch": torch.__version__,
        "size": options.size,
        "tokens": options.tokens,
        "results": results,
    }
    for precision in options.precision.split(","):
        dtype = None if precision == "float32" else getattr(torch, precision)
        ceiling = matmul_ceiling(device, dtype or torch.float32)
        log(f"{options.size} on {name}, {precision}: matrix products reach {ceiling / 1e12:.2f} TFLOP/s")
        contenders = prepare(options, device, dtype)
        measure(contenders, options.rounds, options.seconds, device)
        first = contenders[0].rate() if contenders else math.nan
        rows = [contender.row(ceiling, first) for contender in contenders]
        results[precision] = {"ceiling": ceiling, "rows": rows}
        if options.out:
            options.out.write_text(json.dumps(report, indent=2), encoding="utf-8")
        if not options.json:
            heading = f"{options.size}, {precision}, {options.tokens:,} target tokens per step, {name}"
            print(f"\n{heading}\n{table(rows)}", flush=True)
        del contenders
    if options.json:
        print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
