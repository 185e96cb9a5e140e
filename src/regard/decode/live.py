"""The tables of a search: what is still alive, and the best that has ended, for each of B beams."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad


@dataclass(eq=False)
class Live:
    """One line a beam: W live hypotheses, and the N best of those that ended. Minus infinity marks a free place."""

    token_BW: Tensor
    """The last token of each live hypothesis."""
    total_BW: Tensor
    """Its log-probability."""
    length_B: Tensor
    """Tokens it has."""
    score_BN: Tensor
    """Scores of ended hypotheses, the best first."""
    sum_BN: Tensor
    """Their log-probabilities."""
    last_BN: Tensor
    """Log-probabilities of their end symbols."""
    layer_BN: Tensor
    """The layer of the trellis they ended after."""
    row_BN: Tensor
    """And the row of that layer."""
    ended_B: Tensor
    """How many have ended so far."""
    done_B: Tensor
    """Whether the beam is done."""
    history_BWT: Tensor
    """Tokens of the live hypotheses, where somebody looks back; T is 0 where nobody does."""
    received_BWS: Tensor
    """Attention each source token has received, where somebody counts it; S is 0 where nobody does."""

    @classmethod
    def begin(cls, shape: tuple[int, int, int], begin: int, independent: bool, device: torch.device | str) -> "Live":
        """Beams, rows of each and places for ended ones. Rows that compete begin as one, or they would be copies."""
        beams, rows, places = shape
        total_BW = torch.zeros(beams, rows, dtype=torch.float64, device=device)
        if not independent:
            total_BW[:, 1:] = -torch.inf
        empty_BN = torch.full((beams, places), -torch.inf, dtype=torch.float64, device=device)
        count_B = torch.zeros(beams, dtype=torch.int64, device=device)
        nowhere_BN = torch.zeros_like(empty_BN, dtype=torch.int64)
        return cls(
            token_BW=torch.full((beams, rows), begin, device=device),
            total_BW=total_BW,
            length_B=count_B,
            score_BN=empty_BN,
            sum_BN=empty_BN,
            last_BN=empty_BN,
            layer_BN=nowhere_BN,
            row_BN=nowhere_BN,
            ended_B=count_B,
            done_B=count_B.bool(),
            history_BWT=torch.zeros(beams, rows, 0, dtype=torch.int64, device=device),
            received_BWS=torch.zeros(beams, rows, 0, dtype=torch.float64, device=device),
        )

    def remember(self, places: int) -> None:
        """Keep histories of at least so many tokens from now on."""
        self.history_BWT = pad(self.history_BWT, (0, max(0, places - self.history_BWT.shape[2])))

    def looked(self, weights_RS: Float[Tensor, "R S"]) -> None:
        """Count what attention each row's sources received."""
        weights_BWS = weights_RS.double().view(*self.total_BW.shape, -1)
        width = max(weights_BWS.shape[2], self.received_BWS.shape[2])
        weights_BWS, received_BWS = (pad(each, (0, width - each.shape[2])) for each in (weights_BWS, self.received_BWS))
        self.received_BWS = received_BWS + weights_BWS

    def only(self, beams_B: Int[Tensor, " B"]) -> "Live":
        """These beams."""
        return self._each(lambda tensor: tensor.index_select(0, beams_B))

    def goes_on(
        self, parent_BW: Int[Tensor, "B W"], token_BW: Int[Tensor, "B W"], total_BW: Float[Tensor, "B W"]
    ) -> None:
        """Every live hypothesis becomes the one that goes on from a parent of the same beam with a token."""
        for name in ("history_BWT", "received_BWS"):
            kept = getattr(self, name)
            if kept.shape[2]:
                setattr(self, name, kept.gather(1, parent_BW[:, :, None].expand(-1, -1, kept.shape[2])))
        if self.history_BWT.shape[2]:
            self.history_BWT.scatter_(2, self.length_B[:, None, None].expand(*token_BW.shape, 1), token_BW[:, :, None])
        self.token_BW, self.total_BW = token_BW, total_BW
        # Whoever is done but still there grows no more: its history has no room for it.
        self.length_B = self.length_B + ~self.done_B

    def ends(
        self,
        score_BW: Float[Tensor, "B W"],
        total_BW: Float[Tensor, "B W"],
        last_BW: Float[Tensor, "B W"],
        layer_BW: Int[Tensor, "B W"],
        row_BW: Int[Tensor, "B W"],
    ) -> None:
        """Rank hypotheses that have ended among those that ended before; a score of minus infinity is none."""
        self.score_BN, at_BN = torch.cat([self.score_BN, score_BW], 1).topk(self.score_BN.shape[1])
        self.sum_BN = torch.cat([self.sum_BN, total_BW], 1).gather(1, at_BN)
        self.last_BN = torch.cat([self.last_BN, last_BW], 1).gather(1, at_BN)
        self.layer_BN = torch.cat([self.layer_BN, layer_BW], 1).gather(1, at_BN)
        self.row_BN = torch.cat([self.row_BN, row_BW], 1).gather(1, at_BN)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Live":
        return Live(**{field.name: change(getattr(self, field.name)) for field in fields(self)})


def join(lives: Sequence[Live]) -> Live:
    """The beams of several searches as one; histories and sources are padded to the longest."""

    def joined(name: str) -> Tensor:
        parts = [getattr(live, name) for live in lives]
        width = max(part.shape[-1] for part in parts)
        return torch.cat([pad(part, (0, width - part.shape[-1])) if part.ndim == 3 else part for part in parts])

    return Live(**{field.name: joined(field.name) for field in fields(Live)})
