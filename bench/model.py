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

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from regard.models.outline import Outline
from regard.nn.capacity import filled
from regard.nn.cross_entropy import IGNORED, smoothed_cross_entropy
from regard.nn.position import Sinusoidal
from regard.nn.ragged import Ragged
from regard.train.compiling import OPTIONS

SIZES = {
    "small": Outline(256, 1024, 4, 3, 3),
    "base": Outline(512, 2048, 8, 6, 6),
    "big": Outline(1024, 4096, 16, 6, 6),
}
SMOOTHING, PADDING = 0.1, 0
LONGEST = 160  # tokens of a target
Step = Callable[[], None]


@dataclass(frozen=True)
class Batch:
    """Ids of some sentence pairs, and what to predict; the same for all who train."""

    source: list[Tensor]
    target: list[Tensor]
    labels: list[Tensor]

    @property
    def tokens(self) -> int:
        """Real target tokens."""
        return sum(len(each) for each in self.target)


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


# What is trained on: lengths as real text has them.


def lengths(pairs: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Source lengths exp(N(3.2, 0.55)), cut to 3 … 150; targets 15 % around them, cut to 3 … 160."""
    dice = np.random.default_rng(seed)
    source = np.clip(np.exp(dice.normal(3.2, 0.55, pairs)), 3, 150).astype(np.int64)
    target = np.clip(source * (1 + dice.normal(0, 0.15, pairs)), 3, LONGEST).astype(np.int64)
    return source, target


def cut(order: NDArray[np.int64], target: NDArray[np.int64], tokens: int) -> list[NDArray[np.int64]]:
    """Batches of about so many target tokens, in this order."""
    ends = np.searchsorted(np.cumsum(target[order]), np.arange(tokens, int(target.sum()) - tokens, tokens))
    return np.split(order, ends)[:-1]


def batches(tokens: int, many: int, vocabulary: int, order: str) -> list[Batch]:
    """Some batches of a large pool, spread evenly over it where it is sorted."""
    source, target = lengths(64 * tokens // 28, seed=1)
    shuffled = np.random.default_rng(2).permutation(source.size)
    match order:
        case "both":
            order_N = np.lexsort((target, source))
        case "source":
            order_N = shuffled[np.argsort(source[shuffled], kind="stable")]
        case _:
            order_N = shuffled
    every = cut(order_N, target, tokens)
    chosen = [every[i] for i in np.linspace(0, len(every) - 1, many + 2).astype(int)[1:-1]]
    dice = torch.Generator().manual_seed(3)

    def ids(counts: NDArray[np.int64]) -> list[Tensor]:
        return [torch.randint(4, vocabulary, (int(n),), generator=dice) for n in counts]

    return [Batch(ids(source[each]), ids(target[each]), ids(target[each])) for each in chosen]


def needed(batch: Batch, outline: Outline, vocabulary: int) -> float:
    """Floating-point operations that the real tokens of a batch need, forward and backward."""
    d, f = outline.width, outline.inner
    source, target = (np.array([len(each) for each in side], float) for side in (batch.source, batch.target))
    encoder = outline.encoder_layers * (source.sum() * (4 * d * d + 2 * d * f) + 2 * d * (source**2).sum())
    own = target.sum() * (6 * d * d + 2 * d * f) + 2 * d * (target**2).sum() / 2
    cross = source.sum() * 2 * d * d + 2 * d * (source * target).sum()
    return float(6 * (encoder + outline.decoder_layers * (own + cross) + target.sum() * d * vocabulary))


# Who trains.


def ours(
    outline: Outline, vocabulary: int, mine: list[Batch], device: torch.device, dtype: torch.dtype | None, mode: str
) -> Callable[[int], None]:
    """Our model: eager, or compiled for one size to which batches are filled."""
    torch.manual_seed(0)
    model = outline.seq2seq(vocabulary, vocabulary).to(device)

    def loss(source: Ragged, target: Ragged, labels_N: Tensor) -> Tensor:
        with precision(device, dtype):
            logits_NV = model(source, target)
        return smoothed_cross_entropy(logits_NV, labels_N, SMOOTHING) / labels_N.shape[0]

    ready = [(Ragged.from_list(b.source), Ragged.from_list(b.target), torch.cat(b.labels)) for b in mine]
    if mode == "fixed":
        rows = -(-max(len(source) for source, _, _ in ready) // 64) * 64 + 64
        sizes = [-(-max(each.tokens for each in side) // 256) * 256 for side in list(zip(*ready, strict=True))[:2]]
        ready = [
            (
                filled(source, sizes[0], rows, PADDING, LONGEST),
                filled(target, sizes[1], rows, PADDING, LONGEST),
                functional.pad(labels, (0, sizes[1] - labels.shape[0]), value=IGNORED),
            )
            for source, target, labels in ready
        ]
    placed = [(source.to(device), target.to(device), labels.to(device)) for source, target, labels in ready]
    run = loss if mode == "eager" else torch.compile(loss, options=OPTIONS)
    return lambda i: backward(model, run(*placed[i]))


class TorchTransformer(nn.Module):
    """nn.Transformer as its users complete it: a tied embedding, sinusoidal positions, padding masks."""

    def __init__(self, outline: Outline, vocabulary: int) -> None:
        """Of the same size as ours."""
        super().__init__()
        o = outline
        self.body = nn.Transformer(
            o.width, o.heads, o.encoder_layers, o.decoder_layers, o.inner, o.dropout, batch_first=True, norm_first=True
        )
        self.embed = nn.Embedding(vocabulary, o.width)
        nn.init.normal_(self.embed.weight, std=o.width**-0.5)
        self.drop = nn.Dropout(o.dropout)
        table = Sinusoidal(o.width)(torch.arange(512), torch.empty(0))
        self.register_buffer("table", table, persistent=False)
        self.table: Tensor
        self.width = o.width

    def forward(self, source: Tensor, target: Tensor, hidden: Tensor) -> Tensor:
        """Logits of padded rows; `hidden` is true on the padding of the source."""
        ahead = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool, device=target.device).triu(1)
        x, y = (
            self.drop(self.embed(each) * math.sqrt(self.width) + self.table[: each.shape[1]])
            for each in (source, target)
        )
        out = self.body(
            x,
            y,
            tgt_mask=ahead,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
            tgt_is_causal=True,
        )
        return functional.linear(out, self.embed.weight)


def torchs(
    outline: Outline, vocabulary: int, theirs: list[Batch], device: torch.device, dtype: torch.dtype | None, lean: bool
) -> Callable[[int], None]:
    """torch's own Transformer; `lean` without its dropout on attention weights and inner values, as in the paper."""
    torch.manual_seed(0)
    model = TorchTransformer(outline, vocabulary).to(device)
    for layer in (*model.body.encoder.layers, *model.body.decoder.layers) if lean else ():
        layer.dropout.p = 0.0
        for each in layer.modules():
            if isinstance(each, nn.MultiheadAttention):
                each.dropout = 0.0
    placed = [padded(each, device) for each in theirs]

    def step(i: int) -> None:
        source, target, labels = placed[i]
        with precision(device, dtype):
            logits = model(source, target, source == PADDING)
        backward(model, padded_loss(logits, labels))

    return step


def marian_model(outline: Outline, vocabulary: int, device: torch.device) -> nn.Module:
    """Hugging Face's MarianMTModel, with torch's fused attention, which is its default."""
    from transformers import MarianConfig, MarianMTModel  # only this contender needs it

    torch.manual_seed(0)
    o = outline
    config = MarianConfig(
        vocab_size=vocabulary,
        d_model=o.width,
        encoder_layers=o.encoder_layers,
        decoder_layers=o.decoder_layers,
        encoder_attention_heads=o.heads,
        decoder_attention_heads=o.heads,
        encoder_ffn_dim=o.inner,
        decoder_ffn_dim=o.inner,
        dropout=o.dropout,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=512,
        pad_token_id=PADDING,
        eos_token_id=1,
        decoder_start_token_id=PADDING,
        use_cache=False,
    )
    model: nn.Module = MarianMTModel(config).train()
    nn.Module.to(model, device)
    return model


def marian_logits(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
    """Its scores for padded rows."""
    logits: Tensor = model(
        input_ids=source, attention_mask=(source != PADDING).long(), decoder_input_ids=target, use_cache=False
    ).logits
    return logits


def marian(
    outline: Outline, vocabulary: int, theirs: list[Batch], device: torch.device, dtype: torch.dtype | None
) -> Callable[[int], None]:
    """Hugging Face's model, trained."""
    model = marian_model(outline, vocabulary, device)
    placed = [padded(each, device) for each in theirs]

    def step(i: int) -> None:
        source, target, labels = placed[i]
        with precision(device, dtype):
            logits = marian_logits(model, source, target)
        backward(model, padded_loss(logits, labels))

    return step


def rectangles(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """A batch as rows of one length."""
    pad = nn.utils.rnn.pad_sequence
    return (
        pad(batch.source, batch_first=True, padding_value=PADDING),
        pad(batch.target, batch_first=True, padding_value=PADDING),
        pad(batch.labels, batch_first=True, padding_value=IGNORED),
    )


def padded(batch: Batch, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """The same on a device."""
    source, target, labels = (each.to(device) for each in rectangles(batch))
    return source, target, labels


def padded_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Label-smoothed cross-entropy as torch has it."""
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, label_smoothing=SMOOTHING
    )


def precision(device: torch.device, dtype: torch.dtype | None) -> torch.autocast:
    """Mixed precision, or none."""
    return torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None)


def backward(model: nn.Module, loss: Tensor) -> None:
    """Gradients of everything, then thrown away."""
    torch.autograd.backward(loss)
    model.zero_grad(set_to_none=True)


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
