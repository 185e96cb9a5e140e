"""Tagging: given words in, a tag for each of them out, such as parts of speech or named entities."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor, nn

from regard.bundle import Bundle
from regard.data.batch import Batch, example_index, per_token, sequences
from regard.data.blocks import Blocks
from regard.data.corpus import Reader
from regard.data.fields import Fields, TagsField, WordsField, split_parts
from regard.data.fields.lists import join_list, split_list
from regard.data.rows import Lengths, Numbers, Rows
from regard.data.store import Store
from regard.models.tagger import Tagger, build_tagger
from regard.nn.cross_entropy import IGNORED
from regard.nn.ragged import Ragged
from regard.predict import WordTagger
from regard.recipe import Corpus, Recipe
from regard.score import Score
from regard.score.tagging import MostFrequentTags, TaggingReport, tagging_report
from regard.tasks.task import Predictions, ProcessGroup, Sample, Task
from regard.tasks.token_loss import rdrop_loss, token_loss, token_sums
from regard.text import END, START

SAMPLES = 3  # shown at each validation


@dataclass(frozen=True, eq=False)
class TaggingBatch(Batch):
    """Sentences of given words, and their tags."""

    tokens: Ragged = sequences()
    """Token ids of each sentence, between `<s>` and `</s>`."""
    words: Ragged = sequences(fill=0)
    """The number of tokens of each word of each sentence."""
    tags_M: Int64[Tensor, " M"] = per_token("words", fill=IGNORED)
    """The tag of each word."""
    index_B: Int64[Tensor, " B"] = example_index()
    """Numbers of the examples."""

    @property
    def units(self) -> int:
        """The number of words."""
        return int((self.tags_M != IGNORED).sum())


@dataclass(frozen=True)
class TaggingTask(Task):
    """Tags of the field `tags` for the words of the field `words`."""

    @property
    def unit(self) -> str:
        """The loss is divided by the number of words."""
        return "words"

    @property
    def metrics(self) -> Sequence[str]:
        """The accuracy can select the best weights."""
        return ("accuracy",)

    def sequence_lengths(self, lengths: Mapping[str, Lengths]) -> tuple[Numbers, ...]:
        """Return the number of tokens with `<s>` and `</s>`, but without the stored end of each word."""
        return (lengths["words"] - lengths["tags"] + np.int64(2),)

    def collate(self, rows: Mapping[str, Rows], index: Numbers) -> TaggingBatch:
        """Separate the tokens of sentences from the sizes of their words, and add the symbols that encoders expect."""
        tokens, sizes = split_parts(rows["words"])
        return TaggingBatch(
            tokens.prepend(START).append(END).to_ragged(),
            sizes.to_ragged(),
            torch.from_numpy(rows["tags"].ids.astype(np.int64)),
            torch.from_numpy(index),
        )

    def build(self, sizes: Mapping[str, int]) -> Tagger:
        """Build the tagger of the recipe's family."""
        return build_tagger(self.recipe.model, sizes["words"], sizes["tags"], self.recipe.tagging.pooling)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the cross-entropy with label smoothing, and with R-Drop if the recipe asks for it."""
        assert isinstance(model, Tagger)
        assert isinstance(batch, TaggingBatch)
        settings = self.recipe.train
        if not settings.rdrop:
            return token_loss(model.output, model.states(batch.tokens, batch.words), batch.tags_M, settings.smoothing)
        states_MD = model.states(batch.tokens.repeated(), batch.words.repeated())
        return rdrop_loss(model.output, states_MD, batch.tags_M, settings.smoothing, settings.rdrop)

    def evaluate(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return summed cross-entropy and number of correct tags."""
        assert isinstance(model, Tagger)
        assert isinstance(batch, TaggingBatch)
        with torch.no_grad():
            states_MD = model.states(batch.tokens, batch.words)
        return token_sums(model.output, states_MD, batch.tags_M)

    def units(self, lengths: Mapping[str, Lengths]) -> int:
        """Return the number of words."""
        return int(lengths["tags"].sum())

    def quality(self, sums: Sequence[float], units: int) -> dict[str, float]:
        """Return loss and accuracy per word."""
        loss, correct = sums
        return {"loss": loss / max(units, 1), "accuracy": correct / max(units, 1)}

    def flops(self, model: nn.Module, lengths: Mapping[str, Lengths]) -> float:
        """Return the operations of the encoder and the output layer."""
        assert isinstance(model, Tagger)
        return model.forward_flops(self.sequence_lengths(lengths)[0].tolist(), self.units(lengths))

    def predict(
        self, model: nn.Module, fields: Fields, store: Store | Blocks, corpus: Corpus, count: int, group: ProcessGroup
    ) -> Predictions:
        """Tag some sentences; return the accuracy and a few of them to show."""
        words, gold = _sentences(store, count)
        predicted = self._tag(model, fields, words, group)
        accuracy = tagging_report(words, predicted, gold).accuracy
        shown = [
            Sample(*(" ".join(entries) for entries in sentence))
            for sentence in list(zip(words, gold, predicted, strict=True))[:SAMPLES]
        ]
        return Predictions((accuracy,), tuple(shown))

    def final_scores(
        self, model: nn.Module, fields: Fields, store: Store | Blocks, corpus: Corpus, group: ProcessGroup
    ) -> tuple[Score, ...]:
        """Tag a whole corpus; return accuracy, accuracy of words unseen in training and, for BIO tags, span F1."""
        words, gold = _sentences(store, len(store))
        return self.report(words, self._tag(model, fields, words, group), gold).scores

    def report(
        self, words: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]
    ) -> TaggingReport:
        """Compare predicted tags with the correct ones, and with the most frequent tags of the training data."""
        return tagging_report(words, predicted, gold, read_most_frequent_tags(self.recipe))

    def predictor(self, bundle: Bundle, precision: str = "auto") -> WordTagger:
        """Return a tagger of words."""
        return WordTagger.from_bundle(bundle, precision)

    def _tag(
        self, model: nn.Module, fields: Fields, sentences: Sequence[Sequence[str]], group: ProcessGroup
    ) -> list[list[str]]:
        """Tag sentences, each process its share; return the tags of all on every process."""
        assert isinstance(model, Tagger)
        words, tags = fields["words"], fields["tags"]
        assert isinstance(words, WordsField)
        assert isinstance(tags, TagsField)
        tagged = WordTagger(model, words, tags)(sentences[group.rank :: group.world_size])
        return [split_list(line) for line in group.gather_strided([join_list(result.tags) for result in tagged])]


def read_most_frequent_tags(recipe: Recipe) -> MostFrequentTags:
    """Return the most frequent tag of each word of a recipe's training data."""
    reader = Reader.of(recipe.data, ("words", "tags"), recipe.seed)
    records = (record for corpus in recipe.data.train for record in reader.records(corpus))
    return MostFrequentTags.count((split_list(words), split_list(tags)) for words, tags in records)


def _sentences(store: Store | Blocks, count: int) -> tuple[list[list[str]], list[list[str]]]:
    """Return words and tags of `count` sentences; a smaller count gives a prefix of a larger one."""
    assert isinstance(store, Store), "the recipe allows no blocks in tagging"
    order = np.random.default_rng(0).permutation(len(store)) if count < len(store) else np.arange(len(store))
    texts = store.text(order[:count])
    return [split_list(line) for line in texts["words"]], [split_list(line) for line in texts["tags"]]
