"""Change a model's computation for one pass: ablate heads, hide source tokens, replace rows of attention weights.

A change acts on the tensors at their taps, and the model continues with the changed values. The same change acts on a
pass over a given target and on a search, step by step.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.explore.attention import AttentionLayer, AttentionLayers, AttentionPart, find_layer
from regard.explore.questions import AblateHeads, BlockTokens, Change, KeepHeads, SetWeights
from regard.nn.attention.multihead import MultiHeadAttention
from regard.nn.tap import TapHook

HeadMeans = Mapping[tuple[AttentionPart, int], Tensor]
"""Mean output of the heads of a layer over the positions of a sentence, (heads, size) or (size)."""

ReplaceWeights = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Maps weights (B, H, Q, K), their mask and the position of each query to new weights."""


class DecodingPosition:
    """Position of the next token in a search; None while a whole target is processed."""

    position: int | None = None


def check_changes(changes: Sequence[Change], layers: AttentionLayers, source_tokens: int) -> None:
    """Raise a `ValueError` for changes the model cannot undergo; `source_tokens` includes the end symbol."""
    for change in changes:
        if isinstance(change, BlockTokens):
            if "cross" not in layers:
                raise ValueError("this model has no cross-attention, so source tokens cannot be blocked")
            outside = [token for token in change.tokens if token >= source_tokens]
            if outside:
                raise ValueError(f"there is no source token {outside[0]}; tokens are 0 to {source_tokens - 1}")
            continue
        for head in [change.head] if isinstance(change, SetWeights) else change.heads:
            find_layer(layers, change.part, change.layer, head)
        if isinstance(change, SetWeights):
            _check_row(change, source_tokens)


@contextmanager
def applied(
    layers: AttentionLayers, changes: Sequence[Change], parts: Sequence[AttentionPart], means: HeadMeans
) -> Iterator[DecodingPosition]:
    """Apply the changes of some parts, in order, until the context ends."""
    decoding = DecodingPosition()
    with ExitStack() as stack:
        for change in changes:
            if isinstance(change, BlockTokens):
                for layer in layers.get("cross", ()) if "cross" in parts else ():
                    stack.enter_context(_replacing_weights(layer, _block(change), decoding))
            elif change.part in parts:
                layer = layers[change.part][change.layer]
                stack.enter_context(_apply(layer, change, means, decoding))
        yield decoding


def _apply(
    layer: AttentionLayer, change: AblateHeads | KeepHeads | SetWeights, means: HeadMeans, decoding: DecodingPosition
) -> AbstractContextManager[None]:
    """Apply one change to one attention mechanism."""
    match change:
        case SetWeights():
            return _replacing_weights(layer, _set_row(change), decoding)
        case AblateHeads(how="uniform"):
            return _replacing_weights(layer, _uniform(change.heads), decoding)
        case AblateHeads(how="mean"):
            return layer.tap(layer.mixed).watching(
                _replace_output(layer, change.heads, means[change.part, change.layer])
            )
        case AblateHeads():
            return layer.tap(layer.mixed).watching(_replace_output(layer, change.heads, None))
        case KeepHeads():
            others = [head for head in range(layer.heads) if head not in change.heads]
            return layer.tap(layer.mixed).watching(_replace_output(layer, others, None))


def _replace_output(layer: AttentionLayer, heads: Sequence[int], mean: Tensor | None) -> TapHook:
    """Replace the output of some heads by zero, or by their mean output."""

    def replace(mixed: Tensor) -> Tensor:
        replacement = torch.zeros_like(mixed) if mean is None else mean.to(mixed).expand_as(mixed)
        if not isinstance(layer.module, MultiHeadAttention):
            return replacement if heads else mixed
        replaced = mixed.clone()
        replaced[..., list(heads), :] = replacement[..., list(heads), :]
        return replaced

    return replace


