"""Encoder-decoder models: inputs of any kind in, scores of the next target token out."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.memory import Decoder, Encoder, Memory, State
from regard.nn.cost import TokenCounts, count_flops
from regard.nn.embedding import OutputProjection
from regard.nn.ragged import Ragged


class Seq2Seq(nn.Module):
    """An encoder, a decoder that reads its memory, and an output projection; the two may be of different families.

    It models p(target | input) as a product over target tokens, each given the input and the tokens before it.

    Example:
        Score targets by teacher forcing, or decode step by step::

            logits_NV = model(source, target)
            state = model.start(source, beams=4)
            logprobs_RV, state = model.step(tokens_R, state)
            state = model.select(state, rows_R)
    """

    def __init__(self, encoder: Encoder, decoder: Decoder, output: OutputProjection) -> None:
        """Put built parts together."""
        super().__init__()
        self.encoder, self.decoder, self.output = encoder, decoder, output

    def encode(self, source: Any) -> Memory:
        """Encode a batch of inputs, of whatever kind the encoder takes."""
        return self.encoder.encode(source)

    def states(self, source: Any, target: Ragged) -> Float[Tensor, "N D"]:
        """Return the decoder's state at each target token (teacher forcing), before the output projection.

        Raises:
            ValueError: There are not as many sources as targets.
        """
        memory = self.encode(source)
        if len(memory.layout) != len(target):
            raise ValueError(
                f"{len(memory.layout)} sources do not fit {len(target)} targets; give each source one target"
            )
        return self.decoder(target, memory)

    def forward(self, source: Any, target: Ragged) -> Float[Tensor, "N V"]:
        """Return the logits of the token after each target token (teacher forcing): all positions in one pass.

        `target` begins with the begin symbol; the tokens to predict are shifted by one against it.
        """
        logits_NV: Tensor = self.output(self.states(source, target))
        return logits_NV

    def start(self, source: Any, beams: int = 1) -> State:
        """Encode sources and return the decoding state with `beams` adjacent rows for each."""
        memory = self.encode(source)
        return self.decoder.start(len(memory.layout) * beams, memory)

    def step(self, tokens_R: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], State]:
        """Append one token to each row; return the log-probabilities of the token after it, and the new state."""
        x_RD, state = self.decoder.step(tokens_R, state)
        return self.output(x_RD).log_softmax(-1), state

    def select(self, state: State, rows_R: Int[Tensor, " R"]) -> State:
        """Return the state that continues from these rows.

        The adjacent rows of a source stay adjacent, and sources keep their order; fewer rows mean that whole sources
        leave. While every source stays, nothing computed of a source moves in memory.
        """
        return self.decoder.select(state, rows_R)

    def forward_flops(
        self, source_lengths: Sequence[int] | Sequence[Sequence[int]], target_lengths: Sequence[int]
    ) -> float:
        """Return the operations of a forward pass over pairs of these lengths; see `regard.nn.cost`.

        Args:
            source_lengths: The number of tokens of each source or, for an encoder of nested inputs, of each of its
                parts.
            target_lengths: The number of tokens of each target.
        """
        if len(source_lengths) != len(target_lengths):
            raise ValueError(
                f"{len(source_lengths)} sources do not fit {len(target_lengths)} targets; give each source one target"
            )
        nested = [length for length in source_lengths if not isinstance(length, int)]
        if nested:
            source = TokenCounts.of_parts(nested)
            part_counts = TokenCounts.of(target_lengths, [len(sizes) for sizes in nested])
            target = replace(TokenCounts.of(target_lengths, list(map(sum, nested))), parts=part_counts)
        else:
            flat = [length for length in source_lengths if isinstance(length, int)]
            source, target = TokenCounts.of(flat), TokenCounts.of(target_lengths, flat)
        parts = ((self.encoder, source), (self.decoder, target), (self.output, target))
        return float(sum(count_flops(part, counts) for part, counts in parts if isinstance(part, nn.Module)))
