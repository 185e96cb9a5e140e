"""Select the attention weights that a figure shows: a part, a layer, heads, words or subwords, and their labels."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.explore.attention import AttentionLayers, AttentionPart
from regard.explore.model import Inspection
from regard.explore.passes import AttentionWeights
from regard.explore.tokens import DisplayToken, TokenizedText
from regard.plot import subword_labels
from regard.plot.style import ColourScale
from regard.predict import AlignmentHead
from regard.predict.rollout import attention_rollout

Table = NDArray[np.float64]


@dataclass(frozen=True)
class FigureOptions:
    """Options of a figure; every option has a default."""

    target: str | None = None
    """A given output, instead of one found by search."""
    target_ids: tuple[int, ...] | None = None
    """A given output as ids, with or without the end symbol."""
    beam: int | None = None
    """Beam width; that of the run's recipe by default."""
    part: AttentionPart | None = None
    """Which attention; cross-attention by default, or decoder self-attention for a model without it."""
    layer: int | None = None
    """Counted from 0; by default the layer that alignments are read from, or the last."""
    heads: tuple[int, ...] | None = None
    """Counted from 0; all by default. Several heads are combined by `aggregate`."""
    aggregate: Literal["mean", "max", "rollout"] = "mean"
    """Rollout multiplies the layers up to this one, with half of the residual stream in each (Abnar & Zuidema 2020)."""
    words: bool = True
    """Show words: weights are summed over the subwords of a key, and averaged over those of a query."""
    specials: bool = False
    """Show symbols such as the end of the sentence; without them, rows are normalised again."""
    scale: ColourScale = "linear"
    threshold: float = 0.1
    """Smallest weight that is drawn as a line."""
    count: int = 64
    """Number of positions."""
    turns: int | None = None
    """Maximum number of turns of a conversation that a chatbot reads; as in training by default."""
    title: str = ""

    def updated(self, **changes: Any) -> "FigureOptions":
        """Return a copy with some options changed, or raise a `ValueError` for an unknown name."""
        known = [field.name for field in fields(self)]
        for name in changes:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"options are {', '.join(known)}"
                raise ValueError(f"a figure has no option '{name}'; {hint}")
        for name in ("heads", "target_ids"):
            if changes.get(name) is not None:
                changes[name] = tuple(changes[name])
        return replace(self, **changes)


@dataclass(frozen=True, eq=False)
class LabelledWeights:
    """Attention weights with the labels of their rows and columns, and a caption for the colour bar."""

    weights: Table
    """(rows, columns), or (layers, heads, rows, columns) for a grid of heads."""
    rows: list[str]
    columns: list[str]
    caption: str


def choose_part(layers: AttentionLayers, options: FigureOptions, first: int = 0) -> AttentionPart:
    """Return the part that a figure shows.

    Raises:
        ValueError: If the model lacks this part, layer or head. The message counts layers and heads from `first`.
    """
    part: AttentionPart = options.part or ("decoder" if "cross" not in layers and "decoder" in layers else "cross")
    if part not in layers:
        has = f"it has: {', '.join(layers)}" if layers else "it passes one vector from the encoder to the decoder"
        raise ValueError(f"this model has no '{part}' attention to draw; {has}")
    mechanisms = layers[part]
    if options.layer is not None and not 0 <= options.layer < len(mechanisms):
        raise ValueError(
            f"there is no layer {options.layer + first} in '{part}' attention; "
            f"layers are {first} to {len(mechanisms) - 1 + first}"
        )
    heads = min(layer.heads for layer in mechanisms)
    if options.heads is not None and not options.heads:
        raise ValueError("the list of heads is empty; name some heads, or leave the option out for all")
    for head in options.heads or ():
        if not 0 <= head < heads:
            raise ValueError(
                f"there is no head {head + first} in '{part}' attention; heads are {first} to {heads - 1 + first}"
            )
    return part


def select_weights(
    inspection: Inspection,
    part: AttentionPart,
    options: FigureOptions,
    alignment: AlignmentHead | None,
    taps: Sequence[str],
) -> LabelledWeights:
    """Return one table of weights.

    Args:
        inspection: All weights of a sentence.
        part: The attention that is shown.
        options: Which layer and heads, and how to combine and label them.
        alignment: The head that word alignments are read from, which is the default.
        taps: The taps on the weights of the part, layer by layer.
    """
    layer, chosen, shifted = _choose_layer(part, options, alignment, taps)
    count = len(inspection.weights[part, layer])
    heads = tuple(range(count)) if chosen is None else chosen
    table = _aggregate(inspection.weights, part, options, layer, heads)
    # Alignments may be read one step later, where the token is the decoder's input; the end symbol has no such step.
    weights, rows, columns = _label(table[1:] if shifted else table, part, options, inspection)
    caption = _caption(part, options, layer, heads, count)
    return LabelledWeights(weights, rows, columns, f"attention weight\n({caption})")


