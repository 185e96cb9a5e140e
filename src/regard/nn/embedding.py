"""Token embeddings and the output projection to the vocabulary (Vaswani et al. 2017, §3.4)."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.cost import TokenCounts
from regard.nn.dropout import Dropout, thread_generator
from regard.nn.position import PositionEncoding
from regard.nn.ragged import Ragged
from regard.nn.tap import Tap


class Embedding(nn.Module):
    """A vector for each token, joined with its position encoding by sum (§3.5) or by concatenation."""

    def __init__(
        self,
        vocabulary: int,
        width: int,
        position: PositionEncoding | None = None,
        join: str = "sum",
        scaled: bool = True,
        dropout: float = 0.0,
        word_dropout: float = 0.0,
        norm: nn.Module | None = None,
    ) -> None:
        """Create the embedding.

        Args:
            vocabulary: Number of tokens.
            width: Size of the token's vector, without the position's.
            position: The position encoding, if any.
            join: How the position is joined: "sum" or "concatenation".
            scaled: Whether to multiply token vectors by √width (§3.4).
            dropout: Probability with which a value of the joined vector is dropped.
            word_dropout: Probability with which a token's whole vector is dropped (Gal & Ghahramani 2016).
            norm: A norm of the joined vector, as in BART (Lewis et al. 2020).
        """
        super().__init__()
        if join not in ("sum", "concatenation"):
            raise ValueError(f"positions cannot be joined by '{join}'; choose sum or concatenation")
        self.weight = nn.Parameter(torch.empty(vocabulary, width))
        # With the scale √d, token vectors enter the residual stream with unit variance, like the positions.
        nn.init.normal_(self.weight, std=width**-0.5)
        self.position, self.join = position, join
        self.scale = math.sqrt(width) if scaled else 1.0
        self.drop, self.word_dropout = Dropout(dropout), word_dropout
        self.norm = nn.Identity() if norm is None else norm
        self.token, self.place, self.joined = Tap(), Tap(), Tap()

    @property
    def max_positions(self) -> int | None:
        """The longest sequence that can be embedded; None if there is no limit."""
        return None if self.position is None else self.position.limit

    def forward(self, tokens: Ragged) -> Float[Tensor, "N D"]:
        """Embed a ragged batch of token ids."""
        self.check(tokens.values, tokens.longest)
        if self.position is None:
            return self._embed(tokens.values, None)
        # Sequences share positions, so each position's vector is computed once and then gathered.
        position_T = torch.arange(tokens.longest, device=tokens.values.device)
        table_TD = self.position(position_T, self.weight)
        return self._embed(tokens.values, table_TD.index_select(0, tokens.position_N))

    def embed(self, ids_N: Int[Tensor, " N"], position_N: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
        """Embed ids at the given positions, without checking them."""
        return self._embed(ids_N, None if self.position is None else self.position(position_N, self.weight))

    def _embed(self, ids_N: Int[Tensor, " N"], place_ND: Float[Tensor, "N D2"] | None) -> Float[Tensor, "N D"]:
        """Join the vectors of ids with the vectors of their positions."""
        token_ND = nn.functional.embedding(ids_N, self.weight) * self.scale
        if self.training and self.word_dropout:
            device = ids_N.device
            kept_N = torch.rand(ids_N.shape, device=device, generator=thread_generator(device)) >= self.word_dropout
            token_ND = token_ND * kept_N[:, None] / (1 - self.word_dropout)
        token_ND = self.token(token_ND)
        if place_ND is not None:
            place_ND = self.place(place_ND)
            token_ND = token_ND + place_ND if self.join == "sum" else torch.cat([token_ND, place_ND], -1)
        joined_ND: Tensor = self.drop(self.norm(self.joined(token_ND)))
        if joined_ND.is_cuda and torch.is_autocast_enabled("cuda"):
            # Layers on CUDA wait for memory, so the residual stream has the half precision of their products.
            return joined_ND.to(torch.get_autocast_dtype("cuda"))
        return joined_ND

    def check(self, ids: Int[Tensor, "..."], longest: int) -> None:
        """Check ids against the vocabulary and lengths against the positions before any kernel runs.

        Ids on another device than the CPU are not checked, because reading them would wait for the device.

        Raises:
            ValueError: If a sequence is longer than the positions, or an id is not in the vocabulary.
        """
        position = self.position
        if position is not None and position.limit is not None and longest > position.limit:
            raise ValueError(
                f"a sequence of {longest} tokens is longer than the {position.limit} learned positions; "
                "shorten it, or train with sinusoidal positions, which have no limit"
            )
        if ids.device.type == "cpu" and ids.numel() and not torch.compiler.is_compiling():
            smallest, largest = (int(bound) for bound in ids.aminmax())
            if smallest < 0 or largest >= self.weight.shape[0]:
                invalid = smallest if smallest < 0 else largest
                raise ValueError(
                    f"token id {invalid} is outside the vocabulary of {self.weight.shape[0]} tokens; "
                    "encode the text with this model's own tokenizer"
                )


class OutputProjection(nn.Module):
    """Logits over the vocabulary for each token, with weights of their own or an embedding's (Press & Wolf 2017)."""

    def __init__(self, width: int, vocabulary: int, tied: nn.Parameter | None = None, bias: bool = False) -> None:
        """Create the projection; `tied` is the weight of an embedding to share."""
        super().__init__()
        if tied is not None and tied.shape != (vocabulary, width):
            raise ValueError(
                f"the output projection has shape {(vocabulary, width)} and cannot share an embedding of shape "
                f"{tuple(tied.shape)}; untie them"
            )
        self.weight = nn.Parameter(torch.empty(vocabulary, width)) if tied is None else tied
        if tied is None:
            nn.init.normal_(self.weight, std=width**-0.5)
        self.bias = nn.Parameter(torch.zeros(vocabulary)) if bias else None
        self.logits = Tap()

    def forward(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """Return the logits of every token."""
        logits_NV: Tensor = self.logits(nn.functional.linear(x_ND, self.weight, self.bias))
        return logits_NV

    def flops(self, counts: TokenCounts) -> int:
        """Return the operations of a forward pass."""
        return 2 * self.weight.numel() * counts.tokens
