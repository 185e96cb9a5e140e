"""One pair through a model, watched: every weight of every head, how probable each token is and what else could stand.

Source and decoder are two passes, so that a source is read once however many targets are tried for it. The weights are
the model's own, in single precision, whatever engine found the target.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.analysis.look.changes import Means, changed
from regard.analysis.look.parts import PartName, Parts, parts_of
from regard.analysis.look.questions import Change
from regard.analysis.look.tokens import Side, source_side, target_side
from regard.models.memory import Memory
from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import Ragged
from regard.nn.tap import Recorder
from regard.text import END, START
from regard.translator import Translator
from regard.translator.forced import evaluating

Stale = Callable[[], bool]
"""Whether nobody wants the answer any more."""
Table = NDArray[np.float32]
Weights = dict[tuple[PartName, int], Table]
"""By part and layer, (heads, queries, keys)."""

ROWS = 256
"""Target tokens scored against the vocabulary at once."""
DECODER: tuple[PartName, ...] = ("decoder", "cross")


class StaleError(Exception):
    """Nobody wants the answer any more."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """What the encoder left of a source, and where it looked."""

    memory: Memory
    weights: Weights


@dataclass(frozen=True, eq=False)
class Written:
    """What the decoder made of a given target."""

    logprobs: tuple[float, ...]
    """Of each target token, and at last of the end."""
    best: tuple[tuple[tuple[int, float], ...], ...]
    """The most probable tokens at each place with their log-probabilities, the best first."""
    weights: Weights


@dataclass(frozen=True, eq=False)
class Reading:
    """A pair of lines and all that was seen of it.

    Row i of decoder and cross attention belongs to the place that told target token i, the end symbol as the last; what
    decoder self-attention looks at is the begin symbol and the target tokens before the last.
    """

    source: Side
    target: Side
    written: Written
    weights: Weights


def read_pair(translator: Translator, source: str, target: str | Sequence[int]) -> Reading:
    """A given pair through a translator's model, all parts watched; the target may be a line, or its ids."""
    both, parts = translator.tokenizers, parts_of(translator.model)
    ids = both.target.encode(target) if isinstance(target, str) else [each for each in target if each != END]
    there, here = source_side(source, both.source), target_side(ids, both.target)
    encoded = encode(translator.model, parts, there.ids)
    written = write(translator.model, parts, encoded.memory, here.ids)
    return Reading(there, here, written, encoded.weights | written.weights)


def encode(
    model: Seq2Seq,
    parts: Parts,
    ids: Sequence[int],
    changes: Sequence[Change] = (),
    means: Means | None = None,
    stale: Stale = lambda: False,
) -> Encoded:
    """Read a source, ids without the end."""
    source = Ragged.from_list([[*ids, END]]).to(model.output.weight.device)
    acting = changed(parts, changes, ["encoder"], means or {})
    with evaluating(model), acting, _seen(parts, ["encoder"], stale) as weights:
        memory = model.encode(source)
    return Encoded(memory, weights)


def write(
    model: Seq2Seq,
    parts: Parts,
    memory: Memory,
    ids: Sequence[int],
    changes: Sequence[Change] = (),
    means: Means | None = None,
    stale: Stale = lambda: False,
    candidates: int = 8,
) -> Written:
    """Read a target, ids without begin and end, beside what the encoder left."""
    device = model.output.weight.device
    target = Ragged.from_list([[START, *ids]]).to(device)
    acting = changed(parts, changes, DECODER, means or {})
    with evaluating(model), acting, _seen(parts, DECODER, stale) as weights:
        states_ND = model.decoder(target, memory)
    with evaluating(model):
        logprobs, best = _scored(model, states_ND, torch.tensor([*ids, END], device=device), candidates)
    return Written(logprobs, best, weights)


def mixed_means(
    model: Seq2Seq, parts: Parts, ids: Sequence[int], target: Sequence[int], wanted: Iterable[tuple[PartName, int]]
) -> Means:
    """What some layers' heads mix on average over the places of a pair, as nobody has changed it."""
    source = Ragged.from_list([[*ids, END]]).to(model.output.weight.device)
    begun = Ragged.from_list([[START, *target]]).to(model.output.weight.device)
    with evaluating(model), ExitStack() as stack:
        seen = {each: Recorder() for each in wanted}
        for (part, layer), recorder in seen.items():
            place = parts[part][layer]
            stack.enter_context(place.tap(place.mixed).watching(recorder))
        model.states(source, begun)
    return {each: recorder.passed[0].mean(0) for each, recorder in seen.items()}


@contextmanager
def _seen(parts: Parts, among: Sequence[PartName], stale: Stale) -> Iterator[Weights]:
    """Weights that pass while the context lasts, there when it has ended; whoever is not wanted any more stops here."""
    places = {(part, layer): place for part in among for layer, place in enumerate(parts.get(part, ()))}
    weights: Weights = {}

    def check(passing: Tensor) -> Tensor:
        if stale():
            raise StaleError
        return passing

    with ExitStack() as stack:
        seen = {each: Recorder() for each in places}
        for each, place in places.items():
            stack.enter_context(place.tap("weights").watching(check))
            stack.enter_context(place.tap("weights").watching(seen[each]))
        yield weights
        for each, recorder in seen.items():
            if not recorder.passed:
                raise ValueError("this model is compiled, so it cannot be watched; look at it as it was before")
            weights[each] = recorder.passed[0][0].float().cpu().numpy()


def _scored(
    model: Seq2Seq, states_ND: Tensor, labels_N: Tensor, candidates: int
) -> tuple[tuple[float, ...], tuple[tuple[tuple[int, float], ...], ...]]:
    """The log-probability of each label, and the most probable tokens in its place."""
    told, best = list[float](), list[tuple[tuple[int, float], ...]]()
    for x_ND, label_N in zip(torch.split(states_ND, ROWS), torch.split(labels_N, ROWS), strict=True):
        logits_NV = model.output(x_ND)
        logprobs_NV = logits_NV.log_softmax(-1, torch.promote_types(logits_NV.dtype, torch.float32))
        told += logprobs_NV.gather(-1, label_N[:, None])[:, 0].tolist()
        value_NK, token_NK = logprobs_NV.topk(min(candidates, logprobs_NV.shape[-1]))
        pairs = zip(token_NK.tolist(), value_NK.tolist(), strict=True)
        best += [tuple(zip(tokens, values, strict=True)) for tokens, values in pairs]
    return tuple(told), tuple(best)
