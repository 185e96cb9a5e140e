"""A whole training step, data to updated weights: ours beside a torch loop and a Hugging Face loop, in one run.

    python bench/train.py                        # what this machine has
    python bench/train.py --device cuda --size big --out big.json
    python bench/train.py --only regard,marian --precision bfloat16

Everybody trains on the same sentences with AdamW. Ours come through the product's own stream of batches and its own
update; the others through a `DataLoader` that sorts by length and pads, with workers of its own, as their users write
it. On CUDA each is alone while it is measured: their batches differ in shape from step to step, and several such
loops in one process were idle most of the time, likely for memory that another had kept. tok/s counts real target
tokens. `idle` is the share of the time in which CUDA had nothing to do: what a profile says of busy time, which
profiling does not change, against the time of a step without it.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import AdamW
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, Dataset

import model as steps  # the same sentences and peers, without data and optimiser
from regard.data.batching import BEGINNING, Feed
from regard.models.outline import Outline
from regard.nn.cross_entropy import IGNORED
from regard.recipe import Train
from regard.train.compiling import compile_in_place
from regard.train.engine import Engine
from regard.train.hands import hands_for
from regard.train.loss import Learner
from regard.train.optimiser import build_optimisers
from regard.train.recording import WARM, Recorder
from regard.train.stream import BLOCK, Parts, Shape, stream
from regard.train.workers import Workers

Turn = Callable[[], int]
"""One step; gives its real target tokens."""
PAIRS = 60_000
IDLE_STEPS = 10
RATE, DROPOUT_SEED = 1e-4, 0


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs of random ids, as a store holds them."""

    source: tuple[NDArray[np.int32], NDArray[np.int64]]
    target: tuple[NDArray[np.int32], NDArray[np.int64]]
    tag: int | None = None

    @classmethod
    def drawn(cls, pairs: int, vocabulary: int) -> "Pairs":
        """As many pairs, with the lengths of real text."""
        dice = np.random.default_rng(0)

        def side(lengths: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            return dice.integers(4, vocabulary, offsets[-1], dtype=np.int32), offsets

        source, target = steps.lengths(pairs, seed=1)
        return cls(side(source), side(target))

    def __len__(self) -> int:
        """How many."""
        return self.source[1].size - 1

    @property
    def lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ids of each source and of each target."""
        return np.diff(self.source[1]), np.diff(self.target[1])

    @property
    def longest(self) -> tuple[int, int]:
        """Ids of the longest of each side."""
        return int(self.lengths[0].max()), int(self.lengths[1].max())

    def gather(
        self, which: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        """The ids of these pairs, end to end."""
        parts = []
        for ids, offsets in (self.source, self.target):
            lengths = offsets[which + 1] - offsets[which]
            ends = np.concatenate([[0], np.cumsum(lengths)])
            parts += [ids[np.repeat(offsets[which] - ends[:-1], lengths) + np.arange(ends[-1])], ends]
        return parts[0], parts[1], parts[2], parts[3]

    def text(self, which: NDArray[np.int64]) -> tuple[list[str], list[str]]:
        """There is none."""
        raise ValueError("these pairs have no text")


class Padded(Dataset[tuple[Tensor, Tensor, Tensor]]):
    """The same pairs in padded batches of like length."""

    def __init__(self, pairs: Pairs, tokens: int) -> None:
        """Batches of about so many target tokens, sorted by both lengths, in random order."""
        self.pairs = pairs
        source, target = pairs.lengths
        self.batches = steps.cut(np.lexsort((target, source)), target, tokens)
        np.random.default_rng(1).shuffle(self.batches)

    def __len__(self) -> int:
        """How many batches."""
        return len(self.batches)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """One batch as rectangles."""
        source, target = (
            [torch.from_numpy(ids[offsets[i] : offsets[i + 1]]).long() for i in self.batches[number]]
            for ids, offsets in (self.pairs.source, self.pairs.target)
        )
        return steps.rectangles(steps.Batch(source, target, target))


@dataclass
class Contender:
    """Somebody's training, and how it went."""

    name: str
    turn: Turn = field(repr=False)
    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    peak: float = 0.0
    idle: float | None = None

    def step(self, steps_a_turn: int) -> float:
        """Seconds of a step."""
        return sum(self.tokens) / len(self.tokens) / self.rate() / steps_a_turn

    def rate(self) -> float:
        """Real target tokens a second, the slowest fifth of turns left out."""
        pairs = sorted(zip(self.seconds, self.tokens, strict=True), key=lambda pair: pair[0] / pair[1])
        kept = pairs[: max(1, int(0.8 * len(pairs)))]
        return sum(tokens for _, tokens in kept) / sum(seconds for seconds, _ in kept)


def ours(pairs: Pairs, asked: argparse.Namespace, device: torch.device, precision: str) -> Turn:
    """The product's own stream, loss, optimiser and update; compiled on CUDA, by several hands on a CPU."""
    torch.manual_seed(DROPOUT_SEED)
    outline: Outline = steps.SIZES[asked.size]
    model = outline.seq2seq(asked.vocabulary, asked.vocabulary).to(device).train()
    learner = Learner(model, steps.SMOOTHING)
    settings = Train(optimiser="adamw", rate=RATE, clip=1e9)
    optimisers, workers = build_optimisers(model, settings), Workers(device)
    feed = Feed([pairs], [1.0], asked.tokens)
    hands = hands_for(asked.tokens) if device.type == "cpu" else None
    shape: Shape | Parts
    if device.type == "cuda":
        shape = Shape.of(feed)
        compile_in_place(learner)
    else:
        shape = Parts(hands.count if hands else 1, BLOCK if precision == "bfloat16" else 1)
    source = iter(stream(feed, BEGINNING, shape, pin=device.type == "cuda"))
    recorder = Recorder(learner, device, precision) if device.type == "cuda" else None
    engine = Engine(learner, optimisers, workers, precision, settings.clip, hands, recorder)

    def turn() -> int:
        return engine.update(next(source).loads).tokens

    return turn


def theirs(pairs: Pairs, asked: argparse.Namespace, device: torch.device, precision: str, kind: str) -> Turn:
    """A plain loop around somebody's model."""
    torch.manual_seed(DROPOUT_SEED)
    outline: Outline = steps.SIZES[asked.size]
    model: nn.Module
    if kind == "torch":
        body = model = steps.TorchTransformer(outline, asked.vocabulary).to(device)

        def forward(source: Tensor, target: Tensor) -> Tensor:
            logits: Tensor = body(source, target, source == steps.PADDING)
            return logits
    else:
        model = steps.marian_model(outline, asked.vocabulary, device)

        def forward(source: Tensor, target: Tensor) -> Tensor:
            return steps.marian_logits(model, source, target)

    optimiser = AdamW(model.parameters(), RATE, (0.9, 0.98), 1e-9, fused=True)
    loader = DataLoader(
        Padded(pairs, asked.tokens),
        None,
        num_workers=4 if device.type == "cuda" else 1,
        pin_memory=device.type == "cuda",
    )
    source = endless(loader)
    dtype = None if precision == "float32" else torch.bfloat16

    def turn() -> int:
        rows, said, labels = next(source)
        tokens = int((labels != IGNORED).sum())
        rows, said, labels = (each.to(device, non_blocking=True) for each in (rows, said, labels))
        with steps.precision(device, dtype):
            logits = forward(rows, said)
        torch.autograd.backward(steps.padded_loss(logits, labels))
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return tokens

    return turn


def endless(loader: DataLoader[tuple[Tensor, Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    while True:
        yield from loader


def measure(contenders: list[Contender], asked: argparse.Namespace, device: torch.device) -> None:
    """Everybody in turn, some steps at a time, so that a busy minute hits all alike."""
    begin = time.perf_counter()
    for number in range(asked.rounds):
        for each in contenders:
            steps.settle(device)
            since, tokens = time.perf_counter(), 0
            for _ in range(asked.steps):
                tokens += each.turn()
            steps.settle(device)
            each.seconds.append(time.perf_counter() - since)
            each.tokens.append(tokens)
        rates = ", ".join(f"{each.name} {each.rate():,.0f}" for each in contenders)
        steps.tell(f"round {number + 1}: {rates} tok/s")
        if time.perf_counter() - begin > asked.seconds:
            break


def busy(turn: Turn, many: int) -> float:
    """Seconds of a step in which a kernel ran."""
    turn()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(many):
            turn()
        torch.cuda.synchronize()
    spans = sorted((e.time_range.start, e.time_range.end) for e in seen.events() or [] if e.self_device_time_total > 0)
    total, end = 0.0, float("-inf")
    for start, stop in spans:
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return 1e-6 * total / many


def ready(names: list[str], asked: argparse.Namespace, device: torch.device, precision: str) -> list[Contender]:
    """These contenders, after first steps."""
    pairs = Pairs.drawn(PAIRS if device.type == "cuda" else 20_000, asked.vocabulary)
    makers: dict[str, Callable[[], Turn]] = {
        "regard": lambda: ours(pairs, asked, device, precision),
        "torch": lambda: theirs(pairs, asked, device, precision, "torch"),
        "marian": lambda: theirs(pairs, asked, device, precision, "marian"),
    }
    contenders = []
    if "marian" in asked.only and find_spec("transformers"):
        # It registers types with torch, after which everything compiled before would be compiled once more.
        import_module("transformers.models.marian")
    for name in names:
        begin, before = time.perf_counter(), torch.cuda.memory_allocated() if device.type == "cuda" else 0
        each = Contender(name, makers[name]())
        steps.forget_peak(device)
        for _ in range(WARM if device.type == "cuda" else 1):
            each.turn()
        steps.settle(device)
        steps.tell(f"{name}: first steps took {time.perf_counter() - begin:.1f} s")
        # What a recording keeps to itself is counted while it is made, and not when it is played.
        steps.forget_peak(device)
        for _ in range(4 if device.type == "cuda" else 1):
            each.turn()
        steps.settle(device)
        each.peak = steps.peak(device) - before / 1e9
        contenders.append(each)
    return contenders


def measured(asked: argparse.Namespace, device: torch.device, precision: str) -> list[Contender]:
    """Everybody who was asked for: in turns on a CPU, one after another on CUDA."""
    names = asked.only.split(",")
    if device.type != "cuda":
        contenders = ready(names, asked, device, precision)
        measure(contenders, asked, device)
        return contenders
    contenders = []
    for name in names:
        (each,) = ready([name], asked, device, precision)
        measure([each], asked, device)
        each.idle = max(0.0, 1 - busy(each.turn, IDLE_STEPS) / each.step(asked.steps))
        contenders.append(replace(each, turn=gone))  # with the turn go its model and its memory
        del each
        gc.collect()
        torch.cuda.empty_cache()
    return contenders


def gone() -> int:
    raise RuntimeError("this contender has been measured")


def table(contenders: list[Contender], steps_a_turn: int) -> str:
    """The figures for a person."""
    lines = [f"{'':10}{'tok/s':>12}{'ms/step':>10}{'GB':>8}{'idle':>8}{'ratio':>8}"]
    for each in contenders:
        idle_share = "" if each.idle is None else f"{each.idle:.1%}"
        lines.append(
            f"{each.name:10}{each.rate():12,.0f}{1e3 * each.step(steps_a_turn):10.1f}{each.peak:8.1f}{idle_share:>8}"
            f"{contenders[0].rate() / each.rate():8.2f}"
        )
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=steps.SIZES, help="small on a CPU, base on CUDA unless told")
    parser.add_argument("--tokens", type=int, help="target tokens a step: 24,576 on CUDA, 4,096 on a CPU")
    parser.add_argument("--vocabulary", type=int, help="10,000 for small, 37,000 for the others")
    parser.add_argument("--precision", help="float32,bfloat16; on CUDA bfloat16 alone")
    parser.add_argument("--steps", type=int, help="steps a turn: 10 on CUDA, 1 on a CPU")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=120, help="no new round after so long")
    parser.add_argument("--threads", type=int, help="threads of a CPU; all unless told")
    parser.add_argument("--only", default="regard,torch,marian", help="contenders; ratios are of the first")
    parser.add_argument("--out", type=Path, help="write JSON to this file too")
    asked = parser.parse_args()
    cuda = asked.device.startswith("cuda")
    asked.size = asked.size or ("base" if cuda else "small")
    asked.tokens = asked.tokens or (24_576 if cuda else 4_096)
    asked.vocabulary = asked.vocabulary or (10_000 if asked.size == "small" else 37_000)
    asked.precision = asked.precision or ("bfloat16" if cuda else "float32,bfloat16")
    asked.steps = asked.steps or (10 if cuda else 1)
    return asked


def main() -> None:
    asked = arguments()
    device = torch.device(asked.device)
    if asked.threads:
        torch.set_num_threads(asked.threads)
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    said: dict[str, object] = {"device": name, "torch": torch.__version__, "size": asked.size}
    for precision in asked.precision.split(","):
        contenders = measured(asked, device, precision)
        print(f"\n{asked.size}, {precision}, up to {asked.tokens:,} tokens a step, {name}", flush=True)
        print(table(contenders, asked.steps), flush=True)
        said[precision] = [
            {"name": each.name, "tokens_per_second": each.rate(), "peak_gb": each.peak, "idle": each.idle}
            for each in contenders
        ]
        if asked.out:
            asked.out.write_text(json.dumps(said, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
