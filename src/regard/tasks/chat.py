"""Chat: the turns of a dialogue in, a reply out, by an encoder-decoder of any family."""

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor, nn

from regard.bundle import Bundle
from regard.data.batch import Batch, example_index, per_token, sequences
from regard.data.blocks import Blocks
from regard.data.fields import Fields, TurnsField
from regard.data.rows import Lengths, Numbers, Rows
from regard.data.store import Store
from regard.models.build import build
from regard.models.seq2seq import Seq2Seq
from regard.nn.cross_entropy import IGNORED
from regard.nn.ragged import NestedRagged, Ragged
from regard.predict.chatbot import Chatbot, history_inputs, is_hierarchical
from regard.recipe import Corpus, Filter
from regard.score import Score, bleu, exact_match
from regard.score.dialogue import distinct
from regard.tasks.task import Predictions, ProcessGroup, Sample, Task
from regard.tasks.token_loss import teacher_forced_loss, token_sums
from regard.text import END, START

TURN_LENGTH = 12  # tokens of a turn, as far as costs are estimated
SAMPLES = 3  # shown at each validation
COLLAPSED = 0.3  # share of the most frequent reply from which a warning is logged, if references repeat less
MIN_REPLIES = 50  # replies from which such a share says something

_log = logging.getLogger("regard")


@dataclass(frozen=True, eq=False)
class ChatBatch(Batch):
    """Histories and their replies, for teacher forcing."""

    history: Ragged = sequences()
    """Token ids of each history; see `history_inputs`."""
    reply: Ragged = sequences()
    """The decoder's input: `<s>`, then the reply."""
    labels_N: Int64[Tensor, " N"] = per_token("reply", fill=IGNORED)
    """The expected output for each token of `reply`: the reply, then `</s>`."""
    index_B: Int64[Tensor, " B"] = example_index()
    """Numbers of the examples."""

    @property
    def units(self) -> int:
        """The number of tokens of the replies, `</s>` included."""
        return self.reply.tokens

    @property
    def inputs(self) -> Ragged | NestedRagged:
        """What the encoder reads."""
        return self.history


@dataclass(frozen=True, eq=False)
class HierarchicalChatBatch(ChatBatch):
    """Histories as turns of tokens, and their replies."""

    sizes: Ragged = sequences(fill=0)
    """The number of tokens of each turn of each history."""

    @property
    def inputs(self) -> NestedRagged:
        """What the encoder reads."""
        return NestedRagged(self.history, self.sizes)


