"""The Transformer's stack of layers (Vaswani et al. 2017, §3.1): ids of a ragged batch in, a state for each token out.

There is one stack. Told to look everywhere it is an encoder; causal, with a memory to look at, a decoder; causal
without a memory, a language model.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.beams import check_lines
from regard.models.memory import Memory
from regard.nn.attention.kept import Kept
from regard.nn.attention.plan import plan
from regard.nn.attention.sight import Sight
from regard.nn.block import Block, Seen
from regard.nn.embedding import Embedding
from regard.nn.ragged import Ragged


@dataclass(frozen=True, eq=False)
class StackState:
    """How far a search has come: what each layer has seen, for R rows of which W in a line share one memory."""

    seen: tuple[Seen, ...]
    length: int
    beams: int


class Stack(nn.Module):
    """An embedding, layers one upon the other, and with norm-first layers a last normalisation."""

    def __init__(self, embedding: Embedding, blocks: Iterable[Block], norm: nn.Module | None, sight: Sight) -> None:
        """Put built parts together; `sight` says who may look where in self-attention."""
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(blocks)
        self.norm = norm if norm is not None else nn.Identity()
        self.sight = sight

    def forward(self, tokens: Ragged, memory: Memory | None = None) -> Float[Tensor, "N D"]:
        """The state of every token, which has looked where it may."""
        x_ND = self.embedding(tokens)
        own = plan(self.sight, tokens.layout, tokens.layout)
        there = None if memory is None else (memory.states_ND, plan(Sight(), tokens.layout, memory.layout))
        blocks = self._blocks()
        following = [*(layer.around_self.norm for layer in blocks[1:]), self.norm]
        entered_ND = blocks[0].around_self.enter(x_ND)
        for layer, norm in zip(blocks, following, strict=True):
            x_ND, entered_ND = layer(x_ND, entered_ND, own, there, norm)
        return entered_ND

    def encode(self, tokens: Ragged) -> Memory:
        """What it leaves for a decoder to look at."""
        return Memory(self(tokens), tokens.layout)

    def start(self, rows: int, memory: Memory | None = None) -> StackState:
        """A search of `rows` rows that has seen nothing but the memory; keys and values of that are computed now."""
        if not self.sight.causal:
            raise ValueError("only a causal stack goes step by step; this one looks ahead, so give it whole sequences")
        like = self.embedding.weight.new_empty(rows) if memory is None else memory.states_ND.new_empty(rows)
        seen = []
        for layer in self._blocks():
            own = Kept.nothing(like, layer.self.heads, layer.self.key_size, layer.self.value_size)
            at_memory = None
            if layer.cross is not None and memory is not None:
                at_memory = layer.cross.keep(memory.states_ND, memory.layout)
            seen.append(Seen(own, at_memory))
        return StackState(tuple(seen), 0, 1 if memory is None else rows // len(memory.layout))

    def step(self, tokens_R: Int[Tensor, " R"], state: StackState) -> tuple[Float[Tensor, "R D"], StackState]:
        """The state of one new token in each row, and the search with it."""
        self.embedding.check(tokens_R, state.length + 1)
        x_RD = self.embedding.embed(tokens_R, torch.full_like(tokens_R, state.length))
        grown = []
        for layer, seen in zip(self._blocks(), state.seen, strict=True):
            x_RD, after = layer.step(x_RD, state.length, seen, self.sight)
            grown.append(after)
        return self.norm(x_RD), replace(state, seen=tuple(grown), length=state.length + 1)

    def select(self, state: StackState, rows_R: Int[Tensor, " R"]) -> StackState:
        """The search that goes on with these rows. The W rows in a line that share a memory stay in a line.

        While every line stays, no key or value of a memory moves; when lines leave, the memories of the others remain.
        """
        lines_B = rows_R[:: state.beams] // state.beams
        leave = rows_R.shape[0] < state.seen[0].own.k_BHKE.shape[0]

        def chosen(seen: Seen) -> Seen:
            memory = seen.memory.rows(lines_B) if leave and seen.memory is not None else seen.memory
            return Seen(seen.own.rows(rows_R), memory)

        if state.seen[0].memory is not None:
            check_lines(rows_R, state.beams, state.seen[0].own.k_BHKE.shape[0])
        return replace(state, seen=tuple(chosen(each) for each in state.seen))

    def _blocks(self) -> list[Block]:
        """The layers, as what they are."""
        return [layer for layer in self.layers if isinstance(layer, Block)]
