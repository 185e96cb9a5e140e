"""Reversible instance normalisation of the columns of a window (RevIN, Kim et al. 2022)."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

EPSILON = 1e-5


class WindowStatistics(NamedTuple):
    """The mean and standard deviation of each column of each window."""

    mean_B1C: Float[Tensor, "B 1 C"]
    deviation_B1C: Float[Tensor, "B 1 C"]


class InstanceNorm(nn.Module):
    """Normalise each column of a window by its own mean and standard deviation, and undo it in a forecast.

    x' = (x - mean) / √(variance + ε), with `affine` also times a learned scale and plus a learned shift of each column
    (Kim et al. 2022, eq. 2). The forecast is transformed back (eq. 3).
    """

    def __init__(self, columns: int, affine: bool = False) -> None:
        """Create the normalisation of `columns` columns."""
        super().__init__()
        self.scale_C = nn.Parameter(torch.ones(columns)) if affine else None
        self.shift_C = nn.Parameter(torch.zeros(columns)) if affine else None

    def forward(self, x_BTC: Float[Tensor, "B T C"]) -> tuple[Float[Tensor, "B T C"], WindowStatistics]:
        """Return normalised windows, and their statistics."""
        variance_B1C, mean_B1C = torch.var_mean(x_BTC, 1, correction=0, keepdim=True)
        statistics = WindowStatistics(mean_B1C, (variance_B1C + EPSILON).sqrt())
        x_BTC = (x_BTC - mean_B1C) / statistics.deviation_B1C
        if self.scale_C is not None and self.shift_C is not None:
            x_BTC = x_BTC * self.scale_C + self.shift_C
        return x_BTC, statistics

    def undo(self, y_BHCO: Float[Tensor, "B H C O"], statistics: WindowStatistics) -> Float[Tensor, "B H C O"]:
        """Return forecasts of normalised windows in the units of the windows."""
        if self.scale_C is not None and self.shift_C is not None:
            y_BHCO = (y_BHCO - self.shift_C[:, None]) / (self.scale_C[:, None] + EPSILON**2)
        return y_BHCO * statistics.deviation_B1C[..., None] + statistics.mean_B1C[..., None]
