"""The whole tree a search looked at, for whoever wants to see why something was found and something else was not."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from regard.decode.choose import Candidates

Fate = Literal["kept", "ended", "pruned", "stopped"]
"""Went on; ended and was ranked; was no match for the others; was alive when the search was over."""


@dataclass(frozen=True)
class Node:
    """One candidate of one step."""

    parent: int | None
    """Number of the node it goes on from; None for the first token."""
    token: int
    place: int
    """Which token of the hypothesis it is, counted from 0."""
    logprob: float
    """Log-probability of the token."""
    total: float
    """Log-probability of the hypothesis up to it."""
    score: float
    """What the hypothesis up to it would score."""
    rank: int
    """Its place among the candidates of its step and group, counted from 0."""
    group: int
    fate: Fate


@dataclass(frozen=True)
class Tree:
    """The nodes of one sentence; a node's number is its place in the tuple, and parents come first."""

    nodes: tuple[Node, ...]


class Forest:
    """Trees that grow with a search, a tree a sentence."""

    def __init__(self, groups: int, rows: int) -> None:
        """Sentences of so many groups of so many rows."""
        self._groups, self._rows = groups, rows
        self._nodes: dict[int, list[Node]] = {}
        self._at: dict[int, list[list[int | None]]] = {}

    def grow(
        self,
        numbers: Sequence[int],
        found: Candidates,
        score_BK: Tensor,
        fates: tuple[Tensor, Tensor],
        place_B: Tensor,
    ) -> None:
        """One more step: candidates with their scores; which of them ended, and which go on, in order."""
        ended_BK, going_BW = fates
        tables = [each.tolist() for each in (*found.parts(), score_BK, ended_BK, going_BW, place_B)]
        for beam, (parents, tokens, logprobs, totals, scores, ended, going, place) in enumerate(
            zip(*tables, strict=True)
        ):
            number, group = numbers[beam // self._groups], beam % self._groups
            nodes = self._nodes.setdefault(number, [])
            at = self._at.setdefault(number, [[None] * self._rows for _ in range(self._groups)])
            where: dict[int, int] = {}
            for rank, total in enumerate(totals):
                if total == float("-inf"):
                    continue
                fate: Fate = "pruned"
                if ended[rank]:
                    fate = "ended" if rank < self._rows else "pruned"
                elif rank in going:
                    fate = "kept"
                where[rank] = len(nodes)
                parent = at[group][parents[rank]]
                nodes.append(Node(parent, tokens[rank], place, logprobs[rank], total, scores[rank], rank, group, fate))
            at[group] = [where.get(rank) for rank in going]

    def tree(self, number: int) -> Tree:
        """The tree of a sentence that is done."""
        nodes = self._nodes.get(number, [])
        with_children = {node.parent for node in nodes}
        return Tree(
            tuple(
                replace(node, fate="stopped") if node.fate == "kept" and i not in with_children else node
                for i, node in enumerate(nodes)
            )
        )
