"""Decoder-only language models (Radford et al. 2019): tokens in, scores of the next token out."""

from collections.abc import Sequence

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.transformer import Stack, StackState
from regard.nn.cost import TokenCounts, count_flops
from regard.nn.embedding import OutputProjection
from regard.nn.ragged import Ragged


class LanguageModel(nn.Module):
    """A causal stack without cross-attention, and an output layer over the vocabulary.

    It models p(tokens) as a product over tokens, each given those before it.

    Example:
        Score a text by teacher forcing, or decode from prompts step by step::

            logits_NV = model(tokens)
            state = model.start(prompts, beams=4)
            logprobs_RV, state = model.step(tokens_R, state)
            state = model.select(state, rows_R)
    """

    def __init__(self, decoder: Stack, output: OutputProjection) -> None:
        """Put built parts together.

        Raises:
            ValueError: The stack is not causal, or attends to a memory.
        """
        super().__init__()
        if not decoder.mask.causal:
            raise ValueError("a language model needs a causal stack: this one sees later tokens")
        if any(block.cross is not None for block in decoder.blocks):
            raise ValueError("a language model has no source: build its stack without cross-attention")
        self.decoder, self.output = decoder, output

    @property
    def max_positions(self) -> int | None:
        """The longest sequence it can read; None if there is no limit."""
        return self.decoder.max_positions

    def states(self, tokens: Ragged) -> Float[Tensor, "N D"]:
        """Return the decoder's state at each token (teacher forcing), before the output layer."""
        states_ND: Tensor = self.decoder(tokens)
        return states_ND

    def forward(self, tokens: Ragged) -> Float[Tensor, "N V"]:
        """Return the logits of the token after each token (teacher forcing): all positions in one pass."""
        logits_NV: Tensor = self.output(self.states(tokens))
        return logits_NV

    def start(self, prompts: Ragged, beams: int = 1) -> StackState:
        """Read all prompts in one parallel pass (prefill) and return the decoding state behind them.

        The keys and values of every prompt token go into the KV cache. Prompts may differ in length and may be empty;
        each row continues at its own position.

        Args:
            prompts: Tokens already given. The next token of each row is the first argument of `step`.
            beams: Rows for each prompt; the rows of one prompt are adjacent.
        """
        return self.decoder.prefill(prompts, beams)

    def step(self, tokens_R: Int[Tensor, " R"], state: StackState) -> tuple[Float[Tensor, "R V"], StackState]:
        """Append one token to each row; return the log-probabilities of the token after it, and the new state."""
        x_RD, state = self.decoder.step(tokens_R, state)
        return self.output(x_RD).log_softmax(-1), state

    def select(self, state: StackState, rows_R: Int[Tensor, " R"]) -> StackState:
        """Return the state that continues from these rows.

        The adjacent rows of one prompt stay adjacent, and prompts keep their order; fewer rows mean that whole prompts
        leave.
        """
        return self.decoder.select(state, rows_R)

    def forward_flops(self, lengths: Sequence[int]) -> float:
        """Return the operations of a forward pass over sequences of these lengths; see `regard.nn.cost`."""
        return float(count_flops(self, TokenCounts.of(lengths)))
