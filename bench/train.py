"""A complete training step, from data to updated weights: ours beside a torch and a Hugging Face loop, in one run.

    python bench/train.py                        # what this machine has
    python bench/train.py --device cuda --size big --out big.json
    python bench/train.py --only regard,marian --precision bfloat16

All contenders train on the same sentences with AdamW. Ours uses the batch stream and the update of the product; the
others use a `DataLoader` with workers that sorts by length and pads, as their users write it. On CUDA the contenders
are measured one after another: several loops with batches of changing shape in one process were idle most of the time,
probably because each kept memory that the others needed. tok/s counts target tokens without padding. `idle` is the
share of the time in which CUDA had no work: the busy time of a profile, which profiling does not change, against the
time of a step without profiling.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import AdamW
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, Dataset

import training_contenders as shared
from measure import fastest, log, peak_memory, reset_peak_memory, synchronize
from regard.data.batching import BEGINNING, Feed
from regard.data.rows import Lengths, Numbers, Rows, offsets_of
from regard.models.build import build
from regard.nn.cross_entropy import IGNORED
from regard.train.autotune import compile_in_place
from regard.train.cpu_threads import make_cpu_threads
from regard.train.cuda_graphs import WARMUP, GraphRunner
from regard.train.distributed import LossModule, WorkerGroup
from regard.train.engine import TrainingEngine
from regard.train.optimiser import build_optimisers
from regard.train.schedule import ResolvedTrain
from regard.train.stream import CPU_BLOCK, CpuParts, StaticShape, stream

Turn = Callable[[], int]
"""Takes one step, and returns its number of target tokens."""
PAIRS = 60_000
IDLE_STEPS = 10
RATE, DROPOUT_SEED = 1e-4, 0


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs of random ids, with the interface of a store."""

    rows: Mapping[str, Rows]
    tags: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def drawn(cls, pairs: int, vocabulary: int) -> "Pairs":
        """Draw pairs with the sentence lengths of real text."""
        random = np.random.default_rng(0)
        rows = {}
        for name, lengths in zip(("source", "target"), shared.lengths(pairs, seed=1), strict=True):
            offsets = offsets_of(lengths)
            rows[name] = Rows(random.integers(4, vocabulary, offsets[-1], dtype=np.int32), offsets)
        return cls(rows)

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.rows["source"])

    @cached_property
    def lengths(self) -> Mapping[str, Numbers]:
        """The lengths of all sources and of all targets."""
        return {name: rows.lengths for name, rows in self.rows.items()}

    @property
    def longest(self) -> Mapping[str, int]:
        """The lengths of the longest source and the longest target."""
        return {name: int(lengths.max()) for name, lengths in self.lengths.items()}

    def gather(self, indices: Lengths) -> dict[str, Rows]:
        """Return the ids of some pairs."""
        return {name: rows.take(indices) for name, rows in self.rows.items()}

    def text(self, indices: Lengths) -> dict[str, list[str]]:
        """Raise, because these pairs have no text."""
        raise ValueError("these pairs have no text")


