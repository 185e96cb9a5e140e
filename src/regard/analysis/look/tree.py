"""What a beam search looked at: every candidate of every step, and which way won."""

from collections.abc import Iterator, Sequence
from typing import Any

from regard.analysis.look.answers import LAST, NOTHING, Said
from regard.analysis.look.finding import Hunt, find
from regard.analysis.look.questions import Tree
from regard.analysis.look.reading import Stale
from regard.analysis.look.subject import Subject, key_of
from regard.analysis.look.tokens import surface
from regard.decode import Node
from regard.decode.tree import Forest
from regard.text import END, Tokenizer


def beam(subject: Subject, asked: Tree, stale: Stale) -> Iterator[Said]:
    """The tree of a search."""
    source = subject.source(asked.source)
    changes, prefix = subject.changes(asked.changes, source), subject.target(asked.prefix)
    if asked.nbest > asked.beam:
        raise ValueError(f"a beam of {asked.beam} does not give {asked.nbest} translations; widen it")
    key = ("tree", source.ids, asked.beam, asked.nbest, prefix, key_of(changes))
    known = subject.kept.peek(key)
    if known is None:
        memory, means = subject.encoded(source.ids, changes, stale).memory, subject.means(source.ids, changes, stale)
        hunt = Hunt(source.ids, memory, asked.beam, asked.nbest, prefix, changes, means)
        forest = Forest(1, asked.beam)
        for _ in find(subject.translator, subject.parts, hunt, stale, forest):
            pass
        known = _drawn(forest.tree(0).nodes, subject.translator.tokenizers.target)
        subject.kept.put(key, known)
    assert isinstance(known, dict)
    yield {"kind": "beam", **known, **LAST}, NOTHING


def _drawn(nodes: Sequence[Node], tokenizer: Tokenizer) -> dict[str, Any]:
    """Nodes as a message has them, the way to the best end, and all ends, the best first."""
    ended = sorted((at for at, node in enumerate(nodes) if node.fate == "ended"), key=lambda at: -nodes[at].score)
    finished = []
    for at in ended:
        ids = [nodes[each].token for each in _way(nodes, at)]
        finished.append({"node": at, "text": tokenizer.decode(ids), "score": nodes[at].score})
    return {
        "nodes": [_node(node, tokenizer) for node in nodes],
        "best": _way(nodes, ended[0]) if ended else [],
        "finished": finished,
    }


def _way(nodes: Sequence[Node], at: int) -> list[int]:
    """The numbers of the nodes from the first token to this one."""
    way: list[int] = []
    here: int | None = at
    while here is not None:
        way.append(here)
        here = nodes[here].parent
    return way[::-1]


def _node(node: Node, tokenizer: Tokenizer) -> dict[str, Any]:
    piece = tokenizer.piece(node.token)
    return {
        "parent": node.parent,
        "id": node.token,
        "piece": piece,
        "text": "" if node.token == END else surface(piece),
        "place": node.place,
        "logprob": node.logprob,
        "total": node.total,
        "score": node.score,
        "rank": node.rank,
        "fate": node.fate,
    }
