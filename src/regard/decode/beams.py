"""The table of a search: the live hypotheses of each beam, and the best of those that have ended."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad


@dataclass(eq=False)
class Beams:
    """B beams with W rows each: a row is a live hypothesis. In addition, the N best hypotheses that have ended.

    A score or log-probability of minus infinity marks an empty slot.
    """

    token_BW: Tensor
    """Last token of each live hypothesis."""
    total_BW: Tensor
    """Log-probability of each live hypothesis."""
    length_B: Tensor
    """Number of tokens in the live hypotheses of a beam."""
    ended_score_BN: Tensor
    """Scores of ended hypotheses, best first."""
    ended_total_BN: Tensor
    """Log-probabilities of ended hypotheses."""
    ended_logprob_BN: Tensor
    """Log-probabilities of their end symbols."""
    ended_layer_BN: Tensor
    """Layer of the trellis that holds their last token."""
    ended_row_BN: Tensor
    """Row of that layer."""
    ended_count_B: Tensor
    """Number of hypotheses that have ended so far."""
    done_B: Tensor
    """Whether the beam is finished."""
    history_BWT: Tensor
    """Tokens of the live hypotheses, if a rule reads them; else T is 0."""
    coverage_BWS: Tensor
    """Attention that each source token has received, if there is a coverage penalty; else S is 0."""

    @classmethod
    def begin(
        cls, shape: tuple[int, int, int], begin: Sequence[int], independent: bool, device: torch.device | str
    ) -> "Beams":
        """Return beams that have only begun.

        Args:
            shape: Number of beams B, rows of each W, and slots for ended hypotheses N.
            begin: The token that the hypotheses of each beam start from.
            independent: Whether rows do not compete. Rows that compete start as one, or they would all be equal.
            device: Where the tensors are.
        """
        beams, rows, slots = shape
        total_BW = torch.zeros(beams, rows, dtype=torch.float64, device=device)
        if not independent:
            total_BW[:, 1:] = -torch.inf
        empty_BN = torch.full((beams, slots), -torch.inf, dtype=torch.float64, device=device)
        zero_B = torch.zeros(beams, dtype=torch.int64, device=device)
        zero_BN = torch.zeros_like(empty_BN, dtype=torch.int64)
        return cls(
            token_BW=torch.tensor(begin, device=device)[:, None].repeat(1, rows),
            total_BW=total_BW,
            length_B=zero_B,
            ended_score_BN=empty_BN,
            ended_total_BN=empty_BN,
            ended_logprob_BN=empty_BN,
            ended_layer_BN=zero_BN,
            ended_row_BN=zero_BN,
            ended_count_B=zero_B,
            done_B=zero_B.bool(),
            history_BWT=torch.zeros(beams, rows, 0, dtype=torch.int64, device=device),
            coverage_BWS=torch.zeros(beams, rows, 0, dtype=torch.float64, device=device),
        )

    def keep_history(self, length: int) -> None:
        """Keep the tokens of live hypotheses from now on, with room for at least this many; 0 drops them."""
        missing = max(0, length - self.history_BWT.shape[2])
        self.history_BWT = pad(self.history_BWT, (0, missing)) if length else self.history_BWT[:, :, :0]

    def add_coverage(self, weights_RS: Float[Tensor, "R S"]) -> None:
        """Add the attention weights of a step to the coverage of source tokens."""
        weights_BWS = weights_RS.double().view(*self.total_BW.shape, -1)
        width = max(weights_BWS.shape[2], self.coverage_BWS.shape[2])
        weights_BWS, coverage_BWS = (pad(x, (0, width - x.shape[2])) for x in (weights_BWS, self.coverage_BWS))
        self.coverage_BWS = coverage_BWS + weights_BWS

    def select(self, beams_B: Int[Tensor, " B"]) -> "Beams":
        """Return these beams only."""
        return self._map(lambda tensor: tensor.index_select(0, beams_B))

    def extend(
        self, parent_BW: Int[Tensor, "B W"], token_BW: Int[Tensor, "B W"], total_BW: Float[Tensor, "B W"]
    ) -> None:
        """Replace every live hypothesis by its parent, a row of the same beam, and one more token."""
        for name in ("history_BWT", "coverage_BWS"):
            table_BWX = getattr(self, name)
            if table_BWX.shape[2]:
                setattr(self, name, table_BWX.gather(1, parent_BW[:, :, None].expand(-1, -1, table_BWX.shape[2])))
        self.append(token_BW, total_BW)

    def append(self, token_BW: Int[Tensor, "B W"], total_BW: Float[Tensor, "B W"]) -> None:
        """Append a token to every live hypothesis, whose log-probability is then `total_BW`."""
        if self.history_BWT.shape[2]:
            self.history_BWT.scatter_(2, self.length_B[:, None, None].expand(*token_BW.shape, 1), token_BW[:, :, None])
        self.token_BW, self.total_BW = token_BW, total_BW
        # A finished beam that is still in the table grows no longer: its history has no room.
        self.length_B = self.length_B + ~self.done_B

    def add_ended(
        self,
        score_BW: Float[Tensor, "B W"],
        total_BW: Float[Tensor, "B W"],
        logprob_BW: Float[Tensor, "B W"],
        layer_BW: Int[Tensor, "B W"],
        row_BW: Int[Tensor, "B W"],
    ) -> None:
        """Rank newly ended hypotheses among the earlier ones; a score of minus infinity is an empty slot."""
        # Equal scores keep their order, so that more slots, which other sentences may need, change nothing.
        scores, order = torch.cat([self.ended_score_BN, score_BW], 1).sort(dim=1, descending=True, stable=True)
        slots = self.ended_score_BN.shape[1]
        self.ended_score_BN, at_BN = scores[:, :slots], order[:, :slots]
        self.ended_total_BN = torch.cat([self.ended_total_BN, total_BW], 1).gather(1, at_BN)
        self.ended_logprob_BN = torch.cat([self.ended_logprob_BN, logprob_BW], 1).gather(1, at_BN)
        self.ended_layer_BN = torch.cat([self.ended_layer_BN, layer_BW], 1).gather(1, at_BN)
        self.ended_row_BN = torch.cat([self.ended_row_BN, row_BW], 1).gather(1, at_BN)

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Beams":
        return Beams(**{field.name: change(getattr(self, field.name)) for field in fields(self)})


def rows_of(table_B: Tensor, beams: Beams) -> Tensor:
    """Repeat what is known of each beam for each of its rows."""
    return table_B.repeat_interleave(beams.total_BW.shape[1], 0)


def concatenate(tables: Sequence[Beams]) -> Beams:
    """Return the beams of several searches in one table; histories, coverage and slots are padded to the most."""

    def joined(name: str) -> Tensor:
        parts = [getattr(beams, name) for beams in tables]
        if parts[0].ndim == 1:
            return torch.cat(parts)
        widths = {part.shape[-1] for part in parts}
        if len(widths) == 1:
            return torch.cat(parts)
        width, empty = max(widths), -torch.inf if name == "ended_score_BN" else 0.0
        return torch.cat([pad(part, (0, width - part.shape[-1]), value=empty) for part in parts])

    return Beams(**{field.name: joined(field.name) for field in fields(Beams)})
