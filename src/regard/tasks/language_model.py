"""Language modelling: predict the next token of a text, by a decoder-only Transformer (GPT style)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor, nn

from regard.bundle import Bundle
from regard.data.batch import Batch, example_index, per_token, sequences
from regard.data.blocks import STARTS, Blocks
from regard.data.fields import Fields, TextField
from regard.data.rows import Lengths, Numbers, Rows
from regard.data.store import Store
from regard.models.build import build_language_model
from regard.models.language_model import LanguageModel
from regard.nn.cross_entropy import IGNORED
from regard.nn.ragged import Ragged
from regard.predict import TextGenerator
from regard.recipe import Corpus
from regard.tasks.task import Predictions, ProcessGroup, Sample, Task
from regard.tasks.token_loss import rdrop_loss, token_loss, token_sums
from regard.text import END, START

SAMPLES, PROMPT, CONTINUATION = 2, 16, 64  # samples shown at each validation, and their tokens


@dataclass(frozen=True, eq=False)
class LanguageModelBatch(Batch):
    """Texts for teacher forcing."""

    tokens: Ragged = sequences()
    """What the model reads."""
    labels_N: Int64[Tensor, " N"] = per_token("tokens", fill=IGNORED)
    """The next token at each position; `IGNORED` where that is the start of another document."""
    index_B: Int64[Tensor, " B"] = example_index()
    """Numbers of the examples."""

    @property
    def units(self) -> int:
        """The number of predicted tokens."""
        return int((self.labels_N != IGNORED).sum())


@dataclass(frozen=True)
class LanguageModelTask(Task):
    """A language model over the field `text`."""

    @property
    def multiline(self) -> bool:
        """Texts are documents with line breaks."""
        return True

    def sequence_lengths(self, lengths: Mapping[str, Lengths]) -> tuple[Numbers, ...]:
        """Return the tokens that the model reads: a block without its last token, or a document after `<s>`."""
        return (lengths["text"] + np.int64(1 if self.recipe.data.block is None else -1),)

    def collate(self, rows: Mapping[str, Rows], index: Numbers) -> LanguageModelBatch:
        """Shift each row by one token to get the labels; a document kept apart gets `<s>` and `</s>` first."""
        texts = rows["text"]
        if self.recipe.data.block is None:
            texts = texts.prepend(START).append(END)
        first, last = np.ones(texts.ids.size, bool), np.ones(texts.ids.size, bool)
        first[texts.offsets[:-1]], last[texts.offsets[1:] - 1] = False, False
        offsets = texts.offsets - np.arange(len(texts) + 1)
        labels = texts.ids[first].astype(np.int64)
        # Inside a block, `<s>` begins the next document. It always follows `</s>`, so there is nothing to learn.
        labels[labels == START] = IGNORED
        return LanguageModelBatch(
            Rows(texts.ids[last], offsets).to_ragged(), torch.from_numpy(labels), torch.from_numpy(index)
        )

    def build(self, sizes: Mapping[str, int]) -> LanguageModel:
        """Build a decoder-only Transformer from the decoder's settings of the recipe."""
        return build_language_model(self.recipe.model, sizes["text"])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the cross-entropy with label smoothing, and with R-Drop if the recipe asks for it."""
        assert isinstance(model, LanguageModel)
        assert isinstance(batch, LanguageModelBatch)
        settings = self.recipe.train
        if not settings.rdrop:
            return token_loss(model.output, model.states(batch.tokens), batch.labels_N, settings.smoothing)
        states_ND = model.states(batch.tokens.repeated())
        return rdrop_loss(model.output, states_ND, batch.labels_N, settings.smoothing, settings.rdrop)

    def evaluate(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return summed cross-entropy and number of correct tokens, teacher-forced."""
        assert isinstance(model, LanguageModel)
        assert isinstance(batch, LanguageModelBatch)
        with torch.no_grad():
            states_ND = model.states(batch.tokens)
        return token_sums(model.output, states_ND, batch.labels_N)

    def units(self, lengths: Mapping[str, Lengths]) -> int:
        """Return the number of predicted tokens; the `<s>` of a document inside a block is read but not predicted."""
        starts = int(lengths[STARTS].sum()) if STARTS in lengths else 0
        return int(self.sequence_lengths(lengths)[0].sum()) - starts

    def flops(self, model: nn.Module, lengths: Mapping[str, Lengths]) -> float:
        """Return the operations of the decoder and the output layer."""
        assert isinstance(model, LanguageModel)
        return model.forward_flops(self.sequence_lengths(lengths)[0].tolist())

    def predict(
        self, model: nn.Module, fields: Fields, store: Store | Blocks, corpus: Corpus, count: int, group: ProcessGroup
    ) -> Predictions:
        """Continue the beginnings of a few validation examples greedily, to show."""
        assert isinstance(model, LanguageModel)
        field = fields["text"]
        assert isinstance(field, TextField)
        rows = store.gather(np.linspace(0, len(store) - 1, min(SAMPLES, len(store))).astype(int))["text"]
        texts = [rows.ids[begin:end] for begin, end in zip(rows.offsets[:-1], rows.offsets[1:], strict=True)]
        lengths = [min(PROMPT, len(ids) // 2) for ids in texts]  # of a short text half is left to be continued
        prompts = [field.tokenizer.decode(ids[:length]) for ids, length in zip(texts, lengths, strict=True)]
        references = [
            field.tokenizer.decode(ids[length : length + CONTINUATION])
            for ids, length in zip(texts, lengths, strict=True)
        ]
        generator = TextGenerator(model, field.tokenizer, self.recipe.decode, window=self.recipe.data.block)
        outputs = [result.text for result in generator(prompts, max_tokens=CONTINUATION, beam=1)]
        return Predictions((), tuple(map(Sample, prompts, references, outputs)))

    def predictor(self, bundle: Bundle, precision: str = "auto") -> TextGenerator:
        """Return a text generator."""
        return TextGenerator.from_bundle(bundle, precision)
