"""Heads in numbers: how sure a head is, how widely it looks, and how far."""

from typing import Any

import numpy as np

from regard.analysis.look.reading import Table, Weights


def heads(weights: Weights) -> list[dict[str, Any]]:
    """Confidence, entropy and distance of every head, over the places that tell a token.

    Confidence is the mean of a row's greatest weight (Voita et al. 2019), entropy its mean in nats, distance the mean
    of how many tokens away a query looks. The end symbol as a query is left out: its looks are nobody's.
    """
    found = []
    for (part, layer), table_HQK in weights.items():
        measures = _measured(table_HQK)
        for head, (confidence, entropy, distance) in enumerate(measures.tolist()):
            found.append(
                {
                    "part": part,
                    "layer": layer,
                    "head": head,
                    "confidence": confidence,
                    "entropy": entropy,
                    "distance": distance,
                }
            )
    return found


def _measured(table_HQK: Table) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    """Three numbers a head."""
    rows_HQK = (table_HQK[:, :-1] if table_HQK.shape[1] > 1 else table_HQK).astype(np.float64)
    safe_HQK = np.where(rows_HQK > 0, rows_HQK, 1.0)
    query_Q, key_K = np.arange(rows_HQK.shape[1]), np.arange(rows_HQK.shape[2])
    away_QK = np.abs(query_Q[:, None] - key_K[None])
    confidence_H = rows_HQK.max(-1).mean(-1)
    entropy_H = -(rows_HQK * np.log(safe_HQK)).sum(-1).mean(-1)
    distance_H = (rows_HQK * away_QK).sum(-1).mean(-1)
    return np.stack([confidence_H, entropy_H, distance_H], -1)
