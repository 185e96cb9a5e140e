"""Attention rollout: attention weights through all layers (Abnar & Zuidema 2020)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def attention_rollout(layers: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return how much each output position of the last layer has of each input position of the first.

    Every layer mixes its inputs by the mean of its heads and half keeps them, because of the residual connection:
    R = Π (A + I) / 2 (Abnar & Zuidema 2020, §3). Rows sum to one, as those of the weights do.

    Args:
        layers: Weights of self-attention, of the shape (..., queries, keys), from the first layer to the last.
    """
    rolled = np.eye(layers[0].shape[-1])
    for weights in layers:
        rolled = (weights + np.eye(weights.shape[-1])) / 2 @ rolled
    return rolled
