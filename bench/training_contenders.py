"""The batches and models of `bench/model.py` and `bench/train.py`: ours, torch's and Hugging Face's."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from regard.models.build import build
from regard.nn.cross_entropy import IGNORED
from regard.nn.position import SinusoidalPositions
from regard.nn.ragged import Ragged
from regard.recipe import Transformer, parse
from regard.tasks import make_task
from regard.tasks.translation import TranslationBatch
from regard.train.autotune import compile_in_place
from regard.train.distributed import LossModule

SIZES = {
    "small": Transformer(size="small"),
    "base": Transformer(size="base"),
    "big": Transformer(size="big", dropout=0.1),
}
SMOOTHING, PADDING = 0.1, 0
LONGEST = 160  # tokens of the longest target
TASK = make_task(parse('data.train = [{ to = "de" }]', [f"train.smoothing={SMOOTHING}"]))
Step = Callable[[int], None]
"""Trains on the batch of this number."""


@dataclass(frozen=True)
class Batch:
    """The ids of some sentence pairs, and the labels; all contenders train on the same."""

    source: list[Tensor]
    target: list[Tensor]
    labels: list[Tensor]

    @property
    def tokens(self) -> int:
        """The number of target tokens without padding."""
        return sum(len(ids) for ids in self.target)


# Batches, with sentence lengths as in real text


def lengths(pairs: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw source lengths exp(N(3.2, 0.55)), clipped to 3 … 150, and target lengths within 15 % of them."""
    random = np.random.default_rng(seed)
    source = np.clip(np.exp(random.normal(3.2, 0.55, pairs)), 3, 150).astype(np.int64)
    target = np.clip(source * (1 + random.normal(0, 0.15, pairs)), 3, LONGEST).astype(np.int64)
    return source, target


def split_batches(order: NDArray[np.int64], target: NDArray[np.int64], tokens: int) -> list[NDArray[np.int64]]:
    """Split sentences in this order into batches of about `tokens` target tokens."""
    ends = np.searchsorted(np.cumsum(target[order]), np.arange(tokens, int(target.sum()) - tokens, tokens))
    return np.split(order, ends)[:-1]


