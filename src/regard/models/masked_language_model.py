"""Encoder-only language models (Devlin et al. 2019): a text with masked tokens in, scores of the masked tokens out."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from regard.models.transformer import Stack
from regard.nn.cost import TokenCounts, count_flops
from regard.nn.embedding import OutputProjection
from regard.nn.feedforward import make_activation
from regard.nn.linear import make_projection
from regard.nn.norm import make_norm
from regard.nn.ragged import Ragged


class PredictionHead(nn.Module):
    """The layer between encoder and output projection: linear, activation, norm, as in the implementation of BERT.

    It lets the encoder's states differ from the vectors that the output compares with those of the vocabulary.
    """

    def __init__(self, width: int, activation: str = "gelu", norm: str = "layer") -> None:
        """Create the head for states of this width."""
        super().__init__()
        self.activation, parts = make_activation(activation)
        self.dense = make_projection(width, [width] * parts)
        self.norm = make_norm(norm, width)

    def forward(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Transform the states of the tokens to predict."""
        predicted_ND: Tensor = self.norm(self.activation(self.dense(x_ND)))
        return predicted_ND


class MaskedLanguageModel(nn.Module):
    """A bidirectional stack, a prediction head, and an output layer over the vocabulary, with a bias.

    It models p(token | all other tokens) for each masked token.

    Example:
        Score the vocabulary at every position, or only at some, which takes less time::

            logits_NV = model(tokens)
            logits_MV = model.output(model.head(model.states(tokens)[positions_M]))
    """

    def __init__(self, encoder: Stack, head: PredictionHead, output: OutputProjection) -> None:
        """Put built parts together.

        Raises:
            ValueError: The stack is causal, so that it cannot see what follows a masked token.
        """
        super().__init__()
        if encoder.mask.causal:
            raise ValueError("a masked language model needs a bidirectional stack: this one sees earlier tokens only")
        self.encoder, self.head, self.output = encoder, head, output

    @property
    def max_positions(self) -> int | None:
        """The longest sequence it can read; None if there is no limit."""
        return self.encoder.max_positions

    def states(self, tokens: Ragged) -> Float[Tensor, "N D"]:
        """Return the encoder's state at each token."""
        states_ND: Tensor = self.encoder(tokens)
        return states_ND

    def forward(self, tokens: Ragged) -> Float[Tensor, "N V"]:
        """Return the logits of the token at each position."""
        logits_NV: Tensor = self.output(self.head(self.states(tokens)))
        return logits_NV

    def forward_flops(self, lengths: Sequence[int], predicted: int) -> float:
        """Return the operations of a forward pass over sequences of these lengths with some predicted tokens."""
        outputs = TokenCounts(len(lengths), predicted, 0)
        operations = count_flops(self.encoder, TokenCounts.of(lengths))
        return float(operations + count_flops(self.head, outputs) + count_flops(self.output, outputs))
