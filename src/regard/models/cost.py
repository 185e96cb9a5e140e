"""What a pass of a model costs: lengths of sources and targets in, floating-point operations out.

Counted are the matrix products, two operations for each multiplication and addition, on real tokens only. What is
linear in the width (norms, softmax, gates, embeddings) is left out, as is usual.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from regard.models.convolutional.stack import DecoderLayer
from regard.models.recurrent.bahdanau import AttentiveCell, BahdanauDecoder
from regard.models.recurrent.luong import AttentionalTop
from regard.models.seq2seq import Seq2Seq
from regard.nn.attention.alignment import Alignment
from regard.nn.attention.multihead import CrossAttention, MultiHeadAttention, SelfAttention
from regard.nn.attention.scores import Additive, Bilinear, Score
from regard.nn.embedding import Output
from regard.nn.recurrent import Recurrence


@dataclass(frozen=True)
class Passed:
    """What passes one side of a model: its tokens, and the pairs of tokens that look at each other."""

    sequences: int
    """Sequences of either side."""
    own: int
    """Tokens of this side."""
    memory: int
    """Tokens of the side it looks at."""
    own_pairs: int
    """Pairs within this side; a causal mask saves none of them, by convention."""
    cross_pairs: int
    """Pairs of a token here and a token of the memory."""


def parameters(model: nn.Module) -> int:
    """How many numbers a model learns; a matrix that serves several purposes counts once."""
    return sum(each.numel() for each in model.parameters())


def training_flops(model: Seq2Seq, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> float:
    """Operations of a pass forward and backward over these pairs; backward is twice forward."""
    return 3.0 * forward_flops(model, source_lengths, target_lengths)


def forward_flops(model: Seq2Seq, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> float:
    """Operations of a pass forward over these pairs, target tokens given."""
    if len(source_lengths) != len(target_lengths):
        raise ValueError(f"{len(source_lengths)} sources do not fit {len(target_lengths)} targets")
    source, target = sum(source_lengths), sum(target_lengths)
    cross = sum(one * other for one, other in zip(source_lengths, target_lengths, strict=True))
    encoder = Passed(len(source_lengths), source, 0, sum(n * n for n in source_lengths), 0)
    decoder = Passed(len(target_lengths), target, source, sum(n * n for n in target_lengths), cross)
    parts = ((model.encoder, encoder), (model.decoder, decoder), (model.output, decoder))
    return float(sum(_products(part, passed) for part, passed in parts if isinstance(part, nn.Module)))


def _products(module: nn.Module, passed: Passed) -> int:
    """Operations of the matrix products in a module and in what it is made of."""
    match module:
        case MultiHeadAttention():
            return _attention(module, passed)
        case nn.Linear() | Output():
            return 2 * module.weight.numel() * passed.own
        case Recurrence():
            return 2 * passed.own * sum(each.numel() for each in module.cells.parameters() if each.ndim == 2)
        case AttentiveCell():
            look = _alignment(module.cross, module.recurrence.width, 2 * module.recurrence.width, passed)
            return _products(module.recurrence, passed) + look
        case AttentionalTop():
            width, both = module.combine.out_features, module.combine.in_features
            return _products(module.combine, passed) + _alignment(module.cross, width, both - width, passed)
        case DecoderLayer():
            parts = (module.convolution, module.query, module.context)
            width = module.query.out_features
            return sum(_products(each, passed) for each in parts) + _alignment(module.cross, width, width, passed)
        case BahdanauDecoder():
            stepwise = _products(module.cell, passed) + _products(module.readout, passed)
            return stepwise + 2 * module.bridge.weight.numel() * passed.sequences
        case _:
            return sum(_products(each, passed) for each in module.children())


def _alignment(module: Alignment, width: int, value_width: int, passed: Passed) -> int:
    """One attention over a memory, by queries of this width and values of that."""
    score = _score(module.score, width, passed.own, passed.memory, passed.cross_pairs)
    focus = 0 if module.focus is None else _products(module.focus, passed)
    return score + focus + 2 * passed.cross_pairs * value_width


def _attention(module: MultiHeadAttention, passed: Passed) -> int:
    """Projections, scores and the mixing of values."""
    pairs, keys = passed.own_pairs, passed.own
    products = _products(module.out, passed)
    match module:
        case SelfAttention():
            products += _products(module.qkv, passed)
        case CrossAttention():
            pairs, keys = passed.cross_pairs, passed.memory
            products += _products(module.query, passed) + 2 * module.kv.weight.numel() * keys
    score = _score(module.score, module.key_size, passed.own, keys, pairs)
    return products + module.heads * (score + 2 * pairs * module.value_size)


def _score(score: Score, size: int, queries: int, keys: int, pairs: int) -> int:
    """Scores of one head."""
    match score:
        case Bilinear():
            return 2 * score.weight.numel() * queries + 2 * score.weight.shape[1] * pairs
        case Additive():
            projected = score.from_query.weight.numel() * queries + score.from_key.weight.numel() * keys
            return 2 * projected + 2 * score.outer.weight.numel() * pairs
        case _:
            return 2 * size * pairs
