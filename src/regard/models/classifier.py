"""Classifiers: token ids of texts in, logits of classes out.

An encoder of any family reads a text, pooling makes one vector of its states, and a linear layer gives a logit to each
class. A hierarchical encoder pools by itself.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.models.han import HierarchicalEncoder
from regard.models.memory import Encoder
from regard.nn.cost import TokenCounts, count_flops
from regard.nn.dropout import Dropout
from regard.nn.linear import ClassProjection
from regard.nn.ngrams import NgramEmbedding
from regard.nn.pooling import FirstPooling
from regard.nn.ragged import Layout, Ragged


class FirstTokenPooler(nn.Module):
    """The state of the first symbol, through a linear layer and tanh: BERT's pooler (Devlin et al. 2019)."""

    def __init__(self, width: int) -> None:
        """Create the pooler of states of `width`."""
        super().__init__()
        self.dense, self.first = nn.Linear(width, width), FirstPooling()

    def forward(self, x_ND: Float[Tensor, "N D"], layout: Layout) -> Float[Tensor, "B D"]:
        """Return one vector for each sequence."""
        return torch.tanh(self.dense(self.first(x_ND, layout)))

    def flops(self, counts: TokenCounts) -> int:
        """Return the operations of a forward pass."""
        return 2 * self.dense.weight.numel() * counts.sequences


class Classifier(nn.Module):
    """An encoder, pooling, dropout and a linear layer with one logit for each class.

    Example:
        Logits of two texts, and of two documents by a hierarchical encoder::

            logits_BV = classifier(Ragged.from_list([[2, 8, 9, 3], [2, 7, 3]]))
            logits_BV = classifier(Ragged.from_list([[8, 9, 7], [5]]), Ragged.from_list([[2, 1], [1]]))
    """

    class_weights_V: Float[Tensor, " V"]

    def __init__(
        self,
        encoder: Encoder | HierarchicalEncoder,
        pooling: nn.Module,
        width: int,
        classes: int,
        dropout: float = 0.0,
        ngrams: NgramEmbedding | None = None,
    ) -> None:
        """Put built parts together.

        Args:
            encoder: Encodes texts.
            pooling: Makes one vector of the states of a text; a hierarchical encoder does not need it.
            width: Width of that vector.
            classes: Number of classes.
            dropout: Probability with which a value of that vector is dropped.
            ngrams: Embeds the n-grams of a text, whose mean joins that vector.
        """
        super().__init__()
        self.encoder, self.pooling, self.ngrams = encoder, pooling, ngrams
        width += 0 if ngrams is None else ngrams.width
        self.drop, self.output = Dropout(dropout), ClassProjection(width, classes)
        # Weights of the classes in the training loss, which the task sets. They follow from the training data, so they
        # are saved neither with the model nor in checkpoints.
        self.register_buffer("class_weights_V", torch.ones(classes), persistent=False)

    @property
    def max_positions(self) -> int | None:
        """The longest text it can read, symbols included; None if there is no limit."""
        return self.encoder.max_positions

    @property
    def hierarchical(self) -> bool:
        """Whether it reads documents of sentences."""
        return isinstance(self.encoder, HierarchicalEncoder)

    def vectors(self, tokens: Ragged, sizes: Ragged | None = None) -> Float[Tensor, "B D"]:
        """Return one vector for each text; for the arguments see `forward`."""
        if isinstance(self.encoder, HierarchicalEncoder):
            if sizes is None:
                raise ValueError("this model reads documents: give the number of tokens of each sentence, too")
            pooled_BD: Tensor = self.encoder(tokens, sizes)
        else:
            memory = self.encoder.encode(tokens)
            pooled_BD = self.pooling(memory.states_ND, memory.layout)
        if self.ngrams is None:
            return pooled_BD
        return torch.cat([pooled_BD, self.ngrams(tokens).to(pooled_BD.dtype)], -1)

    def forward(self, tokens: Ragged, sizes: Ragged | None = None) -> Float[Tensor, "B V"]:
        """Return the logits of all classes for each text.

        Args:
            tokens: The tokens of each text, between `<s>` and `</s>`; those of a document without symbols.
            sizes: The number of tokens of each sentence of each document, for a hierarchical encoder.
        """
        logits_BV: Tensor = self.output(self.drop(self.vectors(tokens, sizes)))
        return logits_BV

    def forward_flops(self, lengths: Sequence[int], sentences: Sequence[int] = ()) -> float:
        """Return the operations of a forward pass over texts; see `regard.nn.cost`.

        Args:
            lengths: Number of tokens of each text.
            sentences: Number of sentences of each document, for a hierarchical encoder.
        """
        output = count_flops(self.output, TokenCounts(len(lengths), len(lengths), 0))
        if isinstance(self.encoder, HierarchicalEncoder):
            return float(self.encoder.forward_flops(sum(lengths), sum(sentences)) + output)
        counts = TokenCounts.of(lengths)
        assert isinstance(self.encoder, nn.Module)
        return float(count_flops(self.encoder, counts) + count_flops(self.pooling, counts) + output)