@dataclass(frozen=True)
class ChatTask(Task):
    """Replies of the field `reply` to the turns of the field `history`."""

    @property
    def filters(self) -> Collection[Filter]:
        """The lengths of a history and a reply are not compared, and a reply may repeat what was said."""
        return tuple(name for name in self.recipe.data.drop if name not in ("ratio", "copy"))

    @property
    def metrics(self) -> Sequence[str]:
        """BLEU of greedy replies can select the best weights."""
        return ("bleu",)

    def sequence_lengths(self, lengths: Mapping[str, Lengths]) -> tuple[Numbers, ...]:
        """Return the lengths of what is left of each history, and of its reply with one symbol."""
        history = np.minimum(lengths["history"], self.recipe.data.longest).astype(np.int64)
        return np.maximum(history, 1), lengths["reply"] + np.int64(1)

    def collate(self, rows: Mapping[str, Rows], index: Numbers) -> ChatBatch:
        """Cut the beginnings of long histories off, and add the symbols that decoder and loss expect."""
        tokens, sizes = history_inputs(rows["history"], is_hierarchical(self.recipe.model), self.recipe.data.longest)
        reply = rows["reply"].prepend(START).to_ragged()
        labels_N = torch.from_numpy(rows["reply"].append(END).ids.astype(np.int64))
        if sizes is None:
            return ChatBatch(tokens, reply, labels_N, torch.from_numpy(index))
        return HierarchicalChatBatch(tokens, reply, labels_N, torch.from_numpy(index), sizes)

    def build(self, sizes: Mapping[str, int]) -> Seq2Seq:
        """Build the encoder-decoder of the recipe's family."""
        return build(self.recipe.model, sizes["history"], sizes["reply"])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the cross-entropy with label smoothing, and with R-Drop if the recipe asks for it."""
        assert isinstance(model, Seq2Seq)
        assert isinstance(batch, ChatBatch)
        settings = self.recipe.train
        return teacher_forced_loss(model, batch.inputs, batch.reply, batch.labels_N, settings.smoothing, settings.rdrop)

    def evaluate(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return summed cross-entropy and number of correct tokens, teacher-forced."""
        assert isinstance(model, Seq2Seq)
        assert isinstance(batch, ChatBatch)
        with torch.no_grad():
            states_ND = model.states(batch.inputs, batch.reply)
        return token_sums(model.output, states_ND, batch.labels_N)

    def units(self, lengths: Mapping[str, Lengths]) -> int:
        """Return the number of tokens of the replies, `</s>` included."""
        return int(lengths["reply"].sum()) + len(lengths["reply"])

    def flops(self, model: nn.Module, lengths: Mapping[str, Lengths]) -> float:
        """Return the operations of the model; turns are assumed to have about `TURN_LENGTH` tokens."""
        assert isinstance(model, Seq2Seq)
        history, reply = (numbers.tolist() for numbers in self.sequence_lengths(lengths))
        if is_hierarchical(self.recipe.model):
            return model.forward_flops([self._assumed_turns(tokens) for tokens in history], reply)
        return model.forward_flops(history, reply)

    def field_of(self, parameter: str) -> str:
        """Return `history` for the embedding of the encoder, and `reply` for all other matrices with a vocabulary."""
        return "history" if parameter.startswith("encoder") else "reply"

    def predict(
        self, model: nn.Module, fields: Fields, store: Store | Blocks, corpus: Corpus, count: int, group: ProcessGroup
    ) -> Predictions:
        """Reply to some histories greedily; score the replies with BLEU and distinct-1 and -2."""
        histories, references = examples_of(store, fields, count)
        replies = self._reply(model, fields, histories, 1, group)
        if group.rank == 0:
            warn_if_collapsed(replies, references)
        shown = zip(histories[:SAMPLES], references[:SAMPLES], replies[:SAMPLES], strict=True)
        samples = tuple(Sample(" / ".join(turns), reference, reply) for turns, reference, reply in shown)
        return Predictions(self._scores(replies, references), samples)

    def final_scores(
        self, model: nn.Module, fields: Fields, store: Store | Blocks, corpus: Corpus, group: ProcessGroup
    ) -> tuple[Score, ...]:
        """Reply to a whole corpus by beam search, and compute every score that is reported."""
        histories, references = examples_of(store, fields, len(store))
        replies = self._reply(model, fields, histories, self.recipe.decode.beam, group)
        exact = exact_match(replies, references, lowercase=self.recipe.text.lowercase)
        return *self._scores(replies, references), exact

    def predictor(self, bundle: Bundle, precision: str = "auto") -> Chatbot:
        """Return a chatbot."""
        return Chatbot.from_bundle(bundle, precision)

    def _reply(
        self, model: nn.Module, fields: Fields, histories: Sequence[Sequence[str]], beam: int, group: ProcessGroup
    ) -> list[str]:
        """Reply to histories, each process its share; return all replies on every process."""
        assert isinstance(model, Seq2Seq)
        data, hierarchical = self.recipe.data, is_hierarchical(self.recipe.model)
        chatbot = Chatbot(
            model, fields, self.recipe.decode, longest=data.longest, turns=data.turns, hierarchical=hierarchical
        )
        replies = chatbot.reply(histories[group.rank :: group.world_size], beam=beam)
        return group.gather_strided([reply.text for reply in replies])

    def _assumed_turns(self, tokens: int) -> list[int]:
        """Return the tokens of each turn of a history, as if all turns were equally long."""
        turns = min(-(-tokens // TURN_LENGTH), self.recipe.data.turns)
        return [len(range(number, tokens, turns)) for number in range(turns)]

    def _scores(self, replies: Sequence[str], references: Sequence[str]) -> tuple[Score, ...]:
        """Return BLEU, and the share of distinct words and pairs of words; case is ignored with lower-case text."""
        score = bleu(replies, references, lowercase=self.recipe.text.lowercase)
        return score, distinct(replies, 1), distinct(replies, 2)


def examples_of(store: Store | Blocks, fields: Fields, count: int) -> tuple[list[list[str]], list[str]]:
    """Return the turns of `count` histories, and their replies; a smaller count gives a prefix of a larger one."""
    assert isinstance(store, Store), "the recipe allows no blocks in chat"
    field = fields["history"]
    assert isinstance(field, TurnsField)
    order = np.random.default_rng(0).permutation(len(store)) if count < len(store) else np.arange(len(store))
    columns = store.text(order[:count])
    return [field.parts(value) for value in columns["history"]], columns["reply"]


def warn_if_collapsed(replies: Sequence[str], references: Sequence[str]) -> None:
    """Log a warning if the model gives one reply to many histories, as in "I don't know" (Li et al. 2016)."""
    if len(replies) < MIN_REPLIES:
        return
    reply, count = Counter(replies).most_common(1)[0]
    share, usual = count / len(replies), references.count(reply) / len(references)
    if share >= COLLAPSED and share > 2 * usual:
        _log.warning(
            "%.0f %% of the replies to validation data are '%s', which %.0f %% of the references are; a model that "
            "does not read its history replies so. Train longer, or rerank by mutual information (docs/chat.md)",
            *(100 * share, shorten(reply, 80), 100 * usual),
        )
