"""Which attention of a pair is shown, and how: of everything that was seen of it, the one table a picture has."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from regard.analysis.look.parts import PartName, Parts
from regard.analysis.look.reading import Reading, Weights
from regard.analysis.look.tokens import Piece, Side
from regard.plot import piece_labels
from regard.plot.style import Scale
from regard.translator import Look

Table = NDArray[np.float64]


@dataclass(frozen=True)
class View:
    """What a picture shows of a translation; all of it has a default."""

    target: str | None = None
    """The translation, where it is given and not searched for."""
    target_ids: tuple[int, ...] | None = None
    """The same as ids, with or without the end symbol."""
    beam: int | None = None
    """Hypotheses of the search; as many as the run's recipe says if not told."""
    part: PartName = "cross"
    layer: int | None = None
    """Counted from 0; if not told, the one that alignments are read from, else the last."""
    heads: tuple[int, ...] | None = None
    """Counted from 0; all if not told. Several are joined by `aggregate`."""
    aggregate: Literal["mean", "max", "rollout"] = "mean"
    """Rollout multiplies the layers up to this one, half of each handed on as it came (Abnar & Zuidema 2020)."""
    words: bool = True
    """Whole words: weights summed over the pieces looked at, the mean of those looking; else pieces."""
    specials: bool = False
    """Show symbols such as the end of the sentence; without them, what is left of each row sums to one again."""
    scale: Scale = "linear"
    threshold: float = 0.1
    """Least weight that is drawn as a line."""
    count: int = 64
    """How many positions."""
    title: str = ""

    def told(self, **changes: Any) -> "View":
        """The same but for some changes, each under its name."""
        known = [each.name for each in fields(self)]
        for name in changes:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                raise ValueError(f"a figure has no option '{name}'; {hint}")
        for name in ("heads", "target_ids"):
            if changes.get(name) is not None:
                changes[name] = tuple(changes[name])
        return replace(self, **changes)


@dataclass(frozen=True, eq=False)
class Shown:
    """A table of weights with the words beside its rows and above its columns, and what it is, in words."""

    weights: Table
    """(rows, columns), or for a sheet of heads (layers, heads, rows, columns)."""
    rows: list[str]
    columns: list[str]
    meaning: str


def check_view(parts: Parts, view: View, family: str, first: int = 0) -> None:
    """Refuse a part, layer or head this model has not; `first` is the number that whoever asks counts from."""
    if view.part not in parts:
        there = f"it has: {', '.join(parts)}" if parts else "its decoder sees one vector of the source and no weights"
        raise ValueError(f"this model ({family}) has no '{view.part}' attention to draw; {there}")
    places = parts[view.part]
    if view.layer is not None and not 0 <= view.layer < len(places):
        raise ValueError(
            f"there is no layer {view.layer + first} in '{view.part}' attention; "
            f"layers are {first} to {len(places) - 1 + first}"
        )
    most = min(place.heads for place in places)
    if view.heads is not None and not view.heads:
        raise ValueError("no head was chosen; name some, or none at all for all of them")
    for head in view.heads or ():
        if not 0 <= head < most:
            raise ValueError(
                f"there is no head {head + first} in '{view.part}' attention; heads are {first} to {most - 1 + first}"
            )


def one(reading: Reading, view: View, look: Look | None, taps: Sequence[str]) -> Shown:
    """One table: of a head, or of several joined; where nothing is chosen, what alignments are read from.

    `taps` are those of the part's layers.
    """
    layer, heads, later = _chosen(view, look, taps)
    tables = reading.weights[view.part, layer].astype(np.float64)
    heads = heads if heads is not None else tuple(range(len(tables)))
    table = _joined(reading.weights, view, layer, heads)
    rows, columns = sides(reading, view.part)
    if later:
        # The step after a token was told had it as input, and that is where this model's alignments are read.
        table, rows = table[1:], rows[:-1]
    weights, row_labels, column_labels = _arranged(table, rows, columns, view, reading)
    which = _named(view, layer, heads, len(tables))
    return Shown(weights, row_labels, column_labels, f"attention weight\n({which})")


def sheet(reading: Reading, view: View, layers: Sequence[int], heads: Sequence[int]) -> Shown:
    """A table for each of some layers and heads."""
    rows, columns = sides(reading, view.part)
    made = [
        [_arranged(reading.weights[view.part, layer][head].astype(np.float64), rows, columns, view, reading)
         for head in heads]
        for layer in layers
    ]  # fmt: skip
    weights = np.stack([np.stack([each[0] for each in row]) for row in made])
    return Shown(weights, made[0][0][1], made[0][0][2], f"attention weight\n({view.part})")


