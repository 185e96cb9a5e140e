"""Taggers: tokens of given words in, scores of the tags of each word out."""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard import recipe
from regard.models.build import build_encoder
from regard.models.memory import Encoder
from regard.models.transformer import initialise
from regard.nn.cost import TokenCounts, count_flops
from regard.nn.dropout import Dropout
from regard.nn.embedding import OutputProjection
from regard.nn.ragged import Ragged

WordPooling = Literal["first", "last", "mean"]


class Tagger(nn.Module):
    """An encoder, the state of each word made of the states of its tokens, and an output layer over the tags.

    A batch is two ragged tensors: the tokens of each sentence between `<s>` and `</s>`, and the number of tokens of
    each of its words.
    """

    def __init__(self, encoder: Encoder, width: int, tags: int, pooling: WordPooling = "first", dropout: float = 0.0):
        """Put built parts together.

        Args:
            encoder: Returns a state for each token.
            width: Width of the states.
            tags: Number of tags.
            pooling: The state of a word: that of its first token, of its last token, or their mean.
            dropout: Dropout before the output layer.
        """
        super().__init__()
        self.encoder, self.pooling = encoder, pooling
        self.drop = Dropout(dropout)
        self.output = OutputProjection(width, tags, bias=True)

    @property
    def max_positions(self) -> int | None:
        """The longest sequence of tokens it can read, symbols included; None if there is no limit."""
        return self.encoder.max_positions

    def states(self, tokens: Ragged, words: Ragged) -> Float[Tensor, "M D"]:
        """Return the state of each word, before the output layer.

        Args:
            tokens: Token ids of each sentence, between `<s>` and `</s>`.
            words: The number of tokens of each word of each sentence. Words of no tokens are filling, after all others.
        """
        states_ND = self.encoder.encode(tokens).states_ND
        first_M = _first_tokens(tokens, words)
        limit = states_ND.shape[0] - 1
        match self.pooling:
            case "first":
                pooled_MD = states_ND.index_select(0, first_M.clamp(max=limit))
            case "last":
                pooled_MD = states_ND.index_select(0, (first_M + words.values - 1).clamp(max=limit))
            case "mean":
                pooled_MD = _mean(states_ND, tokens, words, first_M)
        dropped_MD: Tensor = self.drop(pooled_MD)
        return dropped_MD

    def forward(self, tokens: Ragged, words: Ragged) -> Float[Tensor, "M V"]:
        """Return the logits of the tags of each word."""
        logits_MV: Tensor = self.output(self.states(tokens, words))
        return logits_MV

    def forward_flops(self, lengths: Sequence[int], words: int) -> float:
        """Return the operations of a forward pass over sequences of these lengths, with so many words in all."""
        encoder = self.encoder
        assert isinstance(encoder, nn.Module)
        return float(count_flops(encoder, TokenCounts.of(lengths)) + 2 * words * self.output.weight.numel())


def build_tagger(settings: recipe.Model, vocabulary: int, tags: int, pooling: WordPooling) -> Tagger:
    """Build the untrained tagger that a recipe asks for.

    Args:
        settings: The `[model]` section.
        vocabulary: Size of the vocabulary of the words' tokens.
        tags: Number of tags.
        pooling: The state of a word of several tokens.
    """
    encoder, width = build_encoder(settings, vocabulary)
    assert not isinstance(settings, recipe.NLinear | recipe.DLinear), "they have no encoder"
    model = Tagger(encoder, width, tags, pooling, settings.dropout)
    if isinstance(settings, recipe.Transformer):
        initialise(model, settings)
    return model


def _first_tokens(tokens: Ragged, words: Ragged) -> Int[Tensor, " M"]:
    """Return the position of the first token of each word among the tokens of all sentences."""
    before = torch.cat([words.values.new_zeros(1), words.values.cumsum(0)])
    # Where the tokens of each sentence begin, behind its `<s>`, less the tokens of the words before it.
    shift_B = tokens.offsets[:-1] + 1 - before.index_select(0, words.offsets[:-1])
    return before[:-1] + shift_B.index_select(0, words.sequence_N)


def _mean(
    states_ND: Float[Tensor, "N D"], tokens: Ragged, words: Ragged, first_M: Int[Tensor, " M"]
) -> Float[Tensor, "M D"]:
    """Return the mean of the states of each word's tokens."""
    position_N = torch.arange(tokens.tokens, device=states_ND.device)
    # The last word that begins at or before a token; `<s>` and `</s>` belong to none.
    word_N = torch.searchsorted(first_M, position_N, right=True) - 1
    inside_N = (tokens.position_N > 0) & (tokens.position_N < tokens.lengths_B.index_select(0, tokens.sequence_N) - 1)
    sums_MD = states_ND.new_zeros(words.tokens, states_ND.shape[1])
    sums_MD = sums_MD.index_add(0, word_N.clamp(min=0), states_ND * inside_N[:, None].to(states_ND.dtype))
    return sums_MD / words.values.clamp(min=1)[:, None].to(states_ND.dtype)
