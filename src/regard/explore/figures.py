"""Draw figures of a predictor: attention maps, lines, grids of heads, position vectors and beam trees.

    figure(translator, "I can go alone", "alignment")
    figure(translator, "I can go alone", "lines", part="cross", layer=1, heads=[0])

Layers and heads are counted from 0 in options, as in the names of taps, and from 1 in the figures.
"""

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

import torch
from matplotlib.figure import Figure

from regard import plot
from regard.analysis.attention import make_rationale
from regard.decode.tree import SearchNode
from regard.explore.adapters import Ids, Predictor
from regard.explore.figure_data import FigureOptions, LabelledWeights, choose_part, select_heads, select_weights
from regard.explore.info import ModelInfo
from regard.explore.model import InspectedModel
from regard.explore.search import run_recorded_search
from regard.plot import BeamNode, HeadNumbers
from regard.plot.fonts import JOINER, SPACE, joins_neighbours
from regard.plot.style import ColourScale
from regard.predict.chat_attention import reply_attention
from regard.predict.chatbot import Chatbot
from regard.predict.classifier import ClassifiedText
from regard.score.rationale import Span
from regard.text import END, START, Tokenizer


def alignment(model: InspectedModel, text: str, options: FigureOptions) -> Figure:
    """Draw attention weights as a heat map: queries are rows, keys are columns."""
    data = _select(model, text, options)
    return plot.alignment(
        data.weights, data.columns, data.rows, title=options.title, scale=options.scale, label=data.caption
    )


def lines(model: InspectedModel, text: str, options: FigureOptions) -> Figure:
    """Draw attention weights as lines between words; a higher weight is a thicker line."""
    data = _select(model, text, options)
    title = options.title or data.caption.replace("\n", " ")
    return plot.lines(data.weights, data.columns, data.rows, threshold=options.threshold, title=title)


def heads(model: InspectedModel, text: str, options: FigureOptions) -> Figure:
    """Draw a grid of heat maps, one for each layer and head."""
    part = choose_part(model.layers, options)
    mechanisms = model.layers[part]
    layers = range(len(mechanisms)) if options.layer is None else [options.layer]
    chosen: Sequence[int] = options.heads or range(min(layer.heads for layer in mechanisms))
    data = select_heads(model.inspect(text, _output(model, text, options)), part, options, layers, chosen)
    return plot.heads(
        data.weights, data.columns, data.rows, HeadNumbers(layers, chosen), title=options.title, scale=options.scale
    )


def positions(model: InspectedModel, text: str, options: FigureOptions) -> Figure:
    """Draw the position vectors and the similarity of any two; the text is not used."""
    embedding = model.adapter.embedding
    if embedding.position is None:
        raise ValueError("this model adds no position vectors to its embeddings, so there are none to draw")
    most = embedding.position.limit
    count = options.count if most is None else min(options.count, most)
    if count < 1:
        raise ValueError(f"count is {options.count}, but at least one position must be drawn")
    with torch.no_grad():
        table = embedding.position(torch.arange(count, device=embedding.weight.device), embedding.weight)
    return plot.positions(table.float().cpu().numpy(), title=options.title)


def beam(model: InspectedModel, text: str, options: FigureOptions) -> Figure:
    """Draw every candidate of a beam search as a tree."""
    width, ids = options.beam or model.adapter.beam, model.tokenize(text).ids
    request = model.request(ids, width, 1, (), (), _never_stale)
    nodes, prompt, hypotheses = run_recorded_search(model.adapter, model.layers, request, _never_stale)
    best = (*hypotheses[0].tokens[len(prompt) :], END)
    root = model.adapter.output_tokenizer.piece((START, *prompt)[-1])
    return plot.beam(_branches(nodes, best, root, model.adapter.output_tokenizer), title=options.title)


def document_figure(
    result: ClassifiedText, gold: Sequence[Span] = (), *, title: str = "", scale: ColourScale = "linear"
) -> Figure:
    """Draw a text that was classified with attention: sentences and words shaded by their weights.

    Args:
        result: The classified text, with attention.
        gold: Spans of the words that are known to decide, which are underlined.
        title: Title of the figure.
        scale: How shades depend on weights.
    """
    rationale = make_rationale(result, gold)
    inside = [
        [number for number, (start, _) in enumerate(rationale.words) if begin <= start < end]
        for begin, end in rationale.sentences
    ]
    decide = rationale.gold_word_numbers
    return plot.document(
        [[rationale.text[slice(*rationale.words[number])] for number in numbers] for numbers in inside],
        rationale.sentence_weights,
        [[rationale.word_weights[number] for number in numbers] for numbers in inside],
        caption=f"{result.label}, probability {result.probability:.2f}",
        title=title,
        gold={
            (sentence, place)
            for sentence, numbers in enumerate(inside)
            for place, number in enumerate(numbers)
            if number in decide
        },
        scale=scale,
    )


