"""Retrieval: a dual encoder that gives similar vectors to the turns of a dialogue and the reply to them.

It is trained with in-batch negatives: each history must be more similar to its own reply than to the other replies of
the batch, and each reply to its own history. So the loss of an example depends on its batch: k micro-batches, or the
batches of k processes, have fewer negatives than one batch of the same examples, and another loss.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from regard.bundle import Bundle
from regard.data.batch import Batch, example_index, per_sequence, sequences
from regard.data.blocks import Blocks
from regard.data.fields import Fields, TextField
from regard.data.rows import Lengths, Numbers, Rows
from regard.data.store import Store
from regard.models.build import build_dual_encoder
from regard.models.dual_encoder import DualEncoder
from regard.nn.ragged import Ragged
from regard.predict.reply_ranker import ReplyRanker, history_tokens, reply_tokens
from regard.recipe import Corpus, Filter
from regard.score import Score
from regard.score.dialogue import draw_candidates, rank_of_first, recall_at
from regard.tasks.chat import ChatTask, examples_of
from regard.tasks.task import Predictions, ProcessGroup, Sample, Task

SAMPLES = 3  # shown at each validation
FEW, MANY = 10, 1000
"""Numbers of replies to choose from, of which one is the right one."""
MOST = 1, 5
"""The ranks up to which the right reply counts as found."""


@dataclass(frozen=True, eq=False)
class RetrievalBatch(Batch):
    """Histories and their replies."""

    history: Ragged = sequences()
    """Token ids of each history, after `<s>`."""
    reply: Ragged = sequences()
    """Token ids of each reply, between `<s>` and `</s>`."""
    history_B: Int64[Tensor, " B"] = per_sequence(fill=-1)
    """A number for each history; equal histories have the same number."""
    reply_B: Int64[Tensor, " B"] = per_sequence(fill=-1)
    """A number for each reply; equal replies have the same number. That of what fills up the batch is -1."""
    index_B: Int64[Tensor, " B"] = example_index()
    """Numbers of the examples."""

    @property
    def units(self) -> int:
        """The number of replies."""
        return int((self.reply_B >= 0).sum())

    @property
    def counted_B(self) -> Bool[Tensor, " B"]:
        """True for an example, and False for what fills up the batch."""
        return self.reply_B >= 0

    @property
    def is_negative_BB(self) -> Bool[Tensor, "B B"]:
        """True where the reply of a column is a negative for the history of a row, and the other way round.

        A reply that follows the same history in another example, or has the same text as the right one, is no negative.
        """
        same_BB = (self.history_B[:, None] == self.history_B) | (self.reply_B[:, None] == self.reply_B)
        return ~same_BB & self.counted_B & self.counted_B[:, None]


@dataclass(frozen=True)
class RetrievalTask(Task):
    """Selection of replies, of the field `reply`, by histories, of the field `history`."""

    fields: Fields | None = None
    """The fields, whose texts tell equal replies from others if subwords are sampled."""

    def with_fields(self, fields: Fields) -> Self:
        """Return the task with its fields."""
        return type(self)(self.recipe, fields)

    @property
    def unit(self) -> str:
        """The loss is averaged over examples, each with one reply."""
        return "replies"

    @property
    def metrics(self) -> Sequence[str]:
        """Recall@1 of few candidates can select the best weights."""
        return ("recall",)

    @property
    def divisible(self) -> bool:
        """A part of a batch has fewer negatives."""
        return False

    @property
    def filters(self) -> Collection[Filter]:
        """The lengths of a history and a reply are not compared, and a reply may repeat what was said."""
        return ChatTask(self.recipe).filters

    def sequence_lengths(self, lengths: Mapping[str, Lengths]) -> tuple[Numbers, ...]:
        """Return the lengths of what is left of each history with one symbol, and of its reply with two."""
        longest = self.recipe.data.longest
        history, reply = (np.minimum(lengths[name], longest).astype(np.int64) for name in ("history", "reply"))
        return history + 1, reply + 2

    def collate(self, rows: Mapping[str, Rows], index: Numbers) -> RetrievalBatch:
        """Cut the beginnings of long histories and the ends of long replies off, and add symbols."""
        history = history_tokens(rows["history"], self.recipe.data.longest).to_ragged()
        reply = reply_tokens(rows["reply"], self.recipe.data.longest).to_ragged()
        history_B, reply_B = self._numbers("history", rows["history"]), self._numbers("reply", rows["reply"])
        return RetrievalBatch(history, reply, history_B, reply_B, torch.from_numpy(index))

    def build(self, sizes: Mapping[str, int]) -> DualEncoder:
        """Build a dual encoder with encoders of the recipe's family."""
        return build_dual_encoder(self.recipe.model, sizes["reply"], self.recipe.chat)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the cross-entropy of the right replies and histories, with label smoothing.

        It is the mean of two directions (Radford et al. 2021, figure 3): the reply among the replies of the batch, and
        the history among its histories.
        """
        assert isinstance(batch, RetrievalBatch)
        return _contrastive_loss(_logits(model, batch), batch, self.recipe.train.smoothing)

    def evaluate(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the summed cross-entropy without smoothing, and the number of histories whose reply is ranked first.

        It is ranked among the replies of the batch.
        """
        with torch.no_grad():
            assert isinstance(batch, RetrievalBatch)
            logits_BB = _logits(model, batch)
            best_B = logits_BB.masked_fill(~batch.is_negative_BB, -torch.inf).amax(-1)
            right_B = (logits_BB.diagonal() > best_B) & batch.counted_B
            loss = _contrastive_loss(logits_BB, batch, 0.0)
            return torch.stack([loss, right_B.sum().to(loss.dtype)])

    def quality(self, sums: Sequence[float], units: int) -> dict[str, float]:
        """Return loss and accuracy of a corpus: recall@1 among the replies of a batch."""
        loss, right = sums
        return {"loss": loss / units, "accuracy": right / units}

    def units(self, lengths: Mapping[str, Lengths]) -> int:
        """Return the number of replies."""
        return len(lengths["reply"])

    def flops(self, model: nn.Module, lengths: Mapping[str, Lengths]) -> float:
        """Return the operations of both encoders."""
        assert isinstance(model, DualEncoder)
        history, reply = self.sequence_lengths(lengths)
        return model.forward_flops(history.tolist(), reply.tolist())

    def field_of(self, parameter: str) -> str:
        """Return `reply`: both fields have one vocabulary."""
        return "reply"

    def predict(
        self, model: nn.Module, fields: Fields, store: Store | Blocks, corpus: Corpus, count: int, group: ProcessGroup
    ) -> Predictions:
        """Select replies to some histories among few candidates; return recall@1 and @5."""
        histories, references = examples_of(store, fields, count)
        selections = self._select(model, fields, store, histories, references, FEW, group)
        shown = zip(histories[:SAMPLES], references[:SAMPLES], selections[:SAMPLES], strict=True)
        samples = tuple(Sample(" / ".join(turns), reference, selection.text) for turns, reference, selection in shown)
        return Predictions(_recalls([selection.few for selection in selections]), samples)

    def final_scores(
        self, model: nn.Module, fields: Fields, store: Store | Blocks, corpus: Corpus, group: ProcessGroup
    ) -> tuple[Score, ...]:
        """Select replies to all histories of a corpus; return recall@1 and @5 of few and of many candidates."""
        histories, references = examples_of(store, fields, len(store))
        selections = self._select(model, fields, store, histories, references, MANY, group)
        few, many = (_recalls([getattr(selection, name) for selection in selections]) for name in ("few", "many"))
        return (*few, *(score for score in many if score not in few))  # a small corpus has only few candidates

    def predictor(self, bundle: Bundle, precision: str = "auto") -> ReplyRanker:
        """Return a ranker of replies."""
        return ReplyRanker.from_bundle(bundle, precision)

    def _numbers(self, name: str, rows: Rows) -> Int64[Tensor, " B"]:
        """Return a number for each row; rows of the same text have the same number."""
        texts: list[bytes] | list[str]
        if self.recipe.text.sampling:  # a text has several segmentations
            assert self.fields is not None, "with_fields gives the fields"
            field = self.fields[name]
            assert isinstance(field, TextField)
            texts = [field.decode(ids.tolist()) for ids in np.split(rows.ids, rows.offsets[1:-1])]
        else:
            texts = [ids.tobytes() for ids in np.split(rows.ids, rows.offsets[1:-1])]
        numbers: dict[bytes | str, int] = {}
        return torch.tensor([numbers.setdefault(text, len(numbers)) for text in texts], dtype=torch.int64)

    def _select(
        self,
        model: nn.Module,
        fields: Fields,
        store: Store | Blocks,
        histories: Sequence[Sequence[str]],
        references: Sequence[str],
        size: int,
        group: ProcessGroup,
    ) -> list["_Selection"]:
        """Rank candidates for each history, each process its share; return all results on every process."""
        assert isinstance(model, DualEncoder)
        assert isinstance(store, Store), "the recipe allows no blocks in chat"
        ranker = ReplyRanker(model, fields, longest=self.recipe.data.longest, turns=self.recipe.data.turns)
        pool = list(dict.fromkeys(store.text(np.arange(len(store)))["reply"]))
        number = {reply: place for place, reply in enumerate(pool)}
        mine = range(group.rank, len(histories), group.world_size)

        def candidates(index: int) -> Numbers:
            return draw_candidates(number[references[index]], len(pool), size, seed=index)

        is_used = np.zeros(len(pool), bool)
        for index in mine:  # they are drawn again below: all together would take much memory
            is_used[candidates(index)] = True
        replies = ranker.reply_vectors([reply for reply, used in zip(pool, is_used, strict=True) if used])
        row_of = np.cumsum(is_used) - 1
        part = []
        for query, index in zip(ranker.history_vectors([histories[index] for index in mine]), mine, strict=True):
            places = candidates(index)
            similarity = replies[row_of[places]] @ query
            best = pool[places[int(similarity[:FEW].argmax())]]
            part.append("\t".join([str(rank_of_first(similarity[:FEW])), str(rank_of_first(similarity)), best]))
        gathered = [line.split("\t", 2) for line in group.gather_strided(part)]
        few, many = min(FEW, len(pool)), min(size, len(pool))
        return [_Selection((int(first), few), (int(second), many), best) for first, second, best in gathered]


