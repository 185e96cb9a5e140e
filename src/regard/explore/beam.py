"""Answer the question `beam`: every candidate of every step of a beam search, and the path of the best hypothesis."""

from collections.abc import Iterator, Sequence
from typing import Any

from regard.decode import SearchNode
from regard.explore.adapters import Ids
from regard.explore.frames import Message
from regard.explore.model import InspectedModel, cache_key
from regard.explore.passes import IsStale
from regard.explore.questions import BeamQuestion
from regard.explore.search import run_recorded_search
from regard.explore.tokens import piece_text
from regard.text import END, Tokenizer


def answer_beam(model: InspectedModel, question: BeamQuestion, is_stale: IsStale) -> Iterator[Message]:
    """Yield the tree of a search."""
    source = model.read_input(question)
    changes, prefix = model.check_changes(question.changes, source), model.output_prefix(question.prefix)
    if question.nbest > question.beam:
        raise ValueError(f"a beam of {question.beam} cannot return {question.nbest} hypotheses; use a wider beam")
    key = ("beam", source.ids, question.beam, question.nbest, prefix, cache_key(changes))
    tree = model.cache.peek(key)
    if tree is None:
        request = model.request(source.ids, question.beam, question.nbest, prefix, changes, is_stale)
        nodes, prompt, _ = run_recorded_search(model.adapter, model.layers, request, is_stale)
        tree = _tree_message(nodes, prompt, model.adapter.output_tokenizer)
        model.cache.put(key, tree)
    assert isinstance(tree, dict)
    yield {"kind": "beam", **tree, "last": True}, {}


def _tree_message(nodes: Sequence[SearchNode], prompt: Ids, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the nodes, the path to the best finished hypothesis, and all finished hypotheses, the best first."""
    ended = sorted((index for index, node in enumerate(nodes) if node.fate == "ended"), key=lambda i: -nodes[i].score)
    finished = []
    for index in ended:
        ids = [*prompt, *(nodes[step].token for step in _path(nodes, index))]
        finished.append({"node": index, "text": tokenizer.decode(ids), "score": nodes[index].score})
    return {
        "prompt": list(prompt),
        "nodes": [_node_message(node, tokenizer) for node in nodes],
        "best": _path(nodes, ended[0]) if ended else [],
        "finished": finished,
    }


def _path(nodes: Sequence[SearchNode], index: int) -> list[int]:
    """Return the indices of the nodes from the first token to a node."""
    path: list[int] = []
    current: int | None = index
    while current is not None:
        path.append(current)
        current = nodes[current].parent
    return path[::-1]


def _node_message(node: SearchNode, tokenizer: Tokenizer) -> dict[str, Any]:
    piece = tokenizer.piece(node.token)
    return {
        "parent": node.parent,
        "id": node.token,
        "piece": piece,
        "text": "" if node.token == END else piece_text(piece),
        "place": node.position,
        "logprob": node.logprob,
        "total": node.total,
        "score": node.score,
        "rank": node.rank,
        "fate": node.fate,
    }
