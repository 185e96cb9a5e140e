"""A translator and a sentence in, figures for papers out: where it looked, how it searched, how it counts.

    figure(translator, "I can go alone", "alignment")
    figure(translator, "I can go alone", "lines", part="cross", layer=1, heads=[0])

Layers and heads are counted from 0 here, as taps are named; on the figures they count from 1.
"""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

import torch
from matplotlib.figure import Figure

from regard import plot
from regard.analysis.look.about import About
from regard.analysis.look.finding import Hunt, find
from regard.analysis.look.parts import family_of
from regard.analysis.look.reading import read_pair
from regard.analysis.look.subject import Subject, exhausted
from regard.analysis.view import Shown, View, check_view, one, sheet
from regard.decode.tree import Forest, Node
from regard.nn.embedding import Embedding
from regard.plot import Branch, Numbers
from regard.plot.lettering import JOINER, SPACE, joins
from regard.text import END, Tokenizer
from regard.translator import Translator


def alignment(translator: Translator, sentence: str, view: View) -> Figure:
    """A map: a row for each word that looks, a column for each that is looked at."""
    shown = _one(translator, sentence, view)
    return plot.alignment(
        shown.weights, shown.columns, shown.rows, title=view.title, scale=view.scale, meaning=shown.meaning
    )


def lines(translator: Translator, sentence: str, view: View) -> Figure:
    """The same as lines between the words, thick where weights are high."""
    shown = _one(translator, sentence, view)
    title = view.title or shown.meaning.replace("\n", " ")
    return plot.lines(shown.weights, shown.columns, shown.rows, threshold=view.threshold, title=title)


def heads(translator: Translator, sentence: str, view: View) -> Figure:
    """A map for every layer and head of a part, or for those that are chosen."""
    subject = _checked(translator, view)
    places = subject.parts[view.part]
    layers = range(len(places)) if view.layer is None else [view.layer]
    chosen: Sequence[int] = view.heads or range(min(place.heads for place in places))
    shown = sheet(read_pair(translator, sentence, _target(subject, sentence, view)), view, layers, chosen)
    return plot.heads(
        shown.weights, shown.columns, shown.rows, Numbers(layers, chosen), title=view.title, scale=view.scale
    )


def positions(translator: Translator, sentence: str, view: View) -> Figure:
    """The vectors that tell positions apart, and how alike any two are; the sentence does not matter."""
    embedding = translator.model.get_submodule("encoder.embedding")
    assert isinstance(embedding, Embedding)
    if embedding.position is None:
        raise ValueError("this model adds no vectors of positions; its order of words lies in its layers themselves")
    most = embedding.position.limit
    count = view.count if most is None else min(view.count, most)
    if count < 1:
        raise ValueError(f"{view.count} positions cannot be drawn; ask for at least one")
    with torch.no_grad():
        table = embedding.position(torch.arange(count, device=translator.device), embedding.weight)
    return plot.positions(table.float().cpu().numpy(), title=view.title)


def beam(translator: Translator, sentence: str, view: View) -> Figure:
    """Every token the search tried, from step to step."""
    subject = Subject("", translator, About())
    source = subject.source(sentence)
    width = view.beam or translator.options.beam
    memory, forest = subject.encoded(source.ids, (), _wanted).memory, Forest(1, width)
    search = find(translator, subject.parts, Hunt(source.ids, memory, width), _wanted, forest)
    while True:
        try:
            next(search)
        except StopIteration as over:
            best = (*over.value[0].tokens, END)
            break
    return plot.beam(_branches(forest.tree(0).nodes, best, translator.tokenizers.target), title=view.title)


KINDS: dict[str, Callable[[Translator, str, View], Figure]] = {
    "alignment": alignment,
    "lines": lines,
    "heads": heads,
    "positions": positions,
    "beam": beam,
}
"""What can be drawn of a translator, by name."""


def figure(translator: Translator, sentence: str = "", kind: str = "alignment", **told: Any) -> Figure:
    """A figure of one of the `KINDS`, with options such as `layer=1`: see `View`."""
    check_kind(kind, tuple(KINDS))
    return KINDS[kind](translator, sentence, View().told(**told))


def check_kind(kind: str, known: Sequence[str]) -> None:
    """Refuse a kind there is not."""
    if kind not in known:
        near = get_close_matches(kind, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise ValueError(f"there is no figure '{kind}'; {hint}")


def python_lines(run: str, sentence: str, kind: str, **told: Any) -> str:
    """The lines of Python that make a figure again."""
    plain = View()
    said = "".join(
        f", {name}={list(value) if isinstance(value, tuple) else value!r}"
        for name, value in told.items()
        if value is not None and value != getattr(plain, name)
    )
    return (
        "from pathlib import Path\n\nimport regard\nfrom regard.plot import save\n\n"
        f"translator = regard.load({run!r})\n"
        f"figure = regard.figure(translator, {sentence!r}, {kind!r}{said})\n"
        f'save(figure, Path("{kind}.pdf"))\n'
    )


def _wanted() -> bool:
    """Nobody else asks meanwhile, so an answer is always wanted."""
    return False


def _checked(translator: Translator, view: View) -> Subject:
    """The model as something to look at, which has what the view asks for."""
    subject = Subject("", translator, About())
    check_view(subject.parts, view, family_of(translator.model))
    return subject


def _one(translator: Translator, sentence: str, view: View) -> Shown:
    """The one table that a view shows of a sentence."""
    subject = _checked(translator, view)
    reading = read_pair(translator, sentence, _target(subject, sentence, view))
    return one(reading, view, translator.aligned_by, [place.weights for place in subject.parts[view.part]])


def _target(subject: Subject, sentence: str, view: View) -> tuple[int, ...]:
    """The ids of the translation: given, or searched for."""
    source = subject.source(sentence)
    if view.target is not None:
        return subject.target(subject.translator.tokenizers.target.encode(view.target))
    if view.target_ids is not None:
        return subject.target(view.target_ids)
    width = view.beam or subject.translator.options.beam
    return exhausted(subject.found(source.ids, width, (), (), _wanted)).tokens


def _branches(nodes: Sequence[Node], best: tuple[int, ...], tokenizer: Tokenizer) -> list[Branch]:
    """The nodes of a search as branches that grow from the begin symbol, those of the best hypothesis marked."""
    pieces = [tokenizer.piece(node.token) for node in nodes]
    paths: list[tuple[int, ...]] = []
    for node in nodes:
        before_it = paths[node.parent] if node.parent is not None else ()
        paths.append((*before_it, node.token))
    branches = [Branch("<s>", None, 0.0, "alive", best=True)]
    continued = {node.parent for node, piece in zip(nodes, pieces, strict=True) if joins(piece[0])}
    for place, (node, piece, path) in enumerate(zip(nodes, pieces, paths, strict=True)):
        state: Any = {"kept": "alive", "ended": "finished", "pruned": "pruned", "stopped": "alive"}[node.fate]
        before = pieces[node.parent] if node.parent is not None else SPACE
        label = piece.replace(SPACE, " ").strip() or SPACE
        # Letters of an Arabic word stay in their joined shapes across the cut between two tokens.
        joined = JOINER if joins(before[-1]) and joins(piece[0]) else ""
        label += JOINER if place in continued and joins(piece[-1]) else ""
        on_the_way = path == best[: len(path)] and node.fate != "pruned"
        parent = 0 if node.parent is None else node.parent + 1
        branches.append(Branch(joined + label, parent, node.score, state, on_the_way))
    return branches
