"""The memory that encoders leave and decoders attend to, and the protocols of encoders and decoders.

Any encoder goes with any decoder, as far as their widths fit: a decoder needs nothing but a `Memory`.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.ragged import Layout, Ragged

State = Any
"""A decoding state. Only the decoder that made it knows what it holds."""


@dataclass(frozen=True, eq=False)
class Memory:
    """The encoded inputs: a state for each token, patch or other part of an input, in a ragged batch."""

    states_ND: Float[Tensor, "N D"]
    """What attention compares with its queries, and what it mixes unless there are other `values_ND`."""
    layout: Layout
    values_ND: Float[Tensor, "N D2"] | None = None
    """What attention mixes, if not the states themselves (Gehring et al. 2017, §3.3)."""
    last: tuple[Float[Tensor, "L B D3"], ...] = ()
    """The final state of a recurrent encoder, layer by layer: one tensor for a GRU, two for an LSTM."""

    @property
    def values(self) -> Float[Tensor, "N D2"]:
        """What attention mixes."""
        return self.states_ND if self.values_ND is None else self.values_ND

    @property
    def summary_BD(self) -> Float[Tensor, "B D3"]:
        """One vector for each input: the final state of a recurrent encoder's last layer, or the mean of the states."""
        if self.last:
            return self.last[0][-1]
        sums_BD = self.states_ND.new_zeros(len(self.layout), self.states_ND.shape[1])
        sums_BD = sums_BD.index_add(0, self.layout.sequence_N, self.states_ND)
        return sums_BD / self.layout.lengths_B.clamp(min=1)[:, None]

    def take(self, rows_R: Int[Tensor, " R"]) -> "Memory":
        """Return the memories of these inputs, in this order, repeated where an input is named again."""
        layout, lengths_R = self.layout, self.layout.lengths_B[rows_R]
        taken = Layout.from_lengths(lengths_R)
        index_N = layout.offsets[:-1][rows_R].long()[taken.sequence_N.long()] + taken.position_N
        values_ND = None if self.values_ND is None else self.values_ND[index_N]
        last = tuple(state_LBD[:, rows_R] for state_LBD in self.last)
        return Memory(self.states_ND[index_N], taken, values_ND, last)

    def initial_state(self, layers: int, width: int, tensors: int) -> tuple[Float[Tensor, "L B D3"], ...]:
        """Return the hidden state from which a recurrent decoder starts.

        It is the final state of a recurrent encoder. Other encoders have none: then every layer starts from the mean of
        the input's states, as in Xu et al. 2015, §3.1.2, and an LSTM's cells start from zero.

        Args:
            layers: Layers of the decoder.
            width: Width of its hidden state.
            tensors: Tensors of its hidden state: 1 for a GRU, 2 for an LSTM.

        Raises:
            ValueError: The state has another shape than the decoder needs.
        """
        last = self.last
        if not last:
            mean_LBD = self.summary_BD.expand(layers, -1, -1)
            last = (mean_LBD, *(torch.zeros_like(mean_LBD) for _ in range(tensors - 1)))
        given, needed = (len(last), last[0].shape[0], last[0].shape[2]), (tensors, layers, width)
        if given != needed:
            raise ValueError(
                f"this decoder starts from {needed[0]} tensor(s) of {needed[1]} layer(s) and width {needed[2]}, but "
                f"the encoder leaves {given[0]} tensor(s) of {given[1]} layer(s) and width {given[2]}; "
                "give encoder and decoder the same cell, number of layers and width"
            )
        return last


@dataclass(frozen=True, eq=False)
class NestedMemory(Memory):
    """The memory of an encoder of nested inputs, such as dialogues of turns, with a state for each token.

    A decoder that knows nothing of parts reads the states of all tokens.
    """

    parts: Layout = field(kw_only=True)
    """The tokens of each part, in the order of `states_ND`; see `regard.nn.ragged.NestedParts`."""
    members: Layout = field(kw_only=True)
    """The parts of each input."""
    part_states_UD: Float[Tensor, "U D4"] | None = field(default=None, kw_only=True)
    """A state for each part, if the encoder has one."""

    @classmethod
    def of(cls, memory: Memory) -> "NestedMemory":
        """Return a memory with its parts; each input of an encoder that knows nothing of parts is a single one."""
        if isinstance(memory, cls):
            return memory
        lengths_B, device = memory.layout.lengths_B.cpu(), memory.layout.offsets.device
        has_tokens_B = lengths_B > 0
        parts = Layout.from_lengths(lengths_B[has_tokens_B] if has_tokens_B.any() else [0]).to(device)
        members = Layout.from_lengths(has_tokens_B.long()).to(device)
        shared = memory.states_ND, memory.layout, memory.values_ND, memory.last
        return cls(*shared, parts=parts, members=members)


@runtime_checkable
class Encoder(Protocol):
    """Encodes inputs of its own kind: texts, and in other tasks images or documents."""

    if TYPE_CHECKING:  # isinstance checks methods only: from Python 3.12 on, it does not find a module's properties

        @property
        def max_positions(self) -> int | None:
            """The longest input it can encode; None if there is no limit."""

    def encode(self, inputs: Any) -> Memory:
        """Encode a batch of inputs."""


@runtime_checkable
class Decoder(Protocol):
    """Turns target tokens into states that predict the next token, given a memory."""

    if TYPE_CHECKING:

        @property
        def max_positions(self) -> int | None:
            """The longest target it can decode; None if there is no limit."""

    def __call__(self, tokens: Ragged, memory: Memory) -> Float[Tensor, "N D"]:
        """Return the state at every target token (teacher forcing), one sequence for each memory."""

    def start(self, rows: int, memory: Memory) -> State:
        """Return the decoding state of `rows` rows that have read the memory only; equally many rows share each."""

    def step(self, tokens_R: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R D"], State]:
        """Append one token to each row; return the state at that token, and the new decoding state."""

    def select(self, state: State, rows_R: Int[Tensor, " R"]) -> State:
        """Return the decoding state that continues from these rows.

        The adjacent rows that share a memory stay adjacent, and memories keep their order; fewer rows mean that whole
        memories leave.
        """
