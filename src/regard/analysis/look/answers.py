"""From a question to what is said to it, one message after the other, each as soon as it is known."""

from collections.abc import Generator, Iterator, Mapping
from typing import Any

import torch
from numpy.typing import NDArray

from regard.analysis.look import questions, summary
from regard.analysis.look.changes import place_of
from regard.analysis.look.finding import search_options
from regard.analysis.look.frames import shade
from regard.analysis.look.parts import PARTS
from regard.analysis.look.questions import First, Pointed, Read
from regard.analysis.look.reading import Stale, StaleError, Weights, Written
from regard.analysis.look.subject import Changes, Subject
from regard.analysis.look.tokens import Side, source_side, surface, target_side
from regard.decode import Wish
from regard.decode.penalty import divisor
from regard.text import END
from regard.translator.alignment import links
from regard.translator.forced import Forced

Said = tuple[dict[str, Any], Mapping[str, NDArray[Any]]]
"""A message and the arrays that go with it."""
NOTHING: Mapping[str, NDArray[Any]] = {}
LAST = {"last": True}
"""What the last message of an answer has in it."""


def tokens(subject: Subject, asked: questions.Tokens) -> Iterator[Said]:
    """What a line becomes; an empty one is nothing but its end."""
    yield {**_tokens(source_side(asked.source, subject.translator.tokenizers.source)), **LAST}, NOTHING


def row(subject: Subject, asked: Pointed, stale: Stale) -> Iterator[Said]:
    """The exact weights of one query."""
    source, target, changes = pointed(subject, asked)
    table = subject.weights(source.ids, target, changes, asked.part, stale)[asked.part, asked.layer]
    yield {"kind": "row", **LAST}, {"weights": table[asked.head, asked.query]}


def pointed(subject: Subject, asked: Pointed) -> tuple[Side, tuple[int, ...], Changes]:
    """The pair and the changes of a question after one query, which must be there."""
    source, target = subject.source(asked.source), subject.target(asked.target_ids)
    changes = subject.changes(asked.changes, source)
    place_of(subject.parts, asked.part, asked.layer, asked.head)
    queries = len(source.pieces) if asked.part == "encoder" else len(target) + 1
    if asked.query >= queries:
        raise ValueError(f"there is no query {asked.query} in '{asked.part}' here; there are 0 to {queries - 1}")
    return source, target, changes


def read(subject: Subject, asked: Read, stale: Stale) -> Iterator[Said]:
    """Tokens, encoder attention, the translation as it comes, what is known of it, all attention, heads in numbers."""
    source = subject.source(asked.source)
    changes, given, prefix = (
        subject.changes(asked.changes, source),
        _given(subject, asked),
        subject.target(asked.prefix),
    )
    yield _tokens(source), NOTHING
    encoded = subject.encoded(source.ids, changes, stale)
    wanted = {key: table for key, table in encoded.weights.items() if key[0] in asked.want}
    yield from _attention(wanted, asked.first, stale)
    judged = None
    if asked.baseline is not None:
        judged = subject.written(source.ids, subject.target(asked.baseline), changes, stale)
        if given is None and asked.beam == 1 and _unmoved(subject, asked, judged):
            given = subject.target(asked.baseline)
    if given is None:
        target, score = yield from _told(subject, asked.beam, (source.ids, prefix), changes, stale)
    else:
        target, score = given, None
    written = subject.written(source.ids, target, changes, stale)
    said = _result(subject, (source, target), written, score, asked.candidates)
    yield {**said, "baseline": judged and {"logprobs": list(judged.logprobs)}}, NOTHING
    later = {key: table for key, table in written.weights.items() if key[0] in asked.want}
    yield from _attention(later, asked.first, stale)
    yield {"kind": "heads", "heads": summary.heads(wanted | later), **LAST}, NOTHING


def _unmoved(subject: Subject, asked: Read, judged: Written) -> bool:
    """Whether the changes leave each token of the baseline the most probable one, so that no search finds another.

    One pass says so, where a search would take one for each token.
    """
    options, ids = search_options(subject.translator, beam=1), (*subject.target(asked.baseline or ()), END)
    begun, count = subject.target(asked.prefix), len(subject.source(asked.source).ids)
    most = options.limits.of(Wish(source=count, prefix=begun))[1]
    if options.coverage_penalty or options.no_repeat or options.limits.least or len(ids) > most:
        return False
    best = [next(token for token, _ in each if token not in options.banned) for each in judged.best]
    return ids[: len(begun)] == begun and list(ids[len(begun) :]) == best[len(begun) :]


