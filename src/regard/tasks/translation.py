"""Translation: a source text in, a target text out, by an encoder-decoder of any family."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor, nn

from regard.bundle import Bundle
from regard.data.batch import Batch, example_index, per_token, sequences
from regard.data.blocks import Blocks
from regard.data.fields import Fields
from regard.data.rows import Lengths, Numbers, Rows
from regard.data.store import Store
from regard.models.build import build
from regard.models.seq2seq import Seq2Seq
from regard.nn.cross_entropy import IGNORED
from regard.nn.ragged import Ragged
from regard.predict import TranslationRequest, Translator
from regard.predict.alignment import word_weights
from regard.predict.scoring import tokenize_pair, validated_alignment_head
from regard.recipe import Corpus
from regard.score import Alignment, Score, bleu, bleu_lowercase_tokenised, chrf, exact_match
from regard.tasks.task import AttentionMap, Predictions, ProcessGroup, Sample, Task
from regard.tasks.token_loss import teacher_forced_loss, token_sums
from regard.text import END, START, words

SAMPLES = 3  # shown at each validation


@dataclass(frozen=True, eq=False)
class TranslationBatch(Batch):
    """Sentence pairs for teacher forcing."""

    source: Ragged = sequences()
    """Source ids, each sequence followed by `</s>`."""
    target: Ragged = sequences()
    """The decoder's input: `<s>`, then the target."""
    labels_N: Int64[Tensor, " N"] = per_token("target", fill=IGNORED)
    """The expected output for each token of `target`: the target, then `</s>`."""
    index_B: Int64[Tensor, " B"] = example_index()
    """Numbers of the examples."""

    @property
    def units(self) -> int:
        """The number of target tokens, `</s>` included."""
        return self.target.tokens


@dataclass(frozen=True)
class TranslationTask(Task):
    """Translation from the field `source` to the field `target`."""

    @property
    def tagged(self) -> str:
        """Tags, such as the target language, are put before the source."""
        return "source"

    @property
    def metrics(self) -> Sequence[str]:
        """BLEU of greedy translations can select the best weights."""
        return ("bleu",)

    def sequence_lengths(self, lengths: Mapping[str, Lengths]) -> tuple[Numbers, ...]:
        """Return the lengths of source and target with one symbol each."""
        return lengths["source"] + np.int64(1), lengths["target"] + np.int64(1)

    def collate(self, rows: Mapping[str, Rows], index: Numbers) -> TranslationBatch:
        """Add start and end symbols where encoder, decoder and loss expect them."""
        labels = rows["target"].append(END)
        return TranslationBatch(
            rows["source"].append(END).to_ragged(),
            rows["target"].prepend(START).to_ragged(),
            torch.from_numpy(labels.ids.astype(np.int64)),
            torch.from_numpy(index),
        )

    def build(self, sizes: Mapping[str, int]) -> Seq2Seq:
        """Build the encoder-decoder of the recipe's family."""
        return build(self.recipe.model, sizes["source"], sizes["target"])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the cross-entropy with label smoothing, and with R-Drop if the recipe asks for it."""
        assert isinstance(model, Seq2Seq)
        assert isinstance(batch, TranslationBatch)
        settings = self.recipe.train
        return teacher_forced_loss(
            model, batch.source, batch.target, batch.labels_N, settings.smoothing, settings.rdrop
        )

    def evaluate(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return summed cross-entropy and number of correct tokens, teacher-forced."""
        assert isinstance(model, Seq2Seq)
        assert isinstance(batch, TranslationBatch)
        with torch.no_grad():
            states_ND = model.states(batch.source, batch.target)
        return token_sums(model.output, states_ND, batch.labels_N)

    def units(self, lengths: Mapping[str, Lengths]) -> int:
        """Return the number of target tokens, `</s>` included."""
        return int(lengths["target"].sum()) + len(lengths["target"])

    def flops(self, model: nn.Module, lengths: Mapping[str, Lengths]) -> float:
        """Return the operations of encoder, decoder and output layer."""
        assert isinstance(model, Seq2Seq)
        source, target = self.sequence_lengths(lengths)
        return model.forward_flops(source.tolist(), target.tolist())

    def field_of(self, parameter: str) -> str:
        """Return `source` for the embedding of the encoder, and `target` for all other matrices with a vocabulary."""
        return "source" if parameter.startswith("encoder") else "target"

    def predict(
        self, model: nn.Module, fields: Fields, store: Store | Blocks, corpus: Corpus, count: int, group: ProcessGroup
    ) -> Predictions:
        """Translate some sentences greedily; score them with BLEU and chrF."""
        sources, references = _texts(store, corpus, count)
        translations = self._translate(model, fields, sources, 1, group)
        shown = list(zip([source.line for source in sources], references, translations, strict=True))[:SAMPLES]
        return Predictions(self._scores(translations, references), tuple(Sample(*texts) for texts in shown))

    def final_scores(
        self, model: nn.Module, fields: Fields, store: Store | Blocks, corpus: Corpus, group: ProcessGroup
    ) -> tuple[Score, ...]:
        """Translate a whole corpus by beam search, and compute every score that is reported."""
        sources, references = _texts(store, corpus, len(store))
        translations = self._translate(model, fields, sources, self.recipe.decode.beam, group)
        return (
            *self._scores(translations, references),
            bleu_lowercase_tokenised(translations, references),
            exact_match(translations, references, lowercase=self.recipe.text.lowercase),
        )

    def after_training(self, model: nn.Module, fields: Fields) -> dict[str, Any]:
        """Return the attention head that aligns words best on the validation corpus."""
        assert isinstance(model, Seq2Seq)
        translator = Translator(model, fields.tokenizers, self.recipe.decode)
        head = validated_alignment_head(translator, self.recipe)
        return {} if head is None else {"alignment": head.to_scores()}

    def attention_maps(self, bundle: Bundle, samples: Sequence[Sample]) -> list[AttentionMap]:
        """Return the attention of the words of translations to the words of their sources."""
        return attention_maps(self.predictor(bundle), [(sample.input, sample.output) for sample in samples])

    def predictor(self, bundle: Bundle, precision: str = "auto") -> Translator:
        """Return a translator."""
        return Translator.from_bundle(bundle, precision)

    def _translate(
        self, model: nn.Module, fields: Fields, lines: Sequence[TranslationRequest], beam: int, group: ProcessGroup
    ) -> list[str]:
        """Translate lines, each process its share; return all translations on every process."""
        assert isinstance(model, Seq2Seq)
        translator = Translator(model, fields.tokenizers, self.recipe.decode, longest=self.recipe.data.longest)
        with torch.no_grad():
            part = [result.text for result in translator.translate(lines[group.rank :: group.world_size], beam=beam)]
        return group.gather_strided(part)

    def _scores(self, translations: Sequence[str], references: Sequence[str]) -> tuple[Score, ...]:
        """Return BLEU and chrF; case is ignored if the model writes lower case."""
        lower = self.recipe.text.lowercase
        return bleu(translations, references, lowercase=lower), chrf(translations, references, lowercase=lower)