@contextmanager
def _replacing_weights(layer: AttentionLayer, replace: ReplaceWeights, decoding: DecodingPosition) -> Iterator[None]:
    """Replace weights by a function that also gets their mask and the position of each query."""
    masks: list[Tensor] = []
    processed = 0

    def remember_mask(mask: Tensor) -> Tensor:
        masks[:] = [mask]
        return mask

    def replace_weights(weights: Tensor) -> Tensor:
        nonlocal processed
        queries = weights.shape[2]
        if decoding.position is None:
            # A whole target passes the tap at once, or position by position in a recurrent decoder.
            positions_Q = torch.arange(processed, processed + queries, device=weights.device)
            processed += queries
        else:
            # The queries of a search step are its beams, all at one position.
            positions_Q = torch.full((queries,), decoding.position, device=weights.device)
        return replace(weights, masks[0].expand_as(weights), positions_Q)

    with layer.tap("mask").watching(remember_mask), layer.tap("weights").watching(replace_weights):
        yield


def _uniform(heads: Sequence[int]) -> ReplaceWeights:
    """Let some heads attend uniformly to all keys that the mask allows."""

    def replace(
        weights: Float[Tensor, "B H Q K"], mask: Bool[Tensor, "B H Q K"], positions_Q: Int[Tensor, " Q"]
    ) -> Float[Tensor, "B H Q K"]:
        uniform = mask.to(weights.dtype)
        uniform = uniform / uniform.sum(-1, keepdim=True).clamp(min=1)
        replaced = weights.clone()
        replaced[:, list(heads)] = uniform[:, list(heads)]
        return replaced

    return replace


def _block(change: BlockTokens) -> ReplaceWeights:
    """Set the weights of some keys to zero, and share them among the others in proportion."""

    def replace(
        weights: Float[Tensor, "B H Q K"], mask: Bool[Tensor, "B H Q K"], positions_Q: Int[Tensor, " Q"]
    ) -> Float[Tensor, "B H Q K"]:
        blocked_K = torch.zeros(weights.shape[-1], dtype=torch.bool, device=weights.device)
        blocked_K[change.tokens] = True
        remaining = weights.masked_fill(blocked_K, 0)
        # If all weight was on blocked keys, attend uniformly to the others. If no key is left, all weights are zero.
        uniform = (mask & ~blocked_K).to(weights.dtype)
        remaining = torch.where(remaining.sum(-1, keepdim=True) > 0, remaining, uniform)
        total = remaining.sum(-1, keepdim=True).clamp(min=torch.finfo(remaining.dtype).tiny)
        return remaining * (weights.sum(-1, keepdim=True) / total)

    return replace


def _set_row(change: SetWeights) -> ReplaceWeights:
    """Replace the weights of one query of one head, masked and normalised."""

    def replace(
        weights: Float[Tensor, "B H Q K"], mask: Bool[Tensor, "B H Q K"], positions_Q: Int[Tensor, " Q"]
    ) -> Float[Tensor, "B H Q K"]:
        keys = weights.shape[-1]
        row_K = weights.new_zeros(keys)
        given = change.weights[:keys]
        row_K[: len(given)] = weights.new_tensor(given)
        replaced = weights.clone()
        for query in (positions_Q == change.query).nonzero()[:, 0].tolist():
            masked_BK = row_K * mask[:, change.head, query]
            total_B1 = masked_BK.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
            replaced[:, change.head, query] = masked_BK / total_B1
        return replaced

    return replace


def _check_row(change: SetWeights, source_tokens: int) -> None:
    """Raise a `ValueError` for a row of the wrong length, or one without any weight."""
    count = len(change.weights)
    if change.part != "decoder" and count != source_tokens:
        raise ValueError(
            f"the row has {count} weights, but the source has {source_tokens} tokens with its end symbol; "
            "give one weight for each"
        )
    if change.part == "encoder" and change.query >= source_tokens:
        raise ValueError(f"there is no query {change.query} in the encoder; queries are 0 to {source_tokens - 1}")
    if change.part == "decoder" and count <= change.query:
        raise ValueError(
            f"query {change.query} of the decoder attends to {change.query + 1} keys, but {count} weights were given"
        )
    visible = change.weights[: change.query + 1] if change.part == "decoder" else change.weights
    if not sum(visible):
        raise ValueError("all weights of the row are zero; give at least one positive weight")
