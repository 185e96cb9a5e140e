"""What a forecast attends to: steps of the past, or columns."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from regard.models.forecasting import ForecastingModel, InvertedForecaster, LstmForecaster, PatchForecaster
from regard.nn.tap import recording

Span = tuple[int, int]
"""The first step and the end of a range of steps."""


@dataclass(frozen=True, eq=False)
class PastAttention:
    """Attention weights of a forecast."""

    weights: NDArray[np.float64]
    """Groups of steps of the future, columns that are forecast, keys; the weights of all keys sum to one."""
    futures: tuple[Span, ...]
    """The steps of the horizon of each group, counted from 0."""
    pasts: tuple[Span, ...]
    """The steps of the past of each key, counted from the first that is read; empty if keys are columns."""
    columns: tuple[str, ...] = ()
    """The names of the columns, of which a model without `pasts` has a key each."""

    def over_time(self, lookback: int, future: int, column: int) -> NDArray[np.float64]:
        """Return the weight of each step of the past, for one group and column; patches share theirs among steps."""
        weights = np.zeros(lookback)
        for (first, last), weight in zip(self.pasts, self.weights[future, column], strict=True):
            last = min(last, lookback)
            weights[first:last] += weight / (last - first)
        return weights

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        keys: Any = [list(span) for span in self.pasts] or list(self.columns)
        return {"futures": [list(span) for span in self.futures], "keys": keys, "weights": self.weights.tolist()}


def attention_spans(model: ForecastingModel, lookback: int, horizon: int) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Return the steps of the future and of the past that share a weight.

    Raises:
        ValueError: If the model has no attention.
    """
    family = model.family
    if isinstance(family, PatchForecaster):
        starts = [family.stride * number for number in range(family.patches)]
        # The last patch may begin in the past and end in the copies of the last value.
        return ((0, horizon),), tuple((start, min(start + family.patch, lookback)) for start in starts)
    if isinstance(family, LstmForecaster):
        first = lookback - family.patches * family.patch
        futures = [(family.patch * group, min(family.patch * (group + 1), horizon)) for group in range(family.groups)]
        pasts = [(first + family.patch * patch, first + family.patch * (patch + 1)) for patch in range(family.patches)]
        return tuple(futures), tuple(pasts)
    if isinstance(family, InvertedForecaster):
        return ((0, horizon),), ()
    raise ValueError("a linear model has no attention; train one of kind patch, inverted or lstm")


def forecast_with_attention(
    model: ForecastingModel, past_BTC: Float[Tensor, "B T C"]
) -> tuple[Float[Tensor, "B H C O"], Float[Tensor, "B G C K"]]:
    """Return forecasts and attention weights: groups of future steps, columns, keys.

    Those of a Transformer are of its last layer, the mean of all heads; a patch Transformer makes the forecast of all
    patches, so its weights are also the mean of all queries.
    """
    windows, _, columns = past_BTC.shape
    family = model.family
    if isinstance(family, LstmForecaster):
        with torch.no_grad(), recording(model, "family.weights") as recorded:
            y_BHCO = model(past_BTC)
        (weights_BQP,) = recorded["family.weights"]
        return y_BHCO, weights_BQP.view(windows, family.groups, columns, -1)
    assert isinstance(family, PatchForecaster | InvertedForecaster), "checked by `attention_spans`"
    tap = f"family.encoder.layers.{len(family.encoder.layers) - 1}.self.weights"
    with torch.no_grad(), recording(model, tap) as recorded:
        y_BHCO = model(past_BTC)
    mean_BQK = recorded[tap][0].mean(1)
    if isinstance(family, InvertedForecaster):
        return y_BHCO, mean_BQK[:, None]
    return y_BHCO, mean_BQK.mean(1).view(windows, 1, columns, -1)