class _Selection(NamedTuple):
    """The rank of the right reply, and the number of candidates: of the few and of the many."""

    few: tuple[int, int]
    many: tuple[int, int]
    text: str
    """The best of the few."""


def _recalls(ranks: Sequence[tuple[int, int]]) -> tuple[Score, ...]:
    """Return recall@1 and @5 of ranks with the numbers of candidates, which are the same for all histories."""
    candidates = max((size for _, size in ranks), default=0)
    return tuple(recall_at([rank for rank, _ in ranks], most, candidates) for most in MOST if most < candidates)


def _logits(model: nn.Module, batch: RetrievalBatch) -> Float[Tensor, "B B"]:
    """Return the similarities of histories (rows) and replies (columns), multiplied by the inverse temperature."""
    assert isinstance(model, DualEncoder)
    history_BD, reply_BD = model.history_vectors(batch.history), model.reply_vectors(batch.reply)
    # The inverse temperature would multiply the rounding errors of bfloat16.
    with torch.autocast(history_BD.device.type, enabled=False):
        return model.scale * (history_BD @ reply_BD.T)


def _contrastive_loss(logits_BB: Float[Tensor, "B B"], batch: RetrievalBatch, smoothing: float) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of both directions, summed over the examples."""
    allowed_BB = batch.is_negative_BB.fill_diagonal_(True)
    logits_BB = logits_BB.masked_fill(~allowed_BB, -torch.inf)
    allowed_B = allowed_BB.sum(-1)  # as many in both directions
    loss_B = torch.zeros_like(logits_BB[0])
    for directed_BB in (logits_BB, logits_BB.T):
        logprobs_BB = directed_BB.log_softmax(-1)
        uniform_B = logprobs_BB.masked_fill(~allowed_BB, 0.0).sum(-1) / allowed_B
        loss_B = loss_B - (1 - smoothing) * logprobs_BB.diagonal() - smoothing * uniform_B
    return (loss_B / 2 * batch.counted_B).sum()