def sides(reading: Reading, part: PartName) -> tuple[list[Piece], list[Piece]]:
    """The tokens that look and those looked at; a decoder looks at the begin symbol and all it has told so far."""
    source, target = list(reading.source.pieces), list(reading.target.pieces)
    match part:
        case "encoder":
            return source, source
        case "decoder":
            begin = Piece("<s>", "", target[-1].id, None, True, (0, 0))
            return target, [begin, *target[:-1]]
        case "cross":
            return target, source


def _chosen(view: View, look: Look | None, taps: Sequence[str]) -> tuple[int, tuple[int, ...] | None, bool]:
    """Layer, heads, and whether a row is read one step later."""
    if view.layer is not None:
        return view.layer, view.heads, False
    if view.part != "cross" or look is None or look.tap not in taps or view.aggregate == "rollout":
        return len(taps) - 1, view.heads, False
    if view.heads is not None:
        return taps.index(look.tap), view.heads, False
    return taps.index(look.tap), None if look.head is None else (look.head,), look.read


def _named(view: View, layer: int, heads: Sequence[int], count: int) -> str:
    """What was chosen, in words that count from 1."""
    if view.aggregate == "rollout":
        return f"{view.part}, rollout up to layer {layer + 1}"
    if count == 1:
        return f"{view.part}, layer {layer + 1}"
    many = f"head {heads[0] + 1}" if len(heads) == 1 else f"{view.aggregate} of {len(heads)} heads"
    return f"{view.part}, layer {layer + 1}, {many}"


def _joined(weights: Weights, view: View, layer: int, heads: Sequence[int]) -> Table:
    """Several heads as one table."""

    def mean(part: PartName, at: int) -> Table:
        return np.asarray(weights[part, at].mean(0), dtype=np.float64)

    def rolled(part: PartName, last: int) -> Table:
        made = np.eye(weights[part, 0].shape[-1])
        for at in range(last + 1):
            made = (mean(part, at) + np.eye(len(made))) / 2 @ made
        return made

    match view.aggregate:
        case "mean":
            return np.asarray(weights[view.part, layer][list(heads)].mean(0), dtype=np.float64)
        case "max":
            return np.asarray(weights[view.part, layer][list(heads)].max(0), dtype=np.float64)
        case "rollout" if view.part == "cross":
            below = [at for part, at in weights if part == "encoder"]
            return mean("cross", layer) @ rolled("encoder", max(below)) if below else mean("cross", layer)
        case "rollout":
            return rolled(view.part, layer)
    raise ValueError(f"several heads are joined by mean, max or rollout, not by '{view.aggregate}'")


def _arranged(
    table: Table, rows: list[Piece], columns: list[Piece], view: View, reading: Reading
) -> tuple[Table, list[str], list[str]]:
    """By word or by piece, with or without symbols; and the labels."""
    row_side = reading.source if view.part == "encoder" else reading.target
    column_side = reading.target if view.part == "decoder" else reading.source
    row_groups = _groups(rows, row_side, view)
    column_groups = _groups(columns, column_side, view)
    if not row_groups or not column_groups:
        raise ValueError("there is nothing to draw but symbols; show them, or give a longer sentence")
    by_row = np.stack([table[members].mean(0) for _, members in row_groups])
    made = np.stack([by_row[:, members].sum(1) for _, members in column_groups], 1)
    if not view.specials:
        made = made / np.maximum(made.sum(1, keepdims=True), 1e-12)
    return made, [label for label, _ in row_groups], [label for label, _ in column_groups]


def _groups(pieces: list[Piece], side: Side, view: View) -> list[tuple[str, list[int]]]:
    """Tokens that are shown as one, with their label: those of a word, or each by itself."""
    labels = piece_labels([piece.piece for piece in pieces])
    groups: list[tuple[str, list[int]]] = []
    before: int | None = None
    for at, piece in enumerate(pieces):
        if piece.special and not view.specials:
            before = None
            continue
        if view.words and piece.word is not None and piece.word == before:
            groups[-1][1].append(at)
        else:
            named = view.words and piece.word is not None
            groups.append((side.words[piece.word] if named and piece.word is not None else labels[at], [at]))
        before = piece.word
    return groups
