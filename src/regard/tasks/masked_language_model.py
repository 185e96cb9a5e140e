"""Masked language modelling: predict masked tokens of a text, by an encoder-only Transformer (BERT style).

There is no next-sentence prediction (Liu et al. 2019, §4.2). Masks are drawn anew in every epoch; those of validation
data depend on nothing but the number of an example and the position of a token, so that losses can be compared.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from regard.bundle import Bundle
from regard.data.batch import Batch, RandomKey, example_index, per_token, sequences
from regard.data.blocks import Blocks
from regard.data.fields import Fields, TextField
from regard.data.masking import Masking, masked_counts
from regard.data.rows import Lengths, Numbers, Rows
from regard.data.store import Store
from regard.models.build import build_masked_language_model
from regard.models.masked_language_model import MaskedLanguageModel
from regard.nn.cross_entropy import IGNORED, ROW_MULTIPLE
from regard.nn.ragged import Ragged
from regard.predict import MaskFiller
from regard.recipe import MASK, Corpus
from regard.tasks.task import Predictions, ProcessGroup, Sample, Task
from regard.tasks.token_loss import rdrop_loss, token_loss, token_sums
from regard.text import END, START, Tokenizer
from regard.text.settings import SPACE

SAMPLES = 3  # shown at each validation
_VALIDATION = (0,)  # the key of masks that never change


@dataclass(frozen=True, eq=False)
class MaskedLanguageModelBatch(Batch):
    """Texts in which some tokens are replaced."""

    tokens: Ragged = sequences()
    """What the model reads."""
    labels_N: Int64[Tensor, " N"] = per_token("tokens", fill=IGNORED)
    """The original token where it is to be predicted, and `IGNORED` elsewhere."""
    index_B: Int64[Tensor, " B"] = example_index()
    """Numbers of the examples."""

    @property
    def units(self) -> int:
        """The number of predicted tokens."""
        return int((self.labels_N != IGNORED).sum())


@dataclass(frozen=True)
class MaskedLanguageModelTask(Task):
    """A masked language model over the field `text`."""

    masking: Masking | None = None
    """How tokens are masked; known with the vocabulary."""

    def with_fields(self, fields: Fields) -> Self:
        """Return the task with the masking of a vocabulary."""
        tokenizer = fields.tokenizers["text"]
        assert MASK in tokenizer.settings.symbols, "the recipe adds it"
        masking = Masking(tokenizer, tokenizer.id(MASK), self.recipe.language_model.whole_words)
        return type(self)(self.recipe, masking)

    @property
    def unit(self) -> str:
        """What the loss is divided by."""
        return "masked tokens"

    def sequence_lengths(self, lengths: Mapping[str, Lengths]) -> tuple[Numbers, ...]:
        """Return the tokens that the model reads: a block, or a document between `<s>` and `</s>`."""
        return (lengths["text"] + np.int64(2 if self.recipe.data.block is None else -1),)

    def collate(self, rows: Mapping[str, Rows], index: Numbers) -> MaskedLanguageModelBatch:
        """Mask tokens in a way that depends on the numbers of the examples alone."""
        return self._mask(rows, index, RandomKey(_VALIDATION, index))

    def collate_for_training(
        self, rows: Mapping[str, Rows], index: Numbers, draw: RandomKey
    ) -> MaskedLanguageModelBatch:
        """Mask other tokens in every epoch."""
        return self._mask(rows, index, draw)

    def _mask(self, rows: Mapping[str, Rows], index: Numbers, draw: RandomKey) -> MaskedLanguageModelBatch:
        """Mask tokens of documents between `<s>` and `</s>`, or of blocks, whose last id begins the next block."""
        assert self.masking is not None, "with_fields gives the masking of a vocabulary"
        texts, counts = rows["text"], self._counts({"text": rows["text"].lengths})
        if self.recipe.data.block is None:
            texts = texts.prepend(START).append(END)
        else:
            is_kept = np.ones(texts.ids.size, bool)
            is_kept[texts.offsets[1:] - 1] = False
            texts = Rows(texts.ids[is_kept], texts.offsets - np.arange(len(texts) + 1))
        masked, labels = self.masking.apply(texts, counts, draw.key, draw.numbers)
        return MaskedLanguageModelBatch(masked.to_ragged(), torch.from_numpy(labels), torch.from_numpy(index))

    def _counts(self, lengths: Mapping[str, Lengths]) -> Numbers:
        """Return the number of predicted tokens of each record; the symbols inside a block count as its tokens."""
        tokens = lengths["text"] if self.recipe.data.block is None else self.sequence_lengths(lengths)[0]
        return masked_counts(tokens, self.recipe.language_model.masked)

    def build(self, sizes: Mapping[str, int]) -> MaskedLanguageModel:
        """Build an encoder-only Transformer from the encoder's settings of the recipe."""
        return build_masked_language_model(self.recipe.model, sizes["text"])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the cross-entropy of the masked tokens with label smoothing, and with R-Drop if the recipe asks."""
        assert isinstance(model, MaskedLanguageModel)
        assert isinstance(batch, MaskedLanguageModelBatch)
        settings = self.recipe.train
        if not settings.rdrop:
            states_MD, labels_M = self._predicted(model.states(batch.tokens), batch)
            return token_loss(model.output, model.head(states_MD), labels_M, settings.smoothing)
        halves = model.states(batch.tokens.repeated()).chunk(2)
        (first_MD, labels_M), (second_MD, _) = (self._predicted(states_ND, batch) for states_ND in halves)
        states_MD = model.head(torch.cat([first_MD, second_MD]))
        return rdrop_loss(model.output, states_MD, labels_M, settings.smoothing, settings.rdrop)

    def evaluate(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return summed cross-entropy and number of correct tokens over the masked tokens."""
        assert isinstance(model, MaskedLanguageModel)
        assert isinstance(batch, MaskedLanguageModelBatch)
        with torch.no_grad():
            states_MD, labels_M = self._predicted(model.states(batch.tokens), batch)
            return token_sums(model.output, model.head(states_MD), labels_M)

    def max_predicted(self, tokens: int, sequences: int) -> int:
        """Return a number of masked tokens that no batch of this size exceeds."""
        settings = self.recipe.language_model
        if settings.whole_words:  # a word may be longer than what is left to be masked
            return tokens
        return min(tokens, math.ceil(settings.masked * tokens) + sequences)  # at least one in each sequence

    def _predicted(
        self, states_ND: Float[Tensor, "N D"], batch: MaskedLanguageModelBatch
    ) -> tuple[Float[Tensor, "M D"], Int64[Tensor, " M"]]:
        """Return the states and labels of the masked tokens: all others need no output layer, which is costly.

        On a CPU these are few more rows than there are masked tokens. On other devices, their number depends on the
        size of the batch alone, so that nothing waits for the device and a CUDA graph can be captured.
        """
        labels_N = batch.labels_N
        if labels_N.device.type == "cpu" and not torch.compiler.is_compiling():
            max_rows = batch.units
        else:
            max_rows = self.max_predicted(labels_N.shape[0], len(batch))
        return gather_predicted(states_ND, labels_N, max_rows)

    def units(self, lengths: Mapping[str, Lengths]) -> int:
        """Return the number of predicted tokens; with whole words, about that many."""
        return int(self._counts(lengths).sum())

    def flops(self, model: nn.Module, lengths: Mapping[str, Lengths]) -> float:
        """Return the operations of the encoder, and of the output layer for the masked tokens."""
        assert isinstance(model, MaskedLanguageModel)
        return model.forward_flops(self.sequence_lengths(lengths)[0].tolist(), self.units(lengths))

    @torch.no_grad()
    def predict(
        self, model: nn.Module, fields: Fields, store: Store | Blocks, corpus: Corpus, count: int, group: ProcessGroup
    ) -> Predictions:
        """Fill the masks of a few validation examples, to show."""
        assert isinstance(model, MaskedLanguageModel)
        field = fields["text"]
        assert isinstance(field, TextField)
        index = np.linspace(0, len(store) - 1, min(SAMPLES, len(store))).astype(np.int64)
        batch = self.collate(store.gather(index), index)
        best_N = model(batch.tokens.to(model.output.weight.device)).argmax(-1).cpu()
        is_label_N = batch.labels_N != IGNORED
        originals = torch.where(is_label_N, batch.labels_N, batch.tokens.values)
        outputs = torch.where(is_label_N, best_N, batch.tokens.values)
        samples = []
        for begin, end in zip(batch.tokens.offsets[:-1].tolist(), batch.tokens.offsets[1:].tolist(), strict=True):
            original, output = originals[begin:end].tolist(), outputs[begin:end].tolist()
            masked = _masked_text(field.tokenizer, original, is_label_N[begin:end].tolist())
            samples.append(Sample(masked, field.tokenizer.decode(original), field.tokenizer.decode(output)))
        return Predictions((), tuple(samples))

    def predictor(self, bundle: Bundle, precision: str = "auto") -> MaskFiller:
        """Return a mask filler."""
        return MaskFiller.from_bundle(bundle, precision)


