"""One layer of a stack: sub-layers, each in a residual connection with its norm (Vaswani et al. 2017, §3.1)."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.attention.kept import Kept
from regard.nn.attention.multihead import CrossAttention, SelfAttention
from regard.nn.attention.plan import Plan
from regard.nn.attention.sight import Sight
from regard.nn.cuda import add_norm
from regard.nn.dropout import Dropout
from regard.nn.feedforward import FeedForward
from regard.nn.norm import make_norm
from regard.nn.tap import Tap

Part = SelfAttention | CrossAttention | FeedForward


class Residual(nn.Module):
    """x + dropout(f(x)) with its norm.

    After it, LayerNorm(x + f(x)) (§3.1), or before it, x + f(LayerNorm(x)) (Xiong et al. 2020).
    """

    def __init__(self, norm: nn.Module, norm_first: bool, dropout: float) -> None:
        """Around one sub-layer."""
        super().__init__()
        self.norm, self.norm_first = norm, norm_first
        self.drop, self.stream = Dropout(dropout), Tap()

    def enter(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """What the sub-layer is given."""
        entered: Tensor = self.norm(x_ND) if self.norm_first else x_ND
        return entered

    def leave(self, x_ND: Float[Tensor, "N D"], y_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """The stream behind the sub-layer, which made `y_ND` of it."""
        x_ND = x_ND + self.drop(y_ND)
        left: Tensor = self.stream(x_ND if self.norm_first else self.norm(x_ND))
        return left

    def onward(
        self, x_ND: Float[Tensor, "N D"], part: Part, given: tuple[Any, ...], following: nn.Module
    ) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N D"]]:
        """The stream behind the sub-layer `part` of what it is `given`, and what the next one is, whose norm follows.

        With norm-last layers the two are one.
        """
        norm = following if self.norm_first else self.norm
        if self.stream.watched or not add_norm.serves(x_ND, norm):
            x_ND = self.leave(x_ND, part(*given))
            return x_ND, following(x_ND) if self.norm_first else x_ND
        bias_D = part.last_bias
        y_ND = part(*given, bare=bias_D is not None)
        x_ND, entered_ND = add_norm.add_norm(x_ND, y_ND, bias_D, norm, self.drop.p if self.training else 0.0)
        return x_ND if self.norm_first else entered_ND, entered_ND


@dataclass(frozen=True, eq=False)
class Seen:
    """What the rows of a search keep of one layer: their own keys and values, and those of the memory."""

    own: Kept
    memory: Kept | None


class Block(nn.Module):
    """Self-attention, attention to a memory where there is one, and a feed-forward layer."""

    def __init__(
        self,
        own: SelfAttention,
        cross: CrossAttention | None,
        feedforward: FeedForward,
        width: int,
        norm: str = "layer",
        norm_first: bool = True,
        dropout: float = 0.0,
    ) -> None:
        """Put built parts together; `dropout` falls on what each sub-layer adds to the stream (§5.4)."""
        super().__init__()
        self.self, self.cross, self.feedforward = own, cross, feedforward
        self.around_self = Residual(make_norm(norm, width), norm_first, dropout)
        self.around_cross = None if cross is None else Residual(make_norm(norm, width), norm_first, dropout)
        self.around_feedforward = Residual(make_norm(norm, width), norm_first, dropout)

    def forward(
        self,
        x_ND: Float[Tensor, "N D"],
        entered_ND: Float[Tensor, "N D"],
        plan: Plan,
        memory: tuple[Float[Tensor, "N2 D"], Plan] | None,
        following: nn.Module,
    ) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N D"]]:
        """Pass a ragged batch through the layer: the stream, and what enters the first sub-layer of it.

        Out come the stream and what enters the next layer, whose first norm is `following`.
        """
        after_self = self.around_cross or self.around_feedforward
        x_ND, entered_ND = self.around_self.onward(x_ND, self.self, (entered_ND, plan), after_self.norm)
        if self.cross is not None and self.around_cross is not None:
            assert memory is not None, "a layer with cross-attention looks at a memory"
            given = (entered_ND, *memory)
            x_ND, entered_ND = self.around_cross.onward(x_ND, self.cross, given, self.around_feedforward.norm)
        return self.around_feedforward.onward(x_ND, self.feedforward, (entered_ND,), following)

    def step(
        self, x_RD: Float[Tensor, "R D"], position: int, seen: Seen, sight: Sight
    ) -> tuple[Float[Tensor, "R D"], Seen]:
        """Pass one new token a row through the layer."""
        y_RD, own = self.self.step(self.around_self.enter(x_RD), position, seen.own, sight)
        x_RD = self.around_self.leave(x_RD, y_RD)
        if self.cross is not None and self.around_cross is not None:
            assert seen.memory is not None, "a layer with cross-attention looks at a memory"
            x_RD = self.around_cross.leave(x_RD, self.cross.step(self.around_cross.enter(x_RD), seen.memory))
        x_RD = self.around_feedforward.leave(x_RD, self.feedforward(self.around_feedforward.enter(x_RD)))
        return x_RD, Seen(own, seen.memory)
