"""One query of one attention with every number between a token and what was made of it: values, shapes and formulas.

The numbers are the model's own, taken where they pass their taps; only norms and projections that have no tap are
computed again, by the model's own modules.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch

from regard.analysis.look.answers import LAST, Said, pointed
from regard.analysis.look.changes import changed
from regard.analysis.look.maths_heads import head_stages, head_taps
from regard.analysis.look.maths_single import single_stages, single_taps
from regard.analysis.look.parts import PartName
from regard.analysis.look.questions import Maths
from regard.analysis.look.reading import DECODER, Stale
from regard.analysis.look.stages import Pass, told
from regard.analysis.look.subject import Changes, Subject, key_of
from regard.analysis.look.tokens import Piece, Side, target_side
from regard.nn.attention.multihead import MultiHeadAttention
from regard.nn.ragged import Ragged
from regard.nn.tap import recording
from regard.text import END, START, Tokenizer
from regard.translator.forced import evaluating


def maths(subject: Subject, asked: Maths, stale: Stale) -> Iterator[Said]:
    """Every step of one query of one head."""
    source, target, changes = pointed(subject, asked)
    place = subject.parts[asked.part][asked.layer]
    passed = watched(subject, Wanted(source.ids, target, changes, asked.part, asked.layer), stale)
    with torch.no_grad():
        if isinstance(place.module, MultiHeadAttention):
            stages, size = head_stages(place, asked.head, asked.query, passed), place.module.key_size
        else:
            stages = single_stages(place, asked.query, passed)
            size = passed.at(f"{place.name}.query").shape[-1]
    said, arrays = told(stages)
    read = _inputs(subject, asked.part, source, target)
    looked = source.to_json() if asked.part != "decoder" else [_json(each) for each in read]
    message: dict[str, Any] = {"stages": said, "query": asked.query, "keys": looked, "d_k": size}
    yield {"kind": "maths", **message, "token": _json(read[asked.query]), **LAST}, arrays


class Wanted(NamedTuple):
    """An attention, and the pair that goes through it."""

    ids: tuple[int, ...]
    target: tuple[int, ...]
    changes: Changes
    part: PartName
    layer: int


def watched(subject: Subject, wanted: Wanted, stale: Stale) -> Pass:
    """What passes the taps of one attention; kept for the next query of the same layer."""
    key = ("maths", *wanted._replace(changes=()), key_of(wanted.changes))
    return subject.kept.get(key, lambda: _watch(subject, wanted, stale), _size)


def _watch(subject: Subject, wanted: Wanted, stale: Stale) -> Pass:
    ids, target, changes, part, layer = wanted
    model, place = subject.model, subject.parts[part][layer]
    heads = isinstance(place.module, MultiHeadAttention)
    patterns = head_taps(place) if heads else single_taps(place, model.decoder)
    inside: tuple[PartName, ...] = ("encoder",) if part == "encoder" else DECODER
    memory = None if part == "encoder" else subject.encoded(ids, changes, stale).memory
    means, device = subject.means(ids, changes, stale), subject.translator.device
    with evaluating(model), changed(subject.parts, changes, inside, means), ExitStack() as stack:
        seen = [stack.enter_context(recording(model, pattern)) for pattern in patterns]
        if memory is None:
            model.encode(Ragged.from_list([[*ids, END]]).to(device))
        else:
            model.decoder(Ragged.from_list([[START, *target]]).to(device), memory)
    return Pass(model, {name: passed[0] for each in seen for name, passed in each.items() if passed}, memory)


def _inputs(subject: Subject, part: PartName, source: Side, target: tuple[int, ...]) -> list[Piece]:
    """The token that each query stands on: of the source, or the begin symbol and the target tokens before."""
    if part == "encoder":
        return list(source.pieces)
    tokenizer = subject.translator.tokenizers.target
    return [_begin(tokenizer), *target_side(target, tokenizer).pieces[:-1]]


def _begin(tokenizer: Tokenizer) -> Piece:
    return Piece(tokenizer.piece(START), "", START, None, True, (0, 0))


def _json(piece: Piece) -> dict[str, Any]:
    return Side("", (piece,), ()).to_json()[0]


def _size(passed: Pass) -> int:
    return sum(each.nbytes for each in passed.seen.values())