def gather_predicted(
    states_ND: Float[Tensor, "N D"], labels_N: Int64[Tensor, " N"], max_rows: int
) -> tuple[Float[Tensor, "M D"], Int64[Tensor, " M"]]:
    """Return states and labels of at most `max_rows` tokens whose label is not `IGNORED`, without a synchronisation.

    Rows with the label `IGNORED` make their number a multiple of `ROW_MULTIPLE`, or all tokens.
    """
    max_rows, tokens = -(-max_rows // ROW_MULTIPLE) * ROW_MULTIPLE, labels_N.shape[0]
    if max_rows >= tokens:
        return states_ND, labels_N
    # Token number i of those predicted goes to place i, and all others to one place more, which is cut off.
    predicted_N = labels_N != IGNORED
    place_N = torch.where(predicted_N, predicted_N.cumsum(0) - 1, max_rows)
    token_N = torch.arange(tokens, device=labels_N.device)
    token_M = token_N.new_zeros(max_rows + 1).scatter(0, place_N, token_N)[:max_rows]
    labels_M = labels_N.new_full((max_rows + 1,), IGNORED).scatter(0, place_N, labels_N)[:max_rows]
    return states_ND.index_select(0, token_M), labels_M


def _masked_text(tokenizer: Tokenizer, ids: list[int], is_masked: list[bool]) -> str:
    """Return the text of ids with a mask in place of some, with the spaces of the original."""
    mask, text, part = tokenizer.id(MASK), "", list[int]()
    for number, hidden in zip(ids, is_masked, strict=True):
        if hidden:
            text += tokenizer.decode(part)
            text += " " * bool(text and tokenizer.piece(number).startswith(SPACE))
            part = []
        part.append(mask if hidden else number)
    return text + tokenizer.decode(part)