def _texts(store: Store | Blocks, corpus: Corpus, count: int) -> tuple[list[TranslationRequest], list[str]]:
    """Return sources, with their tag, and targets of `count` pairs; a smaller count gives a prefix of a larger one.

    The sources have the numbers of their lines in the corpus, which warnings name.
    """
    assert isinstance(store, Store), "the recipe allows no blocks in translation"
    order = np.random.default_rng(0).permutation(len(store)) if count < len(store) else np.arange(len(store))
    texts, numbers = store.text(order[:count]), store.record_numbers(order[:count])
    lines = [f"{corpus.tag} {line}" if corpus.tag else line for line in texts["source"]]
    sources = [TranslationRequest(line, number=number) for line, number in zip(lines, numbers, strict=True)]
    return sources, texts["target"]


def attention_maps(
    translator: Translator, pairs: Sequence[tuple[str, str]], gold: Sequence[Alignment] | None = None
) -> list[AttentionMap]:
    """Return the attention of target words to source words, from the head that the translator aligns words with.

    Attention to the end symbol is left out, so a row may sum to less than one. A model without attention weights over
    its source has no maps.

    Args:
        translator: The translator.
        pairs: Sources and translations.
        gold: The correct word alignment of each pair, if known.
    """
    if translator.alignment_head is None or not pairs:
        return []
    tokenized = [tokenize_pair(translator, pair, number) for number, pair in enumerate(pairs, start=1)]
    attention = translator.attention_weights([tokens.ids for tokens in tokenized])
    maps = []
    for number, (pair, tokens, weights_TS) in enumerate(zip(pairs, tokenized, attention, strict=True)):
        keys, queries = (tuple(line[start:end] for start, end in words(line)) for line in pair)
        by_word = word_weights(weights_TS, *tokens.words)
        # Words without a token of their own have no row or column there.
        weights_QK = np.zeros((len(queries), len(keys)))
        weights_QK[: by_word.shape[0], : by_word.shape[1]] = by_word
        maps.append(AttentionMap(keys, queries, weights_QK, gold[number] if gold else None))
    return maps
