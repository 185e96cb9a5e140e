"""Phrases that must appear: beams are shared out among hypotheses that have met more or less of them.

Dynamic beam allocation (Post & Vilar 2018): hypotheses that have met equally many tokens of their phrases compete only
with each other, and each such bank has its share of the beam, the fullest bank first. Beside the most probable
candidates of all, every row offers its most probable token and each token that would go on with a phrase. Without
phrases, this is plain beam search.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.choose import Candidates, best
from regard.decode.forbid import NEVER, rows_of
from regard.decode.live import Live
from regard.decode.options import Wish
from regard.decode.topk import greatest


class Constrained:
    """Candidates of which every bank has its share."""

    independent = False

    def __init__(self, wishes: Sequence[Wish], end: int, device: torch.device | str) -> None:
        """The phrases of each beam."""
        longest = max(len(phrase) for wish in wishes for phrase in wish.phrases)
        most = max(len(wish.phrases) for wish in wishes)
        filled = [
            [list(phrase) + [NEVER] * (longest - len(phrase)) for phrase in wish.phrases]
            + [[NEVER] * longest] * (most - len(wish.phrases))
            for wish in wishes
        ]
        self.phrases_BKT = torch.tensor(filled, device=device)
        self.end = end

    def __call__(self, logprobs_RV: Float[Tensor, "R V"], live: Live) -> Candidates:
        """Twice as many candidates as rows, from bank to bank in turn; no end while a phrase is missing."""
        rows = live.total_BW.shape[1]
        phrases_RKT = rows_of(self.phrases_BKT, live)
        met_RK, begun_RK = progress(live.history_BWT.flatten(0, 1), rows_of(live.length_B, live), phrases_RKT)
        logprobs_RV[:, self.end].masked_fill_(~met_RK.all(1), -torch.inf)
        wanted_RK = phrases_RKT.gather(2, begun_RK[:, :, None])[:, :, 0].masked_fill(met_RK, NEVER)
        offered_RK = torch.cat([greatest(logprobs_RV)[1][:, None], wanted_RK], 1)
        found = _together(best(logprobs_RV, live.total_BW, 2 * rows), offered_RK, logprobs_RV, live)
        bank_BK = self._banks(found, live)
        return found.at(_in_turn(found.total_BK, bank_BK)[:, : 2 * rows])

    def _banks(self, found: Candidates, live: Live) -> Int[Tensor, "B K"]:
        """How many tokens of their phrases candidates would have met, a phrase under way counted."""
        beams, count = found.token_BK.shape
        width = live.history_BWT.shape[2]
        history = live.history_BWT.gather(1, found.parent_BK[:, :, None].expand(-1, -1, width))
        place = live.length_B[:, None, None].expand(-1, count, 1)
        history = history.scatter(2, place.clamp(max=width - 1), found.token_BK[:, :, None])
        phrases_RKT = self.phrases_BKT.repeat_interleave(count, 0)
        length_R = (live.length_B + 1).repeat_interleave(count)
        met_RK, begun_RK = progress(history.flatten(0, 1), length_R, phrases_RKT)
        size_RK = (phrases_RKT != NEVER).sum(2)
        return ((met_RK * size_RK).sum(1) + begun_RK.amax(1)).view(beams, count)


def progress(
    history_RT: Int[Tensor, "R T"], length_R: Int[Tensor, " R"], phrases_RKT: Int[Tensor, "R K T2"]
) -> tuple[Bool[Tensor, "R K"], Int[Tensor, "R K"]]:
    """Which phrases stand in each row, and of the others how many first tokens its last tokens are.

    A place without a phrase counts as met.
    """
    size_RK = (phrases_RKT != NEVER).sum(2)
    places = torch.arange(history_RT.shape[1], device=history_RT.device)
    left_RT = (length_R[:, None] - places).clamp(min=0)
    matched = torch.zeros(*size_RK.shape, history_RT.shape[1], dtype=torch.int64, device=history_RT.device)
    alive = torch.ones_like(matched, dtype=torch.bool)
    for j in range(phrases_RKT.shape[2]):
        token_RT = history_RT.roll(-j, 1)[:, None]
        alive = alive & (token_RT == phrases_RKT[:, :, j : j + 1]) & (left_RT > j)[:, None]
        matched += alive
    # From each place on, so many tokens are the phrase's first; if they reach the row's end, it is under way there.
    met_RK = (matched >= size_RK[:, :, None]).any(2)
    under_way = (matched == left_RT[:, None]) & (matched > 0)
    begun_RK = (matched * under_way).amax(2).masked_fill(met_RK, 0)
    return met_RK, begun_RK


def _together(found: Candidates, offered_RK: Int[Tensor, "R K"], logprobs_RV: Tensor, live: Live) -> Candidates:
    """Candidates and, behind them, the tokens rows offer beside, each pair of row and token only once."""
    beams, rows = live.total_BW.shape
    size = logprobs_RV.shape[1]
    row_BWK = torch.arange(rows, device=offered_RK.device)[:, None].expand(beams, rows, offered_RK.shape[1])
    token_BK, parent_BK = offered_RK.view(beams, -1), row_BWK.reshape(beams, -1)
    logprob_BK = logprobs_RV.gather(1, offered_RK.clamp(min=0)).view(beams, -1).double()
    total_BK = live.total_BW.gather(1, parent_BK) + logprob_BK
    more = Candidates(parent_BK, token_BK.clamp(min=0), logprob_BK, total_BK.masked_fill(token_BK == NEVER, -torch.inf))
    every = found.and_also(more)
    pair_BK = every.parent_BK * size + every.token_BK
    # Minus infinity first makes a token that is not offered no twin of one that is.
    real_BK = every.total_BK > -torch.inf
    twin_BKK = (pair_BK[:, :, None] == pair_BK[:, None]) & real_BK[:, None]
    twice_BK = twin_BKK.tril(-1).any(2)
    return Candidates(
        every.parent_BK, every.token_BK, every.logprob_BK, every.total_BK.masked_fill(twice_BK, -torch.inf)
    )


def _in_turn(total_BK: Float[Tensor, "B K"], bank_BK: Int[Tensor, "B K"]) -> Int[Tensor, "B K"]:
    """The order that takes the best of each bank, then the second of each, and so on, fuller banks first."""
    better_BKK = total_BK[:, None] > total_BK[:, :, None]
    first_BKK = (total_BK[:, None] == total_BK[:, :, None]).tril(-1)
    same_BKK = bank_BK[:, None] == bank_BK[:, :, None]
    rank_BK = ((better_BKK | first_BKK) & same_BKK).sum(2)
    fullest = bank_BK.amax() + 1
    key_BK = rank_BK * fullest + (fullest - 1 - bank_BK)
    return key_BK.masked_fill(total_BK == -torch.inf, torch.iinfo(torch.int64).max).sort(dim=1, stable=True).indices
