"""One training step, forward and backward, of a Transformer: ours beside torch's and Hugging Face's, in one run.

    python bench/model.py                      # what this machine has, float32 and bfloat16
    python bench/model.py --device cuda --size big --out big.json
    python bench/model.py --only regard,marian --precision bfloat16 --json

Everybody trains on the same sentences. Those who pad are given them sorted by length, which is how they are used; ours
come as they fall. tok/s counts real target tokens; FLOP/s counts what real tokens need, so padding earns nothing. The
slowest fifth of everybody's steps is left out.
"""

import argparse
import json
import math
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import torch

from learners import (
    LONGEST,
    PADDING,
    SIZES,
    SMOOTHING,
    Batch,
    TorchTransformer,
    batches,
    cut,
    lengths,
    marian,
    marian_logits,
    marian_model,
    needed,
    ours,
    padded_loss,
    precision,
    rectangles,
    torchs,
)

__all__ = [
    "LONGEST",
    "PADDING",
    "SIZES",
    "SMOOTHING",
    "Batch",
    "TorchTransformer",
    "batches",
    "cut",
    "forget_peak",
    "lengths",
    "marian_logits",
    "marian_model",
    "padded_loss",
    "peak",
    "precision",
    "rectangles",
    "settle",
    "tell",
]

Step = Callable[[], None]


@dataclass
class Contender:
    """Somebody's step for each batch of their own, and how it went."""

    name: str
    batches: list[Batch]
    step: Callable[[int], None] = field(repr=False)
    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    flops: float = 0.0
    peak: float = 0.0

    def kept(self) -> list[tuple[float, int]]:
        """Seconds and tokens of all steps but the slowest fifth: a busy machine only ever takes time."""
        pairs = sorted(zip(self.seconds, self.tokens, strict=True), key=lambda pair: pair[0] / pair[1])
        return pairs[: max(1, math.ceil(len(pairs) * 0.8))]

    def rate(self) -> float:
        """Real target tokens a second."""
        return sum(tokens for _, tokens in self.kept()) / sum(seconds for seconds, _ in self.kept())

    def step_seconds(self) -> float:
        """Seconds a step takes, of the same steps."""
        return sum(seconds for seconds, _ in self.kept()) / len(self.kept())


# How it is measured.


def timed(step: Step, device: torch.device) -> float:
    """Seconds until the device is done."""
    settle(device)
    begin = time.perf_counter()
    step()
    settle(device)
    return time.perf_counter() - begin


def settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def forget_peak(device: torch.device) -> None:
    """Begin to measure the highest use of memory anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    elif Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak(device: torch.device) -> float:
    """Highest use of memory since, in GB; of a CPU, that of the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 1e9
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1e6