class Padded(Dataset[tuple[Tensor, Tensor, Tensor]]):
    """The pairs in padded batches of similar length."""

    def __init__(self, pairs: Pairs, tokens: int) -> None:
        """Sort the pairs by both lengths, split them into batches, and shuffle these."""
        self.pairs = pairs
        source, target = pairs.lengths["source"], pairs.lengths["target"]
        self.batches = shared.split_batches(np.lexsort((target, source)), target, tokens)
        np.random.default_rng(1).shuffle(self.batches)

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.batches)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return a padded batch."""
        source, target = (
            [torch.from_numpy(rows.ids[rows.offsets[i] : rows.offsets[i + 1]]).long() for i in self.batches[number]]
            for rows in (self.pairs.rows["source"], self.pairs.rows["target"])
        )
        return shared.pad(shared.Batch(source, target, target))


@dataclass
class Contender:
    """A training loop, and its measurements."""

    name: str
    turn: Turn = field(repr=False)
    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    peak: float = 0.0
    idle: float | None = None

    def step_seconds(self, steps_per_turn: int) -> float:
        """Return the seconds of a step with the mean number of tokens."""
        return sum(self.tokens) / len(self.tokens) / self.rate() / steps_per_turn

    def rate(self) -> float:
        """Return the target tokens per second, without the slowest fifth of the turns."""
        return fastest(self.seconds, self.tokens)[0]


def our_loop(pairs: Pairs, options: argparse.Namespace, device: torch.device, precision: str) -> Turn:
    """Build the batch stream, loss, optimiser and update of the product; compiled on CUDA, in threads on a CPU."""
    torch.manual_seed(DROPOUT_SEED)
    sizes = shared.SIZES[options.size]
    model = build(sizes, options.vocabulary, options.vocabulary).to(device).train()
    module = LossModule(model, shared.TASK)
    settings = ResolvedTrain(optimiser="adamw", rate=RATE, clip=1e9)
    optimisers, group = build_optimisers(model, settings), WorkerGroup(device)
    feed = Feed([pairs], [1.0], options.tokens, shared.TASK)
    threads = make_cpu_threads(options.tokens) if device.type == "cpu" else None
    shape: StaticShape | CpuParts
    if device.type == "cuda":
        shape = StaticShape.from_feed(feed)
        compile_in_place(module)
    else:
        shape = CpuParts(threads.count if threads else 1, CPU_BLOCK if precision == "bfloat16" else 1)
    steps = iter(stream(feed, BEGINNING, shape, pin=device.type == "cuda"))
    graphs = GraphRunner(module, device, precision) if device.type == "cuda" else None
    engine = TrainingEngine(module, optimisers, group, precision, settings.clip, threads, graphs)

    def turn() -> int:
        return engine.update(next(steps).batches).units

    return turn


def plain_loop(pairs: Pairs, options: argparse.Namespace, device: torch.device, precision: str, kind: str) -> Turn:
    """Build a plain loop around torch's or Hugging Face's model."""
    torch.manual_seed(DROPOUT_SEED)
    sizes = shared.SIZES[options.size]
    model: nn.Module
    if kind == "torch":
        body = model = shared.TorchTransformer(sizes, options.vocabulary).to(device)

        def forward(source: Tensor, target: Tensor) -> Tensor:
            logits: Tensor = body(source, target, source == shared.PADDING)
            return logits
    else:
        model = shared.marian_model(sizes, options.vocabulary, device)

        def forward(source: Tensor, target: Tensor) -> Tensor:
            return shared.marian_logits(model, source, target)

    optimiser = AdamW(model.parameters(), RATE, (0.9, 0.98), 1e-9, fused=True)
    loader = DataLoader(
        Padded(pairs, options.tokens),
        None,
        num_workers=4 if device.type == "cuda" else 1,
        pin_memory=device.type == "cuda",
    )
    batches = endless(loader)
    dtype = None if precision == "float32" else torch.bfloat16

    def turn() -> int:
        batch = next(batches)
        tokens = int((batch[2] != IGNORED).sum())
        source, target, labels = (rows.to(device, non_blocking=True) for rows in batch)
        with shared.autocast(device, dtype):
            logits = forward(source, target)
        torch.autograd.backward(shared.padded_loss(logits, labels))
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return tokens

    return turn


def endless(loader: DataLoader[tuple[Tensor, Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    while True:
        yield from loader


def measure(contenders: list[Contender], options: argparse.Namespace, device: torch.device) -> None:
    """Let the contenders take turns of some steps, so that other work on the machine affects all of them."""
    begin = time.perf_counter()
    for number in range(options.rounds):
        for contender in contenders:
            synchronize(device)
            start, tokens = time.perf_counter(), 0
            for _ in range(options.steps):
                tokens += contender.turn()
            synchronize(device)
            contender.seconds.append(time.perf_counter() - start)
            contender.tokens.append(tokens)
        rates = ", ".join(f"{contender.name} {contender.rate():,.0f}" for contender in contenders)
        log(f"round {number + 1}: {rates} tok/s")
        if time.perf_counter() - begin > options.seconds:
            break


def busy_seconds(turn: Turn, steps: int) -> float:
    """Return the seconds of a step in which a kernel was running."""
    turn()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            turn()
        torch.cuda.synchronize()
    spans = sorted(
        (e.time_range.start, e.time_range.end) for e in profiler.events() or [] if e.self_device_time_total > 0
    )
    total, end = 0.0, float("-inf")
    for start, stop in spans:
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return 1e-6 * total / steps


def prepare(names: list[str], options: argparse.Namespace, device: torch.device, precision: str) -> list[Contender]:
    """Build contenders, and take their first steps."""
    pairs = Pairs.drawn(PAIRS if device.type == "cuda" else 20_000, options.vocabulary)
    makers: dict[str, Callable[[], Turn]] = {
        "regard": lambda: our_loop(pairs, options, device, precision),
        "torch": lambda: plain_loop(pairs, options, device, precision, "torch"),
        "marian": lambda: plain_loop(pairs, options, device, precision, "marian"),
    }
    contenders = []
    if "marian" in options.only and find_spec("transformers"):
        # It registers types with torch, after which everything compiled before is compiled again.
        import_module("transformers.models.marian")
    for name in names:
        start, before = time.perf_counter(), torch.cuda.memory_allocated() if device.type == "cuda" else 0
        contender = Contender(name, makers[name]())
        reset_peak_memory(device)
        for _ in range(WARMUP if device.type == "cuda" else 1):
            contender.turn()
        synchronize(device)
        log(f"{name}: the first steps took {time.perf_counter() - start:.1f} s")
        # The memory of a CUDA graph counts while the graph is captured, and not when it is replayed.
        reset_peak_memory(device)
        for _ in range(4 if device.type == "cuda" else 1):
            contender.turn()
        synchronize(device)
        contender.peak = (peak_memory(device) - before) / 1e9
        contenders.append(contender)
    return contenders


def run(options: argparse.Namespace, device: torch.device, precision: str) -> list[Contender]:
    """Measure the contenders: in turns on a CPU, one after another on CUDA."""
    names = options.only.split(",")
    if device.type != "cuda":
        contenders = prepare(names, options, device, precision)
        measure(contenders, options, device)
        return contenders
    contenders = []
    for name in names:
        (contender,) = prepare([name], options, device, precision)
        measure([contender], options, device)
        busy = busy_seconds(contender.turn, IDLE_STEPS)
        contender.idle = max(0.0, 1 - busy / contender.step_seconds(options.steps))
        contenders.append(replace(contender, turn=released))  # frees the model and its memory
        del contender
        gc.collect()
        torch.cuda.empty_cache()
    return contenders


def released() -> int:
    raise RuntimeError("this contender has been measured and released")


def table(contenders: list[Contender], steps_per_turn: int) -> str:
    """Return the results as a table."""
    lines = [f"{'':10}{'tok/s':>12}{'ms/step':>10}{'GB':>8}{'idle':>8}{'ratio':>8}"]
    for contender in contenders:
        idle = "" if contender.idle is None else f"{contender.idle:.1%}"
        milliseconds = 1e3 * contender.step_seconds(steps_per_turn)
        lines.append(
            f"{contender.name:10}{contender.rate():12,.0f}{milliseconds:10.1f}{contender.peak:8.1f}{idle:>8}"
            f"{contenders[0].rate() / contender.rate():8.2f}"
        )
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=shared.SIZES, help="default: small on a CPU, base on CUDA")
    parser.add_argument("--tokens", type=int, help="target tokens per step; default: 24,576 on CUDA, 4,096 on a CPU")
    parser.add_argument("--vocabulary", type=int, help="default: 10,000 for small, 37,000 for the others")
    parser.add_argument("--precision", help="default: float32,bfloat16 on a CPU, bfloat16 on CUDA")
    parser.add_argument("--steps", type=int, help="steps per turn; default: 10 on CUDA, 1 on a CPU")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=120, help="start no new round after this time")
    parser.add_argument("--threads", type=int, help="CPU threads; default: all")
    parser.add_argument(
        "--only", default="regard,torch,marian", help="contenders, separated by commas; ratios are to the first"
    )
    parser.add_argument("--out", type=Path, help="also write JSON to this file")
    options = parser.parse_args()
    cuda = options.device.startswith("cuda")
    options.size = options.size or ("base" if cuda else "small")
    options.tokens = options.tokens or (24_576 if cuda else 4_096)
    options.vocabulary = options.vocabulary or (10_000 if options.size == "small" else 37_000)
    options.precision = options.precision or ("bfloat16" if cuda else "float32,bfloat16")
    options.steps = options.steps or (10 if cuda else 1)
    return options


def main() -> None:
    options = parse_arguments()
    device = torch.device(options.device)
    if options.threads:
        torch.set_num_threads(options.threads)
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    report: dict[str, object] = {"device": name, "torch": torch.__version__, "size": options.size}
    for precision in options.precision.split(","):
        contenders = run(options, device, precision)
        print(f"\n{options.size}, {precision}, up to {options.tokens:,} tokens per step, {name}", flush=True)
        print(table(contenders, options.steps), flush=True)
        report[precision] = [
            {"name": c.name, "tokens_per_second": c.rate(), "peak_gb": c.peak, "idle": c.idle} for c in contenders
        ]
        if options.out:
            options.out.write_text(json.dumps(report, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