def select_heads(
    inspection: Inspection, part: AttentionPart, options: FigureOptions, layers: Sequence[int], heads: Sequence[int]
) -> LabelledWeights:
    """Return a table of weights for each of some layers and heads."""
    tables = [
        [_label(inspection.weights[part, layer][head].astype(np.float64), part, options, inspection) for head in heads]
        for layer in layers
    ]
    weights = np.stack([np.stack([table[0] for table in row]) for row in tables])
    return LabelledWeights(weights, tables[0][0][1], tables[0][0][2], f"attention weight\n({part})")


def _choose_layer(
    part: AttentionPart, options: FigureOptions, alignment: AlignmentHead | None, taps: Sequence[str]
) -> tuple[int, tuple[int, ...] | None, bool]:
    """Return the layer, the heads, and whether a row is read one step later."""
    if options.layer is not None:
        return options.layer, options.heads, False
    if part != "cross" or alignment is None or alignment.tap not in taps or options.aggregate == "rollout":
        return len(taps) - 1, options.heads, False
    layer = taps.index(alignment.tap)
    if options.heads is not None:
        return layer, options.heads, False
    return layer, None if alignment.head is None else (alignment.head,), alignment.shifted


def _caption(part: AttentionPart, options: FigureOptions, layer: int, heads: Sequence[int], count: int) -> str:
    """Name what is shown; layers and heads are counted from 1."""
    if options.aggregate == "rollout":
        return f"{part}, rollout up to layer {layer + 1}"
    if count == 1:
        return f"{part}, layer {layer + 1}"
    chosen = f"head {heads[0] + 1}" if len(heads) == 1 else f"{options.aggregate} of {len(heads)} heads"
    return f"{part}, layer {layer + 1}, {chosen}"


def _aggregate(
    weights: AttentionWeights, part: AttentionPart, options: FigureOptions, layer: int, heads: Sequence[int]
) -> Table:
    """Combine several heads into one table."""

    def mean(part: AttentionPart, layer: int) -> Table:
        return np.asarray(weights[part, layer].mean(0), dtype=np.float64)

    def rollout(part: AttentionPart, last: int) -> Table:
        return attention_rollout([mean(part, layer) for layer in range(last + 1)])

    match options.aggregate:
        case "mean":
            return np.asarray(weights[part, layer][list(heads)].mean(0), dtype=np.float64)
        case "max":
            return np.asarray(weights[part, layer][list(heads)].max(0), dtype=np.float64)
        case "rollout" if part == "cross":
            below = [layer for name, layer in weights if name == "encoder"]
            return mean("cross", layer) @ rollout("encoder", max(below)) if below else mean("cross", layer)
        case "rollout":
            return rollout(part, layer)
    raise ValueError(f"heads are combined by mean, max or rollout, not by '{options.aggregate}'")


def _label(
    table: Table, part: AttentionPart, options: FigureOptions, inspection: Inspection
) -> tuple[Table, list[str], list[str]]:
    """Group a table by words or subwords, with or without symbols; return it with its row and column labels."""
    query_text = inspection.source if part == "encoder" else inspection.target
    key_text = inspection.target if part == "decoder" else inspection.source
    keys = list(key_text.tokens)
    if part == "decoder":
        keys = [DisplayToken("<s>", "", keys[-1].id, None, True, (0, 0)), *keys[:-1]]
    row_groups = _group(list(query_text.tokens[: len(table)]), query_text, options)
    column_groups = _group(keys, key_text, options)
    if not row_groups or not column_groups:
        raise ValueError("there is nothing to draw but symbols; show them with specials=True, or give a longer text")
    by_row = np.stack([table[members].mean(0) for _, members in row_groups])
    grouped = np.stack([by_row[:, members].sum(1) for _, members in column_groups], 1)
    if not options.specials:
        grouped = grouped / np.maximum(grouped.sum(1, keepdims=True), 1e-12)
    return grouped, [label for label, _ in row_groups], [label for label, _ in column_groups]


def _group(tokens: list[DisplayToken], text: TokenizedText, options: FigureOptions) -> list[tuple[str, list[int]]]:
    """Return the label and the token indices of each row or column: the tokens of a word, or each token alone."""
    labels = subword_labels([token.piece for token in tokens])
    groups: list[tuple[str, list[int]]] = []
    previous: int | None = None
    for index, token in enumerate(tokens):
        if token.special and not options.specials:
            previous = None
            continue
        if options.words and token.word is not None and token.word == previous:
            groups[-1][1].append(index)
        else:
            is_word = options.words and token.word is not None
            groups.append((text.words[token.word] if is_word and token.word is not None else labels[index], [index]))
        previous = token.word
    return groups
