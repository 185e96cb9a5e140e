"""The recurrent encoder: ids of a ragged batch in, the state at each token and the last one out."""

from torch import nn

from regard.models.memory import Memory
from regard.nn.embedding import Embedding
from regard.nn.ragged import Ragged
from regard.nn.recurrent import Recurrence


class RecurrentEncoder(nn.Module):
    """Reads a source forwards, backwards (Sutskever et al. 2014, §3.3) or both ways (Bahdanau et al. 2015, §3.2)."""

    def __init__(self, embedding: Embedding, recurrence: Recurrence, backwards: bool = False) -> None:
        """Put built parts together; read backwards, each token's state still stands where the token does."""
        super().__init__()
        self.embedding, self.recurrence, self.backwards = embedding, recurrence, backwards

    def encode(self, tokens: Ragged) -> Memory:
        """The state at each token, and where each source ended."""
        x_ND = self.embedding(tokens)
        rest = self.recurrence.rest(len(tokens), x_ND)
        states_ND, last = self.recurrence(x_ND, tokens.layout, rest, self.backwards)
        return Memory(states_ND, tokens.layout, last=last)