def dialogue_figure(chatbot: Chatbot, history: str | Sequence[str], **options: Any) -> Figure:
    """Draw a conversation: turns and words shaded by the attention of the reply to them, and the reply below.

    Args:
        chatbot: The chatbot.
        history: The turns, the last one to be replied to; a single string is the only turn.
        **options: `target`, a given reply; `beam`, `turns`, `title` and `scale`: see `FigureOptions`.
    """
    chosen, turns = FigureOptions().updated(**options), [history] if isinstance(history, str) else list(history)
    reply = chosen.target
    if reply is None:
        reply = chatbot(turns, turns=chosen.turns, **({} if chosen.beam is None else {"beam": chosen.beam})).text
    attention = reply_attention(chatbot, turns, reply, chosen.turns)
    return plot.dialogue(
        [[turn.text[slice(*span)] for span in turn.words] for turn in attention.turns],
        [turn.weight for turn in attention.turns],
        [turn.word_means for turn in attention.turns],
        [reply[slice(*span)] for span in attention.words],
        title=chosen.title,
        scale=chosen.scale,
    )


KINDS: dict[str, Callable[[InspectedModel, str, FigureOptions], Figure]] = {
    "alignment": alignment,
    "lines": lines,
    "heads": heads,
    "positions": positions,
    "beam": beam,
}
"""The figures of a predictor that decodes, by name."""


def figure(predictor: Predictor, text: str = "", kind: str = "alignment", **options: Any) -> Figure:
    """Draw a figure of one of the `KINDS`, with options such as `layer=1`: see `FigureOptions`."""
    check_kind(kind, tuple(KINDS))
    return KINDS[kind](InspectedModel("", predictor, ModelInfo()), text, FigureOptions().updated(**options))


def check_kind(kind: str, known: Sequence[str]) -> None:
    """Raise a `ValueError` for an unknown kind of figure."""
    if kind not in known:
        near = get_close_matches(kind, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"figures are {', '.join(known)}"
        raise ValueError(f"there is no figure '{kind}'; {hint}")


def python_code(run: str, text: str | Sequence[str], kind: str, **options: Any) -> str:
    """Return the Python code that draws a figure again."""
    defaults = FigureOptions()
    arguments = "".join(
        f", {name}={list(value) if isinstance(value, tuple) else value!r}"
        for name, value in options.items()
        if value is not None and value != getattr(defaults, name)
    )
    return (
        "from pathlib import Path\n\nimport regard\nfrom regard.plot import save\n\n"
        f"model = regard.load({run!r})\n"
        f"figure = regard.figure(model, {text!r}, {kind!r}{arguments})\n"
        f'save(figure, Path("{kind}.pdf"))\n'
    )


def _never_stale() -> bool:
    return False


def _select(model: InspectedModel, text: str, options: FigureOptions) -> LabelledWeights:
    """Return the table of weights that a figure of one attention shows."""
    part = choose_part(model.layers, options)
    inspection = model.inspect(text, _output(model, text, options))
    taps = [layer.weights for layer in model.layers[part]]
    return select_weights(inspection, part, options, model.adapter.alignment_head, taps)


def _output(model: InspectedModel, text: str, options: FigureOptions) -> Ids:
    """Return the labels of the output: given, or found by search."""
    ids = model.tokenize(text).ids
    if options.target is not None:
        return model.given_output(ids, options.target)
    if options.target_ids is not None:
        return model.output_labels(options.target_ids)
    return model.best_output(ids, options.beam or model.adapter.beam)


def _branches(nodes: Sequence[SearchNode], best: Ids, root: str, tokenizer: Tokenizer) -> list[BeamNode]:
    """Convert the nodes of a search to branches that start at a root piece; mark those of the best hypothesis."""
    pieces = [tokenizer.piece(node.token) for node in nodes]
    paths: list[Ids] = []
    for node in nodes:
        paths.append((*(paths[node.parent] if node.parent is not None else ()), node.token))
    branches = [BeamNode(root.replace(SPACE, " ").strip() or SPACE, None, 0.0, "alive", best=True)]
    continued = {node.parent for node, piece in zip(nodes, pieces, strict=True) if joins_neighbours(piece[0])}
    states: dict[str, Any] = {"kept": "alive", "ended": "finished", "pruned": "pruned", "stopped": "alive"}
    for index, (node, piece, path) in enumerate(zip(nodes, pieces, paths, strict=True)):
        before = pieces[node.parent] if node.parent is not None else SPACE
        label = piece.replace(SPACE, " ").strip() or SPACE
        # A zero-width joiner keeps the letters of an Arabic word in their joined shapes across two tokens.
        joined = JOINER if joins_neighbours(before[-1]) and joins_neighbours(piece[0]) else ""
        label += JOINER if index in continued and joins_neighbours(piece[-1]) else ""
        is_best = path == best[: len(path)] and node.fate != "pruned"
        parent = 0 if node.parent is None else node.parent + 1
        branches.append(BeamNode(joined + label, parent, node.score, states[node.fate], is_best))
    return branches