def ceiling(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of a large plain matrix product, the best of a few."""
    n = 8192 if device.type == "cuda" else 2048
    one, other = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))

    def product() -> None:
        torch.mm(one, other)

    return 2 * n**3 / min(timed(product, device) for _ in range(6))


def prepared(asked: argparse.Namespace, device: torch.device, dtype: torch.dtype | None) -> list[Contender]:
    """Those who could be built and took their first steps; the others are told of and left out."""
    outline, vocabulary = SIZES[asked.size], asked.vocabulary
    loose = batches(asked.tokens, asked.batches, vocabulary, order="none")
    sorted_ = batches(asked.tokens, asked.batches, vocabulary, asked.order)
    build: dict[str, tuple[list[Batch], Callable[[], Callable[[int], None]]]] = {
        "regard": (loose, lambda: ours(outline, vocabulary, loose, device, dtype, "eager")),
        "regard-fixed": (loose, lambda: ours(outline, vocabulary, loose, device, dtype, "fixed")),
        "torch": (sorted_, lambda: torchs(outline, vocabulary, sorted_, device, dtype, lean=False)),
        "torch-lean": (sorted_, lambda: torchs(outline, vocabulary, sorted_, device, dtype, lean=True)),
        "marian": (sorted_, lambda: marian(outline, vocabulary, sorted_, device, dtype)),
    }
    ready = []
    if "marian" in asked.only and find_spec("transformers"):
        # It registers types with torch, after which everything compiled before would be compiled once more.
        import_module("transformers.models.marian")
    for name in asked.only.split(","):
        try:
            mine, make = build[name]
            begin = time.perf_counter()
            contender = Contender(name, mine, make())
            for i in range(len(mine)):
                before = torch.cuda.memory_allocated() / 1e9 if device.type == "cuda" else 0.0
                forget_peak(device)
                timed(partial(contender.step, i), device)
                contender.peak = max(contender.peak, peak(device) - before)
            contender.flops = sum(needed(each, outline, vocabulary) for each in mine) / sum(b.tokens for b in mine)
            tell(f"{name}: first pass over its batches took {time.perf_counter() - begin:.1f} s")
            ready.append(contender)
        except Exception:
            tell(f"{name} failed:\n{traceback.format_exc(limit=-4)}")
    return ready


def measure(contenders: list[Contender], rounds: int, seconds: float, device: torch.device) -> None:
    """Everybody in turn, again and again, so that a busy minute hits all of them alike."""
    begin = time.perf_counter()
    for number in range(rounds):
        for contender in contenders:
            for i, batch in enumerate(contender.batches):
                contender.seconds.append(timed(partial(contender.step, i), device))
                contender.tokens.append(batch.tokens)
        rates = ", ".join(f"{each.name} {each.rate():,.0f}" for each in contenders)
        tell(f"round {number + 1}: {rates} tok/s")
        if time.perf_counter() - begin > seconds:
            tell("time is up")
            return


def summary(contenders: list[Contender], top: float) -> list[dict[str, float | str]]:
    """One row a contender."""
    first = contenders[0].rate() if contenders else math.nan
    return [
        {
            "name": each.name,
            "tokens_per_second": each.rate(),
            "milliseconds": 1e3 * each.step_seconds(),
            "flops": each.rate() * each.flops,
            "of_ceiling": each.rate() * each.flops / top,
            "peak_gb": each.peak,
            "first_over_this": first / each.rate(),
        }
        for each in contenders
    ]


def table(rows: list[dict[str, float | str]]) -> str:
    """The rows for a person."""
    lines = [f"{'':16}{'tok/s':>10}{'ms/step':>10}{'TFLOP/s':>10}{'of GEMM':>9}{'GB':>7}{'ratio':>8}"]
    for row in rows:
        figures = {key: float(value) for key, value in row.items() if key != "name"}
        lines.append(
            f"{row['name']:16}{figures['tokens_per_second']:10,.0f}{figures['milliseconds']:10.1f}"
            f"{figures['flops'] / 1e12:10.2f}{figures['of_ceiling']:9.0%}{figures['peak_gb']:7.1f}"
            f"{figures['first_over_this']:8.2f}"
        )
    return "\n".join(lines)


def tell(line: str) -> None:
    """Progress, as soon as it is known."""
    print(line, file=sys.stderr, flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=SIZES, help="small on a CPU, base on CUDA unless told")
    parser.add_argument(
        "--tokens", type=int, help="target tokens a step: 24,000 on CUDA, 4,096 (small) or 2,048 on a CPU"
    )
    parser.add_argument("--vocabulary", type=int, help="10,000 for small, 37,000 for the others")
    parser.add_argument("--precision", help="float32,bfloat16; on CUDA bfloat16 alone")
    parser.add_argument("--batches", type=int, help="batches a round: 8 on CUDA, 3 on a CPU")
    parser.add_argument(
        "--order",
        choices=["both", "source", "none"],
        default="both",
        help="how sentences are sorted for those who pad: by both lengths (hardly any padding), by the source's, not",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=90, help="no new round after so long")
    parser.add_argument("--threads", type=int, help="threads of a CPU; all unless told")
    parser.add_argument("--only", help="contenders, comma-separated; the first is the one ratios are of")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--out", type=Path, help="write JSON to this file too")
    asked = parser.parse_args()
    cuda = asked.device.startswith("cuda")
    asked.size = asked.size or ("base" if cuda else "small")
    asked.tokens = asked.tokens or (24_000 if cuda else 4_096 if asked.size == "small" else 2_048)
    asked.vocabulary = asked.vocabulary or (10_000 if asked.size == "small" else 37_000)
    asked.precision = asked.precision or ("bfloat16" if cuda else "float32,bfloat16")
    asked.batches = asked.batches or (8 if cuda else 3)
    asked.only = asked.only or ("regard-fixed," if cuda else "") + "regard,torch,torch-lean,marian"
    return asked


def main() -> None:
    asked = arguments()
    device = torch.device(asked.device)
    if asked.threads:
        torch.set_num_threads(asked.threads)
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    said = {"device": name, "torch": torch.__version__, "size": asked.size, "tokens": asked.tokens, "results": {}}
    for each in asked.precision.split(","):
        dtype = None if each == "float32" else getattr(torch, each)
        top = ceiling(device, dtype or torch.float32)
        tell(f"{asked.size} on {name}, {each}: GEMM ceiling {top / 1e12:.2f} TFLOP/s")
        contenders = prepared(asked, device, dtype)
        measure(contenders, asked.rounds, asked.seconds, device)
        rows = summary(contenders, top)
        said["results"][each] = {"ceiling": top, "rows": rows}
        if asked.out:
            asked.out.write_text(json.dumps(said, indent=2), encoding="utf-8")
        if not asked.json:
            print(f"\n{asked.size}, {each}, {asked.tokens:,} target tokens a step, {name}\n{table(rows)}", flush=True)
        del contenders
    if asked.json:
        print(json.dumps(said, indent=2))


if __name__ == "__main__":
    main()
