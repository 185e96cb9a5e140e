"""From token ids to vectors, and from vectors back to scores over the vocabulary (Vaswani et al. 2017, §3.4)."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.dropout import Dropout, dice
from regard.nn.position import Position
from regard.nn.ragged import Ragged
from regard.nn.tap import Tap


class Embedding(nn.Module):
    """A vector for each token, and where it stands: by sum (§3.5), or by concatenation, the position set beside it."""

    def __init__(
        self,
        vocabulary: int,
        width: int,
        position: Position | None = None,
        join: str = "sum",
        scaled: bool = True,
        dropout: float = 0.0,
        word_dropout: float = 0.0,
        norm: nn.Module | None = None,
    ) -> None:
        """`width` is that of the token's vector alone; `scaled` multiplies it by √width (§3.4).

        `dropout` falls on single numbers of the joined vector, `word_dropout` on whole tokens' vectors (Gal &
        Ghahramani 2016). A `norm` of the joined vector is BART's (Lewis et al. 2020).
        """
        super().__init__()
        if join not in ("sum", "concatenation"):
            raise ValueError(f"positions join by sum or concatenation, not by '{join}'")
        self.weight = nn.Parameter(torch.empty(vocabulary, width))
        # With the scale √d the vectors enter the residual stream with unit variance, like the positions.
        nn.init.normal_(self.weight, std=width**-0.5)
        self.position, self.join = position, join
        self.scale = math.sqrt(width) if scaled else 1.0
        self.drop, self.word_dropout = Dropout(dropout), word_dropout
        self.norm = nn.Identity() if norm is None else norm
        self.token, self.place, self.joined = Tap(), Tap(), Tap()

    def forward(self, tokens: Ragged) -> Float[Tensor, "N D"]:
        """Embed a ragged batch of ids."""
        self.check(tokens.values, tokens.longest)
        if self.position is None:
            return self._embed(tokens.values, None)
        # The same positions come in every sequence: their vectors are computed once.
        each = torch.arange(tokens.longest, device=tokens.values.device)
        table_TD = self.position(each, self.weight)
        return self._embed(tokens.values, table_TD.index_select(0, tokens.position_N))

    def embed(self, ids_N: Int[Tensor, " N"], position_N: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
        """The joined vector of each id at its position; the ids have been checked."""
        return self._embed(ids_N, None if self.position is None else self.position(position_N, self.weight))

    def _embed(self, ids_N: Int[Tensor, " N"], place_ND: Float[Tensor, "N D2"] | None) -> Float[Tensor, "N D"]:
        """The joined vector of each id and the place it stands at."""
        token_ND = nn.functional.embedding(ids_N, self.weight) * self.scale
        if self.training and self.word_dropout:
            where = ids_N.device
            kept_N = torch.rand(ids_N.shape, device=where, generator=dice(where)) >= self.word_dropout
            token_ND = token_ND * kept_N[:, None] / (1 - self.word_dropout)
        token_ND = self.token(token_ND)
        if place_ND is not None:
            place_ND = self.place(place_ND)
            token_ND = token_ND + place_ND if self.join == "sum" else torch.cat([token_ND, place_ND], -1)
        joined_ND: Tensor = self.drop(self.norm(self.joined(token_ND)))
        return joined_ND.to(stream_dtype(joined_ND))

    def check(self, ids: Int[Tensor, "..."], longest: int) -> None:
        """Refuse ids the vocabulary has not and positions the table has not, before any kernel runs.

        Ids on another device are not read, because that would wait for it.
        """
        limit = None if self.position is None else self.position.limit
        if limit is not None and longest > limit:
            raise ValueError(
                f"a sequence of {longest} tokens is longer than the {limit} learned positions; "
                "cut it, or take sinusoidal positions, which have no end"
            )
        if ids.device.type == "cpu" and ids.numel() and not torch.compiler.is_compiling():
            least, most = (int(each) for each in ids.aminmax())
            if least < 0 or most >= self.weight.shape[0]:
                wrong = least if least < 0 else most
                raise ValueError(
                    f"token id {wrong} is outside the vocabulary of {self.weight.shape[0]}; "
                    "was the text cut by this model's own tokenizer?"
                )


def stream_dtype(x_ND: Float[Tensor, "N D"]) -> torch.dtype:
    """The precision of the residual stream: on CUDA that of the products, since memory is waited for there."""
    if x_ND.is_cuda and torch.is_autocast_enabled("cuda"):
        return torch.get_autocast_dtype("cuda")
    return x_ND.dtype


class Output(nn.Module):
    """Scores over the vocabulary for each token; tied to an embedding, it has the same weight (Press & Wolf 2017)."""

    def __init__(self, width: int, vocabulary: int, tied: nn.Parameter | None = None, bias: bool = False) -> None:
        """A matrix of its own, or the one of an embedding."""
        super().__init__()
        if tied is not None and tied.shape != (vocabulary, width):
            raise ValueError(
                f"the output is {vocabulary} × {width} and cannot share an embedding of {tuple(tied.shape)}; untie them"
            )
        self.weight = nn.Parameter(torch.empty(vocabulary, width)) if tied is None else tied
        if tied is None:
            nn.init.normal_(self.weight, std=width**-0.5)
        self.bias = nn.Parameter(torch.zeros(vocabulary)) if bias else None
        self.logits = Tap()

    def forward(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """Score every token of the vocabulary."""
        logits_NV: Tensor = self.logits(nn.functional.linear(x_ND, self.weight, self.bias))
        return logits_NV
