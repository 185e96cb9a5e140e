"""The hierarchical recurrent attention network (Xing et al. 2018): dialogues of turns in, replies out.

A bidirectional recurrence reads the words of each turn. Before each step of the decoder, turns are read from the last
to the first. Attention averages the words of a turn, conditioned on the decoder's state and on the turns after it:

    α_{i,t,j} ∝ exp(vᵀ tanh(W [s_{t-1}; l_{i+1,t}; h_{i,j}])),   r_{i,t} = Σ_j α_{i,t,j} h_{i,j}
    l_{i,t} = GRU(l_{i+1,t}, r_{i,t}),   zero after the last turn
    β_{i,t} ∝ exp(uᵀ tanh(W' [s_{t-1}; l_{i,t}])),   c_t = Σ_i β_{i,t} l_{i,t}
    s_t = f(s_{t-1}, [y_{t-1}; c_t])

Nothing but the sums over words and the products with l depends on the step. The products with the words' states are
computed once for a memory: their part of the scores W h, and their part of the gates, since U r = Σ_j α_j (U h_j).
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.memory import Memory, NestedMemory
from regard.models.recurrent.bahdanau import AttendingCell, BahdanauDecoder, ReadOut
from regard.models.recurrent.state import MemoryCache
from regard.models.seq2seq import Seq2Seq
from regard.models.tying import tie
from regard.nn.attention.scores import AdditiveScore
from regard.nn.cost import TokenCounts, count_flops
from regard.nn.embedding import Embedding, OutputProjection
from regard.nn.ragged import NestedRagged
from regard.nn.recurrent import RecurrentLayers
from regard.nn.tap import Tap, joining_records
from regard.recipe import Hran


class HierarchicalRecurrentEncoder(nn.Module):
    """Reads the words of each turn in both directions; its final state is that of each dialogue's last turn."""

    def __init__(self, embedding: Embedding, recurrence: RecurrentLayers) -> None:
        """Put built parts together."""
        super().__init__()
        self.embedding, self.recurrence = embedding, recurrence

    @property
    def max_positions(self) -> int | None:
        """The longest dialogue it can encode: None, as there is no limit."""
        return self.embedding.max_positions

    def encode(self, inputs: NestedRagged) -> NestedMemory:
        """Encode a batch of dialogues."""
        words, members, layout = inputs.parts()
        x_ND = self.embedding(words)
        start = self.recurrence.initial_state(len(words), x_ND)
        states_ND, ends = self.recurrence(x_ND, words.layout, start)
        last_B, has_turns_B = members.offsets[1:] - 1, members.lengths_B > 0
        last = tuple(end.index_select(1, last_B.clamp(min=0)) * has_turns_B[:, None] for end in ends)
        return NestedMemory(states_ND, layout, last=last, parts=words.layout, members=members)


@dataclass(frozen=True, eq=False)
class PaddedTurn:
    """One turn of each dialogue of a batch, padded to the longest, as attention reads it."""

    k_BKE: Float[Tensor, "B K E"]
    """The words' part of the scores."""
    v_BKF: Float[Tensor, "B K F"]
    """The words' part of the gates."""
    mask_B1K: Float[Tensor, "B 1 K"]
    """0 or minus infinity. A dialogue without such a turn allows a word of zeros, so that no softmax is NaN."""
    column_BK: Int[Tensor, "B K"]
    """The position of each word in its dialogue; one after the longest dialogue for padding."""


