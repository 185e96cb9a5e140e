"""Count the parameters of a model and the floating-point operations (FLOPs) of a forward pass.

Only matrix products of real tokens are counted, as two operations for each multiplication and addition. What is linear
in the width (norms, softmax, gates, embeddings) is left out, as is usual.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol, runtime_checkable

from torch import nn


@dataclass(frozen=True)
class TokenCounts:
    """The tokens that a stack of layers processes, and the pairs of tokens between which attention has scores."""

    sequences: int
    """Number of sequences."""
    tokens: int
    """Tokens of all sequences."""
    self_pairs: int
    """Pairs of tokens of one sequence; by convention, a causal mask saves none of them."""
    memory_tokens: int = 0
    """Tokens of the memory that cross-attention reads."""
    cross_pairs: int = 0
    """Pairs of a token and a token of its memory."""
    parts: "TokenCounts | None" = None
    """Of nested inputs, such as dialogues of turns: the counts with each part in place of its tokens. Then `sequences`
    counts the parts of an encoder's inputs, and `self_pairs` the pairs within a part."""

    @classmethod
    def of(cls, lengths: Sequence[int], memory_lengths: Sequence[int] = ()) -> "TokenCounts":
        """Count sequences of these lengths, each with a memory of that length if there are memories."""
        pairs = sum(length * memory for length, memory in zip(lengths, memory_lengths, strict=bool(memory_lengths)))
        return cls(len(lengths), sum(lengths), sum(length**2 for length in lengths), sum(memory_lengths), pairs)

    @classmethod
    def of_parts(cls, sizes: Sequence[Sequence[int]]) -> "TokenCounts":
        """Count nested inputs whose parts have these lengths."""
        return replace(cls.of(list(chain.from_iterable(sizes))), parts=cls.of([len(parts) for parts in sizes]))


@runtime_checkable
class CountsFlops(Protocol):
    """A module that counts its own operations, because they are not those of its parts applied to each token."""

    def flops(self, counts: TokenCounts) -> int:
        """Return the operations of a forward pass."""


def count_flops(module: nn.Module, counts: TokenCounts) -> int:
    """Return the operations of a forward pass of a module, its parts included."""
    if isinstance(module, CountsFlops):
        return module.flops(counts)
    if isinstance(module, nn.Linear):
        return 2 * module.weight.numel() * counts.tokens
    return sum(count_flops(child, counts) for child in module.children())


def count_parameters(model: nn.Module) -> int:
    """Return the number of parameters of a model; a matrix that serves several purposes counts once."""
    return sum(weight.numel() for weight in model.parameters())
