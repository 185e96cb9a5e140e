"""A hierarchical Transformer: dialogues of turns in, a state for each token out, which an ordinary decoder reads.

The words of a turn attend to each other within the turn only. The state of its first token, the symbol of its speaker,
stands for the turn; these vectors attend to each other, and what a turn has learned of the others is added to the
states of its tokens. A word attends to the words of its own turn, so the cost does not grow with the square of the
length of the whole history.
"""

from dataclasses import replace

from torch import nn

from regard.models.memory import NestedMemory
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import (
    BlockStack,
    Stack,
    initialise,
    make_decoder,
    make_embedding,
    make_encoder,
    make_layers,
)
from regard.models.tying import tie
from regard.nn.cost import TokenCounts, count_flops
from regard.nn.dropout import Dropout
from regard.nn.embedding import OutputProjection
from regard.nn.pooling import FirstPooling
from regard.nn.position import PositionEncoding, make_position_encoding
from regard.nn.ragged import NestedRagged
from regard.nn.tap import Tap
from regard.recipe import HierarchicalTransformer


class HierarchicalTransformerEncoder(nn.Module):
    """Transformer layers over the words of each turn, and over the turns of each dialogue."""

    def __init__(
        self, words: Stack, turns: BlockStack, position: PositionEncoding | None, dropout: float = 0.0
    ) -> None:
        """Put built parts together; `position` and `dropout` are those of the vectors of turns."""
        super().__init__()
        self.words, self.turns, self.position = words, turns, position
        self.first, self.drop = FirstPooling(), Dropout(dropout)
        self.vector, self.place, self.context = Tap(), Tap(), Tap()

    @property
    def max_positions(self) -> int | None:
        """The longest input it can encode, in tokens or turns; None if there is no limit."""
        return self.words.max_positions

    def encode(self, inputs: NestedRagged) -> NestedMemory:
        """Encode a batch of dialogues.

        Raises:
            ValueError: A dialogue has more turns, or a turn more tokens, than the learned positions.
        """
        words, members, layout = inputs.parts()
        limit = self.max_positions
        if limit is not None and members.longest > limit:
            raise ValueError(
                f"a dialogue of {members.longest} turns is longer than the {limit} learned positions; "
                "shorten it, or train with sinusoidal positions, which have no limit"
            )
        x_ND = self.words(words)
        if not members.tokens:
            return NestedMemory(x_ND, layout, parts=words.layout, members=members)
        turn_UD = self.vector(self.first(x_ND, words.layout))
        if self.position is not None:
            # Counted from the end: the last turn, which is replied to, has the same position in every dialogue.
            after_U = members.lengths_B.index_select(0, members.sequence_N) - 1 - members.position_N
            turn_UD = turn_UD + self.place(self.position(after_U, turn_UD))
        context_UD = self.context(self.turns.transform(self.drop(turn_UD), members))
        states_ND = x_ND + context_UD.index_select(0, words.sequence_N)
        return NestedMemory(states_ND, layout, parts=words.layout, members=members, part_states_UD=context_UD)

    def flops(self, counts: TokenCounts) -> int:
        """Return the operations of a forward pass; inputs whose parts are not counted have one part each."""
        parts = counts.parts or TokenCounts.of([1] * counts.sequences)
        return count_flops(self.words, replace(counts, parts=None)) + count_flops(self.turns, parts)


def build_hierarchical_transformer(
    settings: HierarchicalTransformer, source_vocabulary: int, target_vocabulary: int
) -> Seq2Seq:
    """Build the model for vocabularies of these sizes."""
    source, target = make_embedding(settings, source_vocabulary), make_embedding(settings, target_vocabulary)
    shared = tie(settings.tied, source, target)
    encoder = HierarchicalTransformerEncoder(
        make_encoder(settings, source),
        BlockStack(*make_layers(settings, settings.turn_layers)),
        make_position_encoding(settings.position, settings.width, settings.positions),
        settings.dropout,
    )
    output = OutputProjection(settings.width, target_vocabulary, shared)
    model = Seq2Seq(encoder, make_decoder(settings, target), output)
    initialise(model, settings)
    return model
