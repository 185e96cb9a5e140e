"""The tree of all candidates that a search considered, to see why it found what it found."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from regard.decode.candidates import Candidates

Fate = Literal["kept", "ended", "pruned", "stopped"]
"""What became of a candidate: it continued; it ended and was ranked; others were better; the search was over."""


@dataclass(frozen=True)
class SearchNode:
    """A candidate of one step."""

    parent: int | None
    """Number of the node that it continues; None for a first token."""
    token: int
    position: int
    """Position of the token in the hypothesis, counted from 0."""
    logprob: float
    """Log-probability of the token."""
    total: float
    """Log-probability of the hypothesis up to this token."""
    score: float
    """Score of the hypothesis up to this token."""
    rank: int
    """Rank among the candidates of the step and group, counted from 0."""
    group: int
    fate: Fate


@dataclass(frozen=True)
class SearchTree:
    """The nodes of one sentence. The number of a node is its index; parents come before children."""

    nodes: tuple[SearchNode, ...]


class TreeRecorder:
    """Records the tree of every sentence of a search; pass it to `IncrementalSearch`."""

    def __init__(self, groups: int, rows: int) -> None:
        """Record sentences with this many groups of this many rows."""
        self._groups, self._rows = groups, rows
        self._nodes: dict[int, list[SearchNode]] = {}
        self._live: dict[int, list[list[int | None]]] = {}
        """Of each sentence, the nodes of its live rows, group by group."""

    def add_step(
        self,
        numbers: Sequence[int],
        candidates: Candidates,
        score_BK: Tensor,
        fates: tuple[Tensor, Tensor],
        position_B: Tensor,
    ) -> None:
        """Record the candidates of a step.

        Args:
            numbers: Numbers of the sentences.
            candidates: Their candidates.
            score_BK: The scores of the candidates.
            fates: Which candidates ended, and which ones continue, in order.
            position_B: Position of the new token.
        """
        ended_BK, continuing_BW = fates
        tables = [x.tolist() for x in (*candidates.tables(), score_BK, ended_BK, continuing_BW, position_B)]
        for beam, (parents, tokens, logprobs, totals, scores, ended, continuing, position) in enumerate(
            zip(*tables, strict=True)
        ):
            number, group = numbers[beam // self._groups], beam % self._groups
            nodes = self._nodes.setdefault(number, [])
            live = self._live.setdefault(number, [[None] * self._rows for _ in range(self._groups)])
            node_of: dict[int, int] = {}
            for rank, total in enumerate(totals):
                if total == float("-inf"):
                    continue
                fate: Fate = "pruned"
                if ended[rank]:
                    fate = "ended" if rank < self._rows else "pruned"
                elif rank in continuing:
                    fate = "kept"
                node_of[rank] = len(nodes)
                parent = live[group][parents[rank]]
                nodes.append(
                    SearchNode(parent, tokens[rank], position, logprobs[rank], total, scores[rank], rank, group, fate)
                )
            live[group] = [node_of.get(rank) for rank in continuing]

    def tree(self, number: int) -> SearchTree:
        """Return the tree of a finished sentence."""
        nodes = self._nodes.get(number, [])
        parents = {node.parent for node in nodes}
        return SearchTree(
            tuple(
                replace(node, fate="stopped") if node.fate == "kept" and i not in parents else node
                for i, node in enumerate(nodes)
            )
        )