def batches(tokens: int, count: int, vocabulary: int, order: str) -> list[Batch]:
    """Draw batches, evenly spaced in a large pool that is sorted by both lengths, by source length, or not."""
    source, target = lengths(64 * tokens // 28, seed=1)
    shuffled = np.random.default_rng(2).permutation(source.size)
    match order:
        case "both":
            order_N = np.lexsort((target, source))
        case "source":
            order_N = shuffled[np.argsort(source[shuffled], kind="stable")]
        case _:
            order_N = shuffled
    pool = split_batches(order_N, target, tokens)
    chosen = [pool[i] for i in np.linspace(0, len(pool) - 1, count + 2).astype(int)[1:-1]]
    generator = torch.Generator().manual_seed(3)

    def ids(counts: NDArray[np.int64]) -> list[Tensor]:
        return [torch.randint(4, vocabulary, (int(n),), generator=generator) for n in counts]

    return [Batch(ids(source[rows]), ids(target[rows]), ids(target[rows])) for rows in chosen]


def required_flops(batch: Batch, sizes: Transformer, vocabulary: int) -> float:
    """Return the floating-point operations of a forward and backward pass over a batch without padding."""
    d, f = sizes.width, sizes.inner
    source, target = (np.array([len(ids) for ids in side], float) for side in (batch.source, batch.target))
    encoder = sizes.encoder_layers * (source.sum() * (4 * d * d + 2 * d * f) + 2 * d * (source**2).sum())
    own = target.sum() * (6 * d * d + 2 * d * f) + 2 * d * (target**2).sum() / 2
    cross = source.sum() * 2 * d * d + 2 * d * (source * target).sum()
    return float(6 * (encoder + sizes.decoder_layers * (own + cross) + target.sum() * d * vocabulary))


# Models


def our_step(
    sizes: Transformer,
    vocabulary: int,
    batches: list[Batch],
    device: torch.device,
    dtype: torch.dtype | None,
    mode: str,
) -> Step:
    """Return the step of our model: `eager`, or `fixed`, compiled for one size to which batches are filled."""
    torch.manual_seed(0)
    model = build(sizes, vocabulary, vocabulary).to(device)
    learner = LossModule(model, TASK)
    ready = [
        TranslationBatch(
            Ragged.from_list(batch.source),
            Ragged.from_list(batch.target),
            torch.cat(batch.labels),
            torch.arange(len(batch.source)),
        )
        for batch in batches
    ]
    if mode == "fixed":
        sequences = -(-max(map(len, ready)) // 64) * 64 + 64
        tokens = -(-max(max(batch.source.tokens, batch.target.tokens) for batch in ready) // 256) * 256
        ready = [batch.filled(tokens, sequences, LONGEST) for batch in ready]
        compile_in_place(learner)
    on_device = [batch.to(device) for batch in ready]

    def step(i: int) -> None:
        with autocast(device, dtype):
            loss: Tensor = learner(on_device[i])
        backward(model, loss / batches[i].tokens)

    return step


class TorchTransformer(nn.Module):
    """`nn.Transformer` with what its users add: a tied embedding, sinusoidal positions and padding masks."""

    def __init__(self, sizes: Transformer, vocabulary: int) -> None:
        """Create a model of the size of ours."""
        super().__init__()
        o = sizes
        self.body = nn.Transformer(
            o.width, o.heads, o.encoder_layers, o.decoder_layers, o.inner, o.dropout, batch_first=True, norm_first=True
        )
        self.embed = nn.Embedding(vocabulary, o.width)
        nn.init.normal_(self.embed.weight, std=o.width**-0.5)
        self.drop = nn.Dropout(o.dropout)
        table = SinusoidalPositions(o.width)(torch.arange(512), torch.empty(0))
        self.register_buffer("table", table, persistent=False)
        self.table: Tensor
        self.width = o.width

    def forward(self, source: Tensor, target: Tensor, padding: Tensor) -> Tensor:
        """Return the logits of padded rows; `padding` is true on the padding of the source."""
        future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool, device=target.device).triu(1)
        x, y = (
            self.drop(self.embed(ids) * math.sqrt(self.width) + self.table[: ids.shape[1]]) for ids in (source, target)
        )
        out = self.body(
            x,
            y,
            tgt_mask=future,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return functional.linear(out, self.embed.weight)


def torch_step(
    sizes: Transformer,
    vocabulary: int,
    batches: list[Batch],
    device: torch.device,
    dtype: torch.dtype | None,
    lean: bool,
) -> Step:
    """Return the step of torch's Transformer; `lean` without dropout on attention and inner values, as in the paper."""
    torch.manual_seed(0)
    model = TorchTransformer(sizes, vocabulary).to(device)
    for layer in (*model.body.encoder.layers, *model.body.decoder.layers) if lean else ():
        layer.dropout.p = 0.0
        for module in layer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
    on_device = [padded(batch, device) for batch in batches]

    def step(i: int) -> None:
        source, target, labels = on_device[i]
        with autocast(device, dtype):
            logits = model(source, target, source == PADDING)
        backward(model, padded_loss(logits, labels))

    return step


def marian_model(sizes: Transformer, vocabulary: int, device: torch.device) -> nn.Module:
    """Create Hugging Face's MarianMTModel, which uses torch's fused attention by default."""
    from transformers import MarianConfig, MarianMTModel  # needed by this contender alone

    torch.manual_seed(0)
    o = sizes
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
    """Return the logits of padded rows."""
    logits: Tensor = model(
        input_ids=source, attention_mask=(source != PADDING).long(), decoder_input_ids=target, use_cache=False
    ).logits
    return logits


def marian_step(
    sizes: Transformer, vocabulary: int, batches: list[Batch], device: torch.device, dtype: torch.dtype | None
) -> Step:
    """Return the step of Hugging Face's model."""
    model = marian_model(sizes, vocabulary, device)
    on_device = [padded(batch, device) for batch in batches]

    def step(i: int) -> None:
        source, target, labels = on_device[i]
        with autocast(device, dtype):
            logits = marian_logits(model, source, target)
        backward(model, padded_loss(logits, labels))

    return step


def pad(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Pad source, target and labels of a batch to rectangles."""
    pad_sequence = nn.utils.rnn.pad_sequence
    return (
        pad_sequence(batch.source, batch_first=True, padding_value=PADDING),
        pad_sequence(batch.target, batch_first=True, padding_value=PADDING),
        pad_sequence(batch.labels, batch_first=True, padding_value=IGNORED),
    )


def padded(batch: Batch, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Pad a batch, and move it to a device."""
    source, target, labels = (rows.to(device) for rows in pad(batch))
    return source, target, labels


def padded_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return torch's label-smoothed cross-entropy."""
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, label_smoothing=SMOOTHING
    )


def autocast(device: torch.device, dtype: torch.dtype | None) -> torch.autocast:
    """Return a context of mixed precision, or of none."""
    return torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None)


def backward(model: nn.Module, loss: Tensor) -> None:
    """Compute all gradients, and discard them."""
    torch.autograd.backward(loss)
    model.zero_grad(set_to_none=True)
