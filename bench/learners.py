"""Who takes a step in `bench/model.py` and `bench/train.py`, and on what: ours, torch's own, and Hugging Face's."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from regard.models.outline import Outline
from regard.nn.capacity import filled
from regard.nn.cross_entropy import IGNORED
from regard.nn.position import Sinusoidal
from regard.nn.ragged import Ragged
from regard.train.compiling import OPTIONS
from regard.train.loss import Learner

SIZES = {
    "small": Outline(256, 1024, 4, 3, 3),
    "base": Outline(512, 2048, 8, 6, 6),
    "big": Outline(1024, 4096, 16, 6, 6),
}
SMOOTHING, PADDING = 0.1, 0
LONGEST = 160  # tokens of a target


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

    learner = Learner(model, SMOOTHING)

    def loss(source: Ragged, target: Ragged, labels_N: Tensor) -> Tensor:
        with precision(device, dtype):
            total: Tensor = learner(source, target, labels_N)
        return total / labels_N.shape[0]

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
