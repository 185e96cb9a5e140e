"""What if: heads silenced, source tokens hidden, rows of weights rewritten, while a model reads or writes.

A change acts where the tensors pass their taps, so the model computes on from it as it would from its own numbers; the
same change acts on a target that is given and on one that is searched for, step by step.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.analysis.look.parts import PartName, Parts, Place
from regard.analysis.look.questions import Ablate, Block, Change, Keep, Row
from regard.nn.attention.multihead import MultiHeadAttention
from regard.nn.tap import Watcher

Means = Mapping[tuple[PartName, int], Tensor]
"""What the heads of a layer mixed on average over a sentence, (heads, size) or (size)."""

Rewrite = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From weights (B, H, Q, K), who may look where, and the place of each query, to other weights."""


class Standing:
    """Where a search stands; None while a whole target is read."""

    place: int | None = None


def check_changes(changes: Sequence[Change], parts: Parts, source: int) -> None:
    """Refuse changes of what a model has not; `source` counts the tokens of the source, its end among them."""
    for change in changes:
        if isinstance(change, Block):
            if "cross" not in parts:
                raise ValueError("this model's decoder does not look at its source, so nothing can be hidden from it")
            wrong = [token for token in change.tokens if token >= source]
            if wrong:
                raise ValueError(f"there is no source token {wrong[0]}; there are 0 to {source - 1}")
            continue
        heads = [change.head] if isinstance(change, Row) else change.heads
        for head in heads:
            place_of(parts, change.part, change.layer, head)
        if isinstance(change, Row):
            _check_row(change, source)


def place_of(parts: Parts, part: PartName, layer: int, head: int = 0) -> Place:
    """The attention of a part and layer, or a `ValueError` that says what there is."""
    if part not in parts:
        has = ", ".join(parts) or "none at all"
        raise ValueError(f"this model has no attention '{part}'; it has: {has}")
    if layer >= len(parts[part]):
        raise ValueError(f"there is no layer {layer} in '{part}'; there are 0 to {len(parts[part]) - 1}")
    place = parts[part][layer]
    if head >= place.heads:
        raise ValueError(f"there is no head {head} in layer {layer} of '{part}'; there are 0 to {place.heads - 1}")
    return place


@contextmanager
def changed(parts: Parts, changes: Sequence[Change], among: Sequence[PartName], means: Means) -> Iterator[Standing]:
    """Let changes of some parts act on one pass, in their order, until the context ends."""
    standing = Standing()
    with ExitStack() as stack:
        for change in changes:
            if isinstance(change, Block):
                for place in parts.get("cross", ()) if "cross" in among else ():
                    stack.enter_context(_rewriting(place, _blocked(change), standing))
            elif change.part in among:
                place = parts[change.part][change.layer]
                stack.enter_context(_one(place, change, means, standing))
        yield standing


def _one(place: Place, change: Ablate | Keep | Row, means: Means, standing: Standing) -> AbstractContextManager[None]:
    """One change of one attention."""
    match change:
        case Row():
            return _rewriting(place, _told(change), standing)
        case Ablate(how="uniform"):
            return _rewriting(place, _even(change.heads), standing)
        case Ablate(how="mean"):
            return place.tap(place.mixed).watching(_instead(place, change.heads, means[change.part, change.layer]))
        case Ablate():
            return place.tap(place.mixed).watching(_instead(place, change.heads, None))
        case Keep():
            others = [head for head in range(place.heads) if head not in change.heads]
            return place.tap(place.mixed).watching(_instead(place, others, None))


def _instead(place: Place, heads: Sequence[int], mean: Tensor | None) -> Watcher:
    """Let some heads have mixed zero, or what they mix on average."""

    def change(mixed: Tensor) -> Tensor:
        other = torch.zeros_like(mixed) if mean is None else mean.to(mixed).expand_as(mixed)
        if not isinstance(place.module, MultiHeadAttention):
            return other if heads else mixed
        kept = mixed.clone()
        kept[..., list(heads), :] = other[..., list(heads), :]
        return kept

    return change


