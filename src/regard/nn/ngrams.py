"""N-gram embeddings: the tokens of a text in, one vector for the text out (Joulin et al. 2017).

Every n-gram of tokens has a vector, whatever stands around it. Their mean is a linear model of a text beside the
encoder: rare pairs of words that decide a label are learned from few texts.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from regard.nn.dropout import thread_generator
from regard.nn.ragged import Ragged

# A polynomial hash modulo a Mersenne prime; products of a hash and the base are less than 2**63.
_BASE, _MODULUS = 1_000_003, 2**31 - 1


class NgramEmbedding(nn.Module):
    """The mean of the vectors of all n-grams of a text, from single tokens to n-grams of `longest` tokens.

    Tokens have a vector each, and longer n-grams share a table of `buckets` vectors by a hash of their tokens (Joulin
    et al. 2017, §2.2). All vectors are zero before training.
    """

    def __init__(self, vocabulary: int, longest: int, buckets: int, width: int, word_dropout: float = 0.0) -> None:
        """Create the embedding.

        Args:
            vocabulary: Number of tokens.
            longest: Tokens of the longest n-grams.
            buckets: Number of vectors that n-grams of two and more tokens share.
            width: Size of a vector.
            word_dropout: Probability with which the whole vector of an n-gram is dropped.
        """
        super().__init__()
        self.vocabulary, self.longest, self.buckets = vocabulary, longest, buckets
        self.weight = nn.Parameter(torch.zeros(vocabulary + (buckets if longest > 1 else 0), width))
        self.word_dropout = word_dropout

    @property
    def width(self) -> int:
        """The size of a vector."""
        return self.weight.shape[1]

    def forward(self, tokens: Ragged) -> Float[Tensor, "B D"]:
        """Return one vector for each text; zero for an empty text."""
        sums_BD = self.weight.new_zeros(len(tokens), self.width)
        counts_B = self.weight.new_zeros(len(tokens))
        starts_B, left_N = tokens.offsets[:-1].long(), tokens.lengths_B.index_select(0, tokens.sequence_N)
        left_N = left_N - tokens.position_N  # tokens from this one to the end of its text
        for order, rows_N in enumerate(self.rows(tokens.values), start=1):
            counted_N = (left_N >= order).to(self.weight.dtype)
            counts_B = counts_B + (tokens.lengths_B - (order - 1)).clamp(min=0)
            if self.training and self.word_dropout:
                draws_N = torch.rand(rows_N.shape, device=rows_N.device, generator=thread_generator(rows_N.device))
                counted_N = counted_N * (draws_N >= self.word_dropout) / (1 - self.word_dropout)
            sums_BD = sums_BD + functional.embedding_bag(
                rows_N, self.weight, starts_B, mode="sum", per_sample_weights=counted_N.to(self.weight.dtype)
            )
        return sums_BD / counts_B.clamp(min=1).sqrt()[:, None]

    def rows(self, ids_N: Int64[Tensor, " N"]) -> list[Int64[Tensor, " N"]]:
        """Return the row of the n-gram that begins at each token, for n-grams of one token, of two, and so on.

        Near the end of a text, n-grams would continue in the next text; `forward` gives these the weight 0.
        """
        rows, hashes_N, next_N = [ids_N], ids_N, ids_N
        for _ in range(1, self.longest):
            next_N = next_N.roll(-1)
            hashes_N = (hashes_N * _BASE + next_N + 1) % _MODULUS
            rows.append(self.vocabulary + hashes_N % self.buckets)
        return rows
