"""The recurrent encoder: token ids of a ragged batch in, the state at each token and the final state out."""

from torch import nn

from regard.models.memory import Memory
from regard.nn.embedding import Embedding
from regard.nn.ragged import Ragged
from regard.nn.recurrent import RecurrentLayers


class RecurrentEncoder(nn.Module):
    """Reads forwards, backwards (Sutskever et al. 2014, §3.3) or in both directions (Bahdanau et al. 2015, §3.2)."""

    def __init__(self, embedding: Embedding, recurrence: RecurrentLayers, backwards: bool = False) -> None:
        """Put built parts together; reading backwards does not change the order of the states."""
        super().__init__()
        self.embedding, self.recurrence, self.backwards = embedding, recurrence, backwards

    @property
    def max_positions(self) -> int | None:
        """The longest source it can encode: None, as there is no limit."""
        return self.embedding.max_positions

    def encode(self, inputs: Ragged) -> Memory:
        """Encode a ragged batch of token ids."""
        x_ND = self.embedding(inputs)
        start = self.recurrence.initial_state(len(inputs), x_ND)
        states_ND, last = self.recurrence(x_ND, inputs.layout, start, self.backwards)
        return Memory(states_ND, inputs.layout, last=last)