@dataclass(frozen=True, eq=False)
class TurnCache:
    """The turns of a batch of dialogues, from the last to the first: dialogues with fewer turns end earlier."""

    turns: tuple[PaddedTurn, ...]
    real_BU: Float[Tensor, "B U"]
    """1 for each turn that a dialogue has, else 0."""
    mask_B1U: Float[Tensor, "B 1 U"]
    """0 or minus infinity; as that of words."""
    column_BU: Int[Tensor, "B U"]
    """The number of each turn in its dialogue, counted from the first; that of the longest for padding."""
    tokens: int
    """Tokens of the longest dialogue."""

    def select_rows(self, rows: Int[Tensor, " B2"]) -> "TurnCache":
        """Return the cache of these dialogues, in this order."""
        return self._map(lambda tensor: tensor.index_select(0, rows))

    def first_rows(self, rows: int) -> "TurnCache":
        """Return the cache of the first dialogues, as views."""
        return self._map(lambda tensor: tensor[:rows])

    def _map(self, function: Callable[[Tensor], Tensor]) -> "TurnCache":
        turns = tuple(
            PaddedTurn(*(function(getattr(turn, attribute.name)) for attribute in fields(turn))) for turn in self.turns
        )
        tables = function(self.real_BU), function(self.mask_B1U), function(self.column_BU)
        return TurnCache(turns, *tables, self.tokens)


class WordAttention(nn.Module):
    """Attention to the words of one turn, from the decoder's state and the state of the turn after it."""

    def __init__(self, width: int, memory_width: int) -> None:
        """Create the attention; the hidden layer of its score is as wide as the decoder's state."""
        super().__init__()
        self.score = AdditiveScore(width, memory_width, width)
        self.weights = Tap()

    def forward(self, query_BWE: Float[Tensor, "B W E"], turn: PaddedTurn, tokens: int) -> Float[Tensor, "B W F"]:
        """Return the mean of the words' values, given the hidden layer's part of the two states."""
        scores_BWK = self.score.compare(query_BWE, turn.k_BKE) + turn.mask_B1K
        weights_BWK = _pass_tap(self.weights, scores_BWK.softmax(-1), turn.column_BK, tokens)
        return weights_BWK.to(turn.v_BKF.dtype) @ turn.v_BKF


class TurnReader(nn.Module):
    """A GRU that reads turns, as torch's (see `RecurrentLayers`); a bias of its inputs would be one too many.

    Its product with the last state also makes that state's part of the attention to the words of the next turn.
    """

    def __init__(self, width: int, memory_width: int) -> None:
        """Create the reader of vectors of `memory_width`."""
        super().__init__()
        self.width = width
        self.inputs = nn.Linear(memory_width, 3 * width, bias=False)
        self.hidden = nn.Linear(width, 4 * width)

    def products(self, l_BWD: Float[Tensor, "B W D"] | None, like: Tensor) -> tuple[Tensor, ...]:
        """Return the last state's part of the next attention, of both gates, and of the new value; None is zero."""
        products = self.hidden.bias.to(like.dtype) if l_BWD is None else self.hidden(l_BWD)
        # One split has one gradient to collect; each slice would have a tensor of zeros for the rest.
        return torch.split_with_sizes(products, [self.width, 2 * self.width, self.width], -1)

    def forward(
        self, input_BWF: Float[Tensor, "B W F"], gates: Tensor, value: Tensor, l_BWD: Float[Tensor, "B W D"] | None
    ) -> Float[Tensor, "B W D"]:
        """Return the next state from what its input and `products` contribute to it."""
        input_gates, input_BWD = torch.split_with_sizes(input_BWF, [2 * self.width, self.width], -1)
        r_BWD, z_BWD = torch.sigmoid(input_gates + gates).chunk(2, -1)
        n_BWD = torch.tanh(torch.addcmul(input_BWD, r_BWD, value))
        return n_BWD - z_BWD * n_BWD if l_BWD is None else torch.lerp(n_BWD, l_BWD, z_BWD)


class TurnAttention(nn.Module):
    """Attention to the states of all turns, from the decoder's state."""

    def __init__(self, width: int) -> None:
        """Create the attention."""
        super().__init__()
        self.score = AdditiveScore(width, width, width)
        self.weights, self.context = Tap(), Tap()

    def forward(
        self, s_BWD: Float[Tensor, "B W D"], l_BWUD: Float[Tensor, "B W U D"], cache: TurnCache
    ) -> Float[Tensor, "R D"]:
        """Return the context of each row; zeros for a dialogue without turns."""
        scores_BWU = self.score(s_BWD[:, :, None], l_BWUD)[:, :, 0] + cache.mask_B1U
        weights_BWU = scores_BWU.softmax(-1) * cache.real_BU[:, None]
        weights_BWU = _pass_tap(self.weights, weights_BWU, cache.column_BU, l_BWUD.shape[2])
        context_RD: Tensor = self.context((weights_BWU[:, :, None].to(l_BWUD.dtype) @ l_BWUD).flatten(0, 2))
        return context_RD