def _given(subject: Subject, asked: Read) -> tuple[int, ...] | None:
    """The target where it is told, as a line, as ids, or as a beginning that has ended."""
    if asked.target is not None:
        return subject.target(subject.translator.tokenizers.target.encode(asked.target))
    if asked.target_ids is not None:
        return subject.target(asked.target_ids)
    if asked.prefix and asked.prefix[-1] == END:
        return subject.target(asked.prefix)
    return None


def _told(
    subject: Subject, beam: int, begun: tuple[tuple[int, ...], tuple[int, ...]], changes: Changes, stale: Stale
) -> Generator[Said, None, tuple[tuple[int, ...], float]]:
    """Search from a source and a beginning, and tell each token that is settled; with several beams, at the end."""
    said: tuple[int, ...] = ()
    search = subject.found(begun[0], beam, begun[1], changes, stale)
    tokenizer = subject.translator.tokenizers.target
    while True:
        try:
            settled = next(search)
        except StopIteration as over:
            best = over.value
            break
        if beam == 1 and len(settled) > len(said):
            said = settled
            yield {"kind": "target", "tokens": target_side(said, tokenizer, ended=False).to_json()}, NOTHING
    yield {"kind": "target", "tokens": target_side(best.tokens, tokenizer).to_json()}, NOTHING
    return best.tokens, best.score


def _result(
    subject: Subject, pair: tuple[Side, tuple[int, ...]], written: Written, score: float | None, candidates: int
) -> dict[str, Any]:
    """All that is known of a translation but its attention."""
    source, tokenizer, options = pair[0], subject.translator.tokenizers.target, subject.translator.options.search()
    target = target_side(pair[1], tokenizer)
    if score is None:
        score = sum(written.logprobs) / float(divisor(torch.tensor([len(written.logprobs)]), options))
    return {
        "kind": "result",
        "source": source.to_json(),
        "target": target.to_json(),
        "text": target.text,
        "score": score,
        "logprobs": list(written.logprobs),
        "words": {"source": list(source.words), "target": list(target.words)},
        "alignment": _alignment(subject, source, target, written),
        "candidates": [[_candidate(subject, *each) for each in best[:candidates]] for best in written.best],
    }


def _candidate(subject: Subject, number: int, logprob: float) -> dict[str, Any]:
    piece = subject.translator.tokenizers.target.piece(number)
    return {"id": number, "piece": piece, "text": surface(piece), "logprob": logprob}


def _alignment(subject: Subject, source: Side, target: Side, written: Written) -> str | None:
    """Links between words as Pharaoh writes them, read where the translator reads its own; None without attention."""
    look = subject.translator.aligned_by
    if look is None or not target.ids:
        return None if look is None else ""
    layer = [place.weights for place in subject.parts["cross"]].index(look.tap)
    forced = Forced(written.logprobs, {look.tap: torch.from_numpy(written.weights["cross", layer])})
    found = links(look.weights(forced), source.numbers, target.numbers)
    return " ".join(f"{one}-{other}" for one, other in found)


def _tokens(side: Side) -> dict[str, Any]:
    return {"kind": "tokens", "tokens": side.to_json(), "words": list(side.words)}


def _attention(weights: Weights, first: First | None, stale: Stale) -> Iterator[Said]:
    """A message for each part and layer, the one to be seen first before all others."""
    keys = sorted(weights, key=lambda key: (key != _seen_first(first), PARTS.index(key[0]), key[1]))
    for part, layer in keys:
        if stale():
            raise StaleError
        table = weights[part, layer]
        heads, queries, count = table.shape
        said = {"kind": "attention", "part": part, "layer": layer, "heads": heads, "queries": queries, "keys": count}
        yield said, {"weights": shade(table)}


def _seen_first(first: First | None) -> tuple[str, int] | None:
    return None if first is None else (first.part, first.layer)