@contextmanager
def _rewriting(place: Place, rewrite: Rewrite, standing: Standing) -> Iterator[None]:
    """Let weights be rewritten by who knows what may be seen, and from which place each query looks."""
    seen: list[Tensor] = []
    passed = 0

    def note(mask: Tensor) -> Tensor:
        seen[:] = [mask]
        return mask

    def act(weights: Tensor) -> Tensor:
        nonlocal passed
        queries = weights.shape[2]
        if standing.place is None:
            # A whole target passes at once, or where a step needs the one before it, place by place.
            places_Q = torch.arange(passed, passed + queries, device=weights.device)
            passed += queries
        else:
            # The queries of a search are its beams, and all of them stand at one place.
            places_Q = torch.full((queries,), standing.place, device=weights.device)
        return rewrite(weights, seen[0].expand_as(weights), places_Q)

    with place.tap("mask").watching(note), place.tap("weights").watching(act):
        yield


def _even(heads: Sequence[int]) -> Rewrite:
    """Some heads look at all they may see alike."""

    def rewrite(
        weights: Float[Tensor, "B H Q K"], mask: Bool[Tensor, "B H Q K"], places_Q: Int[Tensor, " Q"]
    ) -> Float[Tensor, "B H Q K"]:
        even = mask.to(weights.dtype)
        even = even / even.sum(-1, keepdim=True).clamp(min=1)
        changed = weights.clone()
        changed[:, list(heads)] = even[:, list(heads)]
        return changed

    return rewrite


def _blocked(change: Block) -> Rewrite:
    """Nobody looks at some tokens; the others get what these had, each in proportion."""

    def rewrite(
        weights: Float[Tensor, "B H Q K"], mask: Bool[Tensor, "B H Q K"], places_Q: Int[Tensor, " Q"]
    ) -> Float[Tensor, "B H Q K"]:
        hidden_K = torch.zeros(weights.shape[-1], dtype=torch.bool, device=weights.device)
        hidden_K[change.tokens] = True
        left = weights.masked_fill(hidden_K, 0)
        # Where all weight lay on what is hidden, the rest is looked at alike; where nothing is left, nothing is.
        even = (mask & ~hidden_K).to(weights.dtype)
        left = torch.where(left.sum(-1, keepdim=True) > 0, left, even)
        share = weights.sum(-1, keepdim=True) / left.sum(-1, keepdim=True).clamp(min=torch.finfo(left.dtype).tiny)
        return left * share

    return rewrite


def _told(change: Row) -> Rewrite:
    """One head looks from one place as told, as far as it may look there."""

    def rewrite(
        weights: Float[Tensor, "B H Q K"], mask: Bool[Tensor, "B H Q K"], places_Q: Int[Tensor, " Q"]
    ) -> Float[Tensor, "B H Q K"]:
        keys = weights.shape[-1]
        row_K = weights.new_zeros(keys)
        told = change.weights[:keys]
        row_K[: len(told)] = weights.new_tensor(told)
        changed = weights.clone()
        for query in (places_Q == change.query).nonzero()[:, 0].tolist():
            seen_BK = row_K * mask[:, change.head, query]
            total_B1 = seen_BK.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
            changed[:, change.head, query] = seen_BK / total_B1
        return changed

    return rewrite


def _check_row(change: Row, source: int) -> None:
    """Refuse a row that is not as long as what it looks at, or looks nowhere."""
    count = len(change.weights)
    if change.part != "decoder" and count != source:
        raise ValueError(f"the row has {count} weights, and the source {source} tokens with its end; give one for each")
    if change.part == "encoder" and change.query >= source:
        raise ValueError(f"there is no query {change.query} in the encoder; there are 0 to {source - 1}")
    if change.part == "decoder" and count <= change.query:
        raise ValueError(
            f"query {change.query} of the decoder sees {change.query + 1} keys; {count} weights were given"
        )
    seen = change.weights[: change.query + 1] if change.part == "decoder" else change.weights
    if not sum(seen):
        raise ValueError("all weights of the row are zero; a head looks somewhere")
