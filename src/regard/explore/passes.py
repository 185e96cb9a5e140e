"""Run an encoder or a decoder over one sentence, and record every attention weight and every log-probability.

The encoder and the decoder run separately, so that a source is encoded once for any number of targets. The weights are
the model's own, in single precision, whatever engine found the target.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.explore.adapters import Ids, TaskAdapter
from regard.explore.attention import DECODER_PARTS, AttentionLayers, AttentionPart
from regard.explore.changes import HeadMeans, applied
from regard.explore.questions import Change
from regard.models.memory import Memory
from regard.nn.tap import TapRecorder
from regard.predict.teacher_forcing import evaluating

IsStale = Callable[[], bool]
"""Returns True once the answer is no longer wanted."""
WeightTable = NDArray[np.float32]
AttentionWeights = dict[tuple[AttentionPart, int], WeightTable]
"""Weights by part and layer, each of shape (heads, queries, keys)."""

SCORED_ROWS = 256
"""Target tokens scored against the vocabulary at a time, to bound memory."""


class StaleQuestionError(Exception):
    """The answer is no longer wanted."""


@dataclass(frozen=True, eq=False)
class EncoderPass:
    """The encoder's states for a source, and its attention weights; both are empty for a model without encoder."""

    memory: Memory | None
    weights: AttentionWeights


@dataclass(frozen=True, eq=False)
class DecoderPass:
    """What the decoder computes for a given target."""

    logprobs: tuple[float, ...]
    """Log-probability of each label: the target tokens, and the end symbol of a complete target."""
    best: tuple[tuple[tuple[int, float], ...], ...]
    """The most probable tokens at each position with their log-probabilities, the best first."""
    weights: AttentionWeights


def run_encoder(
    adapter: TaskAdapter,
    layers: AttentionLayers,
    ids: Ids,
    changes: Sequence[Change] = (),
    means: HeadMeans | None = None,
    is_stale: IsStale = lambda: False,
) -> EncoderPass:
    """Encode a source, given as ids without the end symbol."""
    changing = applied(layers, changes, ["encoder"], means or {})
    with evaluating(adapter.model), changing, _recording(layers, ["encoder"], is_stale) as weights:
        memory = adapter.encode(ids)
    return EncoderPass(memory, weights)


def run_decoder(
    adapter: TaskAdapter,
    layers: AttentionLayers,
    memory: Memory | None,
    labels: Ids,
    changes: Sequence[Change] = (),
    means: HeadMeans | None = None,
    is_stale: IsStale = lambda: False,
    candidates: int = 8,
) -> DecoderPass:
    """Run the decoder with teacher forcing on a target; the last label of a complete target is the end symbol."""
    changing = applied(layers, changes, DECODER_PARTS, means or {})
    with evaluating(adapter.model), changing, _recording(layers, DECODER_PARTS, is_stale) as weights:
        states_ND = adapter.decoder_states(labels, memory)
    with evaluating(adapter.model):
        labels_N = torch.tensor(labels, device=states_ND.device)
        logprobs, best = _score(adapter, states_ND, labels_N, candidates)
    return DecoderPass(logprobs, best, weights)


def mean_head_outputs(
    adapter: TaskAdapter, layers: AttentionLayers, ids: Ids, labels: Ids, wanted: Iterable[tuple[AttentionPart, int]]
) -> HeadMeans:
    """Return the mean output of each head of some layers over the positions of a sentence, without any change."""
    with evaluating(adapter.model), ExitStack() as stack:
        recorders = {place: TapRecorder() for place in wanted}
        for (part, number), recorder in recorders.items():
            layer = layers[part][number]
            stack.enter_context(layer.tap(layer.mixed).watching(recorder))
        adapter.decoder_states(labels, adapter.encode(ids))
    return {place: recorder.tensors[0].mean(0) for place, recorder in recorders.items()}


@contextmanager
def _recording(
    layers: AttentionLayers, parts: Sequence[AttentionPart], is_stale: IsStale
) -> Iterator[AttentionWeights]:
    """Record the weights of some parts; they are available after the context. Stop between layers when stale."""
    watched = {(part, number): layer for part in parts for number, layer in enumerate(layers.get(part, ()))}
    weights: AttentionWeights = {}

    def stop_if_stale(passing: Tensor) -> Tensor:
        if is_stale():
            raise StaleQuestionError
        return passing

    with ExitStack() as stack:
        recorders = {place: TapRecorder() for place in watched}
        for place, layer in watched.items():
            stack.enter_context(layer.tap("weights").watching(stop_if_stale))
            stack.enter_context(layer.tap("weights").watching(recorders[place]))
        yield weights
        for place, recorder in recorders.items():
            if not recorder.tensors:
                raise ValueError("this model is compiled, so its attention cannot be recorded; open it uncompiled")
            weights[place] = recorder.tensors[0][0].float().cpu().numpy()


def _score(
    adapter: TaskAdapter, states_ND: Tensor, labels_N: Tensor, candidates: int
) -> tuple[tuple[float, ...], tuple[tuple[tuple[int, float], ...], ...]]:
    """Return the log-probability of each label, and the most probable tokens at its position."""
    label_logprobs, best = list[float](), list[tuple[tuple[int, float], ...]]()
    chunks = zip(torch.split(states_ND, SCORED_ROWS), torch.split(labels_N, SCORED_ROWS), strict=True)
    for x_ND, label_N in chunks:
        logits_NV = adapter.logits(x_ND)
        logprobs_NV = logits_NV.log_softmax(-1, torch.promote_types(logits_NV.dtype, torch.float32))
        label_logprobs += logprobs_NV.gather(-1, label_N[:, None])[:, 0].tolist()
        value_NK, token_NK = logprobs_NV.topk(min(candidates, logprobs_NV.shape[-1]))
        pairs = zip(token_NK.tolist(), value_NK.tolist(), strict=True)
        best += [tuple(zip(tokens, values, strict=True)) for tokens, values in pairs]
    return tuple(label_logprobs), tuple(best)
