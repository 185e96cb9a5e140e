"""The hierarchical attention network (Yang et al. 2016): documents of sentences in, one vector a document out.

Words are read by a bidirectional GRU and averaged by attention into sentence vectors; these are read by a second
bidirectional GRU and averaged by attention into the vector of the document.
"""

from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.cost import TokenCounts, count_flops
from regard.nn.dropout import Dropout
from regard.nn.embedding import Embedding
from regard.nn.pooling import AttentionPooling
from regard.nn.ragged import Layout, Ragged
from regard.nn.recurrent import RecurrentLayers
from regard.recipe import Han


class AttentionLevel(nn.Module):
    """One level of the hierarchy: a recurrence over the parts of each sequence, and attention over its states."""

    def __init__(self, recurrence: RecurrentLayers, pooling: AttentionPooling) -> None:
        """Put built parts together."""
        super().__init__()
        self.recurrence, self.pooling = recurrence, pooling

    def forward(self, x_ND: Float[Tensor, "N D"], layout: Layout) -> Float[Tensor, "B D2"]:
        """Return one vector for each sequence; zero for an empty one."""
        states_ND, _ = self.recurrence(x_ND, layout, self.recurrence.initial_state(len(layout), x_ND))
        pooled_BD: Tensor = self.pooling(states_ND, layout)
        return pooled_BD


class HierarchicalEncoder(nn.Module):
    """Encodes documents with any number of sentences, each with any number of words (Yang et al. 2016, §2.2).

    The attention weights pass the taps `words.pooling.weights`, one value for each token, and
    `sentences.pooling.weights`, one value for each sentence.
    """

    def __init__(self, embedding: Embedding, words: AttentionLevel, sentences: AttentionLevel, dropout: float) -> None:
        """Put built parts together; `dropout` is that of sentence vectors."""
        super().__init__()
        self.embedding, self.words, self.sentences, self.drop = embedding, words, sentences, Dropout(dropout)

    @property
    def max_positions(self) -> int | None:
        """The longest document it can encode: None, as there is no limit."""
        return self.embedding.max_positions

    def forward(self, tokens: Ragged, sizes: Ragged) -> Float[Tensor, "B D"]:
        """Return the vector of each document; zero for one without sentences.

        Args:
            tokens: The tokens of each document, without symbols.
            sizes: The number of tokens of each sentence of each document. Tokens beyond the last sentence fill up a
                batch and are not read.
        """
        if not sizes.tokens:
            width = self.sentences.recurrence.width * 2
            return self.embedding.weight.new_zeros(len(sizes), width)
        sentences = Layout.from_lengths(sizes.values)
        x_ND = self.embedding(Ragged(tokens.values[: sentences.tokens], sentences))
        vectors_BD: Tensor = self.sentences(self.drop(self.words(x_ND, sentences)), sizes.layout)
        return vectors_BD

    def forward_flops(self, tokens: int, sentences: int) -> int:
        """Return the operations of a forward pass over so many tokens in so many sentences; see `regard.nn.cost`."""
        return count_flops(self.words, TokenCounts(sentences, tokens, 0)) + count_flops(
            self.sentences, TokenCounts(1, sentences, 0)
        )


def build_hierarchical_encoder(settings: Han, vocabulary: int) -> tuple[HierarchicalEncoder, int]:
    """Build the untrained encoder, and return it with the width of a document's vector."""

    def level(inputs: int) -> AttentionLevel:
        recurrence = RecurrentLayers(settings.cell, inputs, settings.width, bidirectional=True)
        return AttentionLevel(recurrence, AttentionPooling(2 * settings.width, settings.attention_width))

    embedding = Embedding(vocabulary, settings.embedding, dropout=settings.dropout, word_dropout=settings.word_dropout)
    words, sentences = level(settings.embedding), level(2 * settings.width)
    return HierarchicalEncoder(embedding, words, sentences, settings.dropout), 2 * settings.width
