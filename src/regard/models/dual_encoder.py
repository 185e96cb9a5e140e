"""Dual encoders: histories and replies become vectors, and a reply suits a history if their vectors are similar.

Lowe et al. 2015 encode both with one LSTM. The similarity here is the cosine, multiplied by a learned inverse
temperature in training (Radford et al. 2021, §2.3).
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard.models.memory import Encoder
from regard.nn.cost import TokenCounts, count_flops
from regard.nn.ragged import Ragged

INITIAL_SCALE = 1 / 0.07  # Radford et al. 2021, §2.5
LARGEST_SCALE = 100.0
"""The inverse temperature grows no larger than this, for a stable training (Radford et al. 2021, §2.5)."""


class TextEncoder(nn.Module):
    """An encoder and a pooling: one vector for each text."""

    def __init__(self, encoder: Encoder, pooling: nn.Module) -> None:
        """Put built parts together.

        Args:
            encoder: Encodes texts.
            pooling: Makes one vector of the states of a text.
        """
        super().__init__()
        self.encoder, self.pooling = encoder, pooling

    def forward(self, tokens: Ragged) -> Float[Tensor, "B D"]:
        """Return one vector for each text."""
        memory = self.encoder.encode(tokens)
        pooled_BD: Tensor = self.pooling(memory.states_ND, memory.layout)
        return pooled_BD

    def forward_flops(self, lengths: Sequence[int]) -> float:
        """Return the operations of a forward pass over texts of these lengths; see `regard.nn.cost`."""
        assert isinstance(self.encoder, nn.Module)
        counts = TokenCounts.of(lengths)
        return float(count_flops(self.encoder, counts) + count_flops(self.pooling, counts))


class DualEncoder(nn.Module):
    """Vectors of histories and replies, of length 1, whose inner product says how well a reply suits a history.

    Each side has a linear layer of its own. So a history and a reply with the same words need not be similar, also if
    both sides share one encoder.

    Example:
        The similarity of two histories (rows) and three replies (columns)::

            similarity_QK = model.history_vectors(histories) @ model.reply_vectors(replies).T
    """

    def __init__(self, histories: TextEncoder, replies: TextEncoder, width: int) -> None:
        """Put built parts together.

        Args:
            histories: The encoder of histories.
            replies: The encoder of replies; the same object to share it.
            width: Width of the vectors of both.
        """
        super().__init__()
        self.histories, self.replies = histories, replies
        self.history_output, self.reply_output = (nn.Linear(width, width, bias=False) for _ in range(2))
        # Not a scalar: FSDP cannot shard one.
        self.log_scale = nn.Parameter(torch.full((1,), math.log(INITIAL_SCALE)))

    @property
    def max_positions(self) -> int | None:
        """The longest text it can read, symbols included; None if there is no limit."""
        limits = [side.encoder.max_positions for side in (self.histories, self.replies)]
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.log_scale.device

    @property
    def scale(self) -> Float[Tensor, " 1"]:
        """The inverse temperature by which similarities are multiplied in training."""
        return self.log_scale.exp().clamp(max=LARGEST_SCALE)

    def history_vectors(self, tokens: Ragged) -> Float[Tensor, "B D"]:
        """Return the vectors of histories, in float32 at least."""
        return _normalise(self.history_output(self.histories(tokens)))

    def reply_vectors(self, tokens: Ragged) -> Float[Tensor, "B D"]:
        """Return the vectors of replies, in float32 at least."""
        return _normalise(self.reply_output(self.replies(tokens)))

    def forward_flops(self, history_lengths: Sequence[int], reply_lengths: Sequence[int]) -> float:
        """Return the operations of encoding histories and replies of these lengths."""
        sides = (self.histories, self.history_output, history_lengths), (self.replies, self.reply_output, reply_lengths)
        return sum(
            encoder.forward_flops(lengths) + count_flops(output, TokenCounts(len(lengths), len(lengths), 0))
            for encoder, output, lengths in sides
        )


def _normalise(x_BD: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
    """Return vectors of length 1; that of a filler sequence is zero."""
    return functional.normalize(x_BD.to(torch.promote_types(x_BD.dtype, torch.float32)), dim=-1)
