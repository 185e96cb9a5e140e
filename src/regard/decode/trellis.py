"""The tokens of all hypotheses as layers of back-pointers, so that no step copies earlier tokens.

Each step adds a layer: for each row, the row of the previous layer that it continues, its token and the token's
log-probability. When sentences leave or join, a layer without tokens renumbers the rows.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

ROOT = -1
"""Parent of a row that has only begun."""
NO_TOKEN = -1
"""Token of a layer that only renumbers rows."""

HostLayer = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]


class Trellis:
    """Layers of back-pointers, oldest first. Layers that no live row leads back to can be dropped."""

    def __init__(self, rows: int, device: torch.device | str) -> None:
        """Begin with rows that have no token."""
        self._dropped = 0
        self._on_host: list[HostLayer] = []
        self._on_device: list[tuple[Tensor, Tensor, Tensor]] = []
        self.renumber(torch.full((rows,), ROOT, device=device))

    def __len__(self) -> int:
        """Return the number of layers."""
        return len(self._on_host) + len(self._on_device)

    @property
    def last(self) -> int:
        """Number of the newest layer."""
        return self._dropped + len(self) - 1

    def push(self, parent_R: Int[Tensor, " R"], token_R: Int[Tensor, " R"], logprob_R: Float[Tensor, " R"]) -> None:
        """Add a token to each row; `parent_R` is the row of the newest layer that each row continues."""
        self._on_device.append((parent_R, token_R, logprob_R))

    def renumber(self, parent_R: Int[Tensor, " R"]) -> None:
        """Continue with these rows of the newest layer; `ROOT` is a row that begins."""
        self.push(parent_R, torch.full_like(parent_R, NO_TOKEN), torch.zeros_like(parent_R, dtype=torch.float64))

    def drop(self, layer: int) -> None:
        """Drop the layers before this one, as far as they are on the host."""
        count = min(layer - self._dropped, len(self._on_host))
        if count > 0:
            del self._on_host[:count]
            self._dropped += count

    def trace(self, layer: int, row: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return the tokens that lead to a row of a layer, and their log-probabilities."""
        self._fetch()
        tokens, logprobs = [], []
        for parent, token, logprob in reversed(self._on_host[: layer - self._dropped + 1]):
            if token[row] != NO_TOKEN:
                tokens.append(int(token[row]))
                logprobs.append(float(logprob[row]))
            row = int(parent[row])
            if row == ROOT:
                break
        return tuple(reversed(tokens)), tuple(reversed(logprobs))

    def _fetch(self) -> None:
        """Copy new layers to the host, all at once: the host waits for the device once, not once a layer."""
        if not self._on_device:
            return
        ends = np.cumsum([layer[0].shape[0] for layer in self._on_device])[:-1]
        parents, tokens, logprobs = (
            np.split(torch.cat(part).cpu().numpy(), ends) for part in zip(*self._on_device, strict=True)
        )
        self._on_host.extend(zip(parents, tokens, logprobs, strict=True))
        self._on_device.clear()
