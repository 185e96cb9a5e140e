"""From a source to a target: an encoder, a decoder that looks at what it left, and scores over the vocabulary."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.memory import Decoder, Encoder, Memory, State
from regard.nn.embedding import Output
from regard.nn.ragged import Ragged


class Seq2Seq(nn.Module):
    """p(target | source) as a product over target tokens, each given the source and those before it."""

    def __init__(self, encoder: Encoder, decoder: Decoder, output: Output) -> None:
        """Put built parts together; encoder and decoder may be of any family."""
        super().__init__()
        self.encoder, self.decoder, self.output = encoder, decoder, output

    def encode(self, source: Ragged) -> Memory:
        """What the encoder leaves of each source."""
        return self.encoder.encode(source)

    def states(self, source: Ragged, target: Ragged) -> Float[Tensor, "N D"]:
        """What the decoder makes of each target token, teacher-forced, before it is scored against the vocabulary."""
        if len(source) != len(target):
            raise ValueError(f"{len(source)} sources do not fit {len(target)} targets; give each source one target")
        return self.decoder(target, self.encode(source))

    def forward(self, source: Ragged, target: Ragged) -> Float[Tensor, "N V"]:
        """Scores of the token after each target token, teacher-forced: all positions in one pass.

        `target` begins with the begin symbol, and what is to be predicted is shifted by one against it.
        """
        logits_NV: Tensor = self.output(self.states(source, target))
        return logits_NV

    def start(self, source: Ragged, beams: int = 1) -> State:
        """Begin a search with `beams` rows for each source, those of one source in a line."""
        return self.decoder.start(len(source) * beams, self.encode(source))

    def step(self, tokens_R: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], State]:
        """Log-probabilities of the next token in each row, given its last one, and the search with that."""
        x_RD, state = self.decoder.step(tokens_R, state)
        return self.output(x_RD).log_softmax(-1), state

    def select(self, state: State, rows_R: Int[Tensor, " R"]) -> State:
        """The search that goes on with these rows.

        The W rows in a line that share a source stay in a line, and lines keep their order; fewer rows mean that whole
        lines leave. While every line stays, nothing computed of a source moves.
        """
        return self.decoder.select(state, rows_R)
