"""The history of a search as layers of back-pointers, so that no step copies what came before it.

Each step adds one layer: for each row the row of the layer before that it goes on from, its token, and the token's
log-probability. Sentences that leave or join add a layer without tokens that only renumbers the rows.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

ROOT = -1
"""The parent of a row that begins."""
SILENT = -1
"""The token of a layer that only renumbers."""

Fetched = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]


class Trellis:
    """Layers, the oldest first; those no living row goes back to can be dropped."""

    def __init__(self, rows: int, device: torch.device | str) -> None:
        """So many rows that have only begun."""
        self._dropped = 0
        self._fetched: list[Fetched] = []
        self._layers: list[tuple[Tensor, Tensor, Tensor]] = []
        self.renumber(torch.full((rows,), ROOT, device=device))

    def __len__(self) -> int:
        """How many layers are kept."""
        return len(self._fetched) + len(self._layers)

    @property
    def last(self) -> int:
        """Number of the newest layer."""
        return self._dropped + len(self) - 1

    def push(self, parent_R: Int[Tensor, " R"], token_R: Int[Tensor, " R"], logprob_R: Float[Tensor, " R"]) -> None:
        """One more token in each row, which goes on from that row of the newest layer."""
        self._layers.append((parent_R, token_R, logprob_R))

    def renumber(self, parent_R: Int[Tensor, " R"]) -> None:
        """Go on with these rows of the newest layer; `ROOT` is a row that begins."""
        self.push(parent_R, torch.full_like(parent_R, SILENT), torch.zeros_like(parent_R, dtype=torch.float64))

    def drop(self, layer: int) -> None:
        """Forget every layer before this one, as far as they were ever traced."""
        gone = min(layer - self._dropped, len(self._fetched))
        if gone > 0:
            del self._fetched[:gone]
            self._dropped += gone

    def trace(self, layer: int, row: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """The tokens that led to a row of a layer, and their log-probabilities."""
        self._fetch()
        tokens, logprobs = [], []
        for parent, token, logprob in reversed(self._fetched[: layer - self._dropped + 1]):
            if token[row] != SILENT:
                tokens.append(int(token[row]))
                logprobs.append(float(logprob[row]))
            row = int(parent[row])
            if row == ROOT:
                break
        return tuple(reversed(tokens)), tuple(reversed(logprobs))

    def _fetch(self) -> None:
        """Bring new layers to the host, all at once: a device is waited for once, not once a layer."""
        if not self._layers:
            return
        ends = np.cumsum([layer[0].shape[0] for layer in self._layers])[:-1]
        parents, tokens, logprobs = (
            np.split(torch.cat(part).cpu().numpy(), ends) for part in zip(*self._layers, strict=True)
        )
        self._fetched.extend(zip(parents, tokens, logprobs, strict=True))
        self._layers.clear()