class HierarchicalCell(AttendingCell):
    """A recurrent step that first attends to the words of each turn, and to the turns.

    The attention weights pass two taps. Through `turns.weights` go all turns of a dialogue. Through `words.weights` go
    the words of one turn after the other, from the last: a table of all tokens of the dialogue in which the others are
    zero, since the weights of a turn depend on those after it. A recording holds the sum of these tables.
    """

    def __init__(self, recurrence: RecurrentLayers, memory_width: int) -> None:
        """Create the cell for a memory of this width."""
        super().__init__(recurrence)
        self.words = WordAttention(recurrence.width, memory_width)
        self.reader = TurnReader(recurrence.width, memory_width)
        self.turns = TurnAttention(recurrence.width)

    def make_cache(self, memory: Memory) -> TurnCache:
        """Return what attention needs of a memory; each input of a memory without parts is a single turn."""
        nested = NestedMemory.of(memory)
        return _pad_turns(nested, self.words.score.prepare(nested.states_ND), self.reader.inputs(nested.values))

    def attend(self, s_RD: Float[Tensor, "R D"], cache: MemoryCache) -> Float[Tensor, "R D2"]:
        """Return the context of each row, given its state before the step."""
        assert isinstance(cache, TurnCache), "the cache of this cell"
        if not cache.turns:
            return torch.zeros_like(s_RD)
        dialogues = cache.real_BU.shape[0]
        s_BWD = s_RD.view(dialogues, s_RD.shape[0] // max(1, dialogues), s_RD.shape[1])
        from_s_BWE, l_BWD, states = self.words.score.from_query(s_BWD), None, list[Tensor]()
        with joining_records([self.words.weights], lambda tables: torch.stack(tables).sum(0)):
            for turn in cache.turns:
                from_l, gates, value = self.reader.products(l_BWD, from_s_BWE)
                input_BWF = self.words(from_s_BWE + from_l, turn, cache.tokens)
                l_BWD = self.reader(input_BWF, gates, value, l_BWD)
                states.append(l_BWD)
        context_RD: Tensor = self.turns(s_BWD, torch.stack(states, 2), cache)
        return context_RD

    def flops(self, counts: TokenCounts) -> int:
        """Return the operations of a forward pass; inputs whose parts are not counted are a single turn each."""
        width, steps, pairs = self.recurrence.width, counts.tokens, counts.cross_pairs
        turns = steps if counts.parts is None else counts.parts.cross_pairs
        words = self.words.score.score_flops(width, steps, counts.memory_tokens, pairs)
        inputs = 2 * self.reader.inputs.weight.numel() * counts.memory_tokens + 2 * 3 * width * pairs
        # The turn that is read first follows a state of zeros.
        hidden = 2 * self.reader.hidden.weight.numel() * max(0, turns - steps)
        attention = self.turns.score.score_flops(width, steps, turns, turns) + 2 * width * turns
        return count_flops(self.recurrence, counts) + words + inputs + hidden + attention


def _pass_tap(tap: Tap, weights_BWK: Tensor, column_BK: Tensor, columns: int) -> Tensor:
    """Pass attention weights through a tap as a table of (R, 1, 1, columns), in the order of the dialogue."""
    if not tap.watched:
        return weights_BWK
    column_BWK = column_BK[:, None].expand_as(weights_BWK)
    padded = weights_BWK.new_zeros(*weights_BWK.shape[:2], columns + 1).scatter(2, column_BWK, weights_BWK)
    passed = tap(padded[..., :columns].flatten(0, 1)[:, None, None]).view(*weights_BWK.shape[:2], columns)
    return nn.functional.pad(passed, (0, 1)).gather(2, column_BWK)


def _pad_turns(memory: NestedMemory, k_NE: Float[Tensor, "N E"], v_NF: Float[Tensor, "N F"]) -> TurnCache:
    """Return the turns of a memory from the last to the first, each padded to the longest; waits for the device."""
    parts, members, device = memory.parts, memory.members, k_NE.device
    count_B = members.lengths_B.cpu().numpy().astype(np.int64)
    dialogues, numbers = count_B.size, np.arange(members.longest)
    real_BU = numbers < count_B[:, None]
    column_BU = np.where(real_BU, count_B[:, None] - 1 - numbers, members.longest)
    tables = torch.from_numpy(real_BU).to(device, k_NE.dtype), torch.from_numpy(column_BU).to(device)
    mask_B1U = _additive_mask(torch.from_numpy(real_BU).to(device), k_NE)[:, None]
    if not members.tokens:
        return TurnCache((), tables[0], mask_B1U, tables[1], memory.layout.longest)
    # The turns with the same number, counted from the last, fill one rectangle, and the rectangles one buffer.
    dialogue_U, length_U = np.repeat(np.arange(dialogues), count_B), parts.lengths_B.cpu().numpy().astype(np.int64)
    number_U = np.concatenate([np.arange(count)[::-1] for count in count_B])
    longest = np.zeros(members.longest, np.int64)
    np.maximum.at(longest, number_U, length_U)
    ends = np.cumsum(dialogues * longest)
    begin_U = (ends - dialogues * longest)[number_U] + dialogue_U * longest[number_U]
    slot_N = torch.from_numpy(np.repeat(begin_U, length_U)).to(device) + parts.position_N
    size, sizes = int(ends[-1]), (dialogues * longest).tolist()

    def rectangles(values: Tensor, fill: float) -> list[Tensor]:
        buffer = values.new_full((size, *values.shape[1:]), fill).index_copy(0, slot_N, values)
        return [piece.view(dialogues, -1, *values.shape[1:]) for piece in torch.split_with_sizes(buffer, sizes)]

    masks = (_additive_mask(real_BK, k_NE) for real_BK in rectangles(torch.ones_like(slot_N, dtype=torch.bool), False))
    columns = rectangles(memory.layout.position_N.long(), memory.layout.longest)
    turns = tuple(
        PaddedTurn(k_BKE, v_BKF, mask_BK[:, None], column_BK)
        for k_BKE, v_BKF, mask_BK, column_BK in zip(
            rectangles(k_NE, 0), rectangles(v_NF, 0), masks, columns, strict=True
        )
    )
    return TurnCache(turns, tables[0], mask_B1U, tables[1], memory.layout.longest)


def _additive_mask(real_BK: Tensor, like: Tensor) -> Tensor:
    """Return 0 where a key is real or the first one, and minus infinity elsewhere."""
    mask_BK = torch.zeros_like(real_BK, dtype=like.dtype).masked_fill_(~real_BK, -torch.inf)
    mask_BK[:, :1] = 0
    return mask_BK


def make_decoder(settings: Hran, embedding: Embedding, memory_width: int, summary_width: int) -> BahdanauDecoder:
    """Make the decoder, for a memory of this width whose summary has that width."""
    width, vectors = settings.width, settings.embedding
    cell = HierarchicalCell(RecurrentLayers(settings.cell, vectors + width, width), memory_width)
    readout = ReadOut(vectors + 2 * width, vectors, maxout=True, dropout=settings.dropout)
    return BahdanauDecoder(embedding, cell, nn.Linear(summary_width, width), readout)


def build_hran(settings: Hran, source_vocabulary: int, target_vocabulary: int) -> Seq2Seq:
    """Build the model for vocabularies of these sizes."""
    width, vectors = settings.width, settings.embedding
    source, target = (
        Embedding(vocabulary, vectors, dropout=settings.dropout)
        for vocabulary in (source_vocabulary, target_vocabulary)
    )
    shared = tie(settings.tied, source, target)
    encoder = HierarchicalRecurrentEncoder(source, RecurrentLayers(settings.cell, vectors, width, bidirectional=True))
    output = OutputProjection(vectors, target_vocabulary, shared)
    return Seq2Seq(encoder, make_decoder(settings, target, 2 * width, width), output)
