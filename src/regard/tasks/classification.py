"""Classification: a text or a document in, a label or several labels out.

`ImageClassificationTask` shares losses, class weights and metrics. It is a task of its own, because a task has one set
of fields, from which recipes are checked and corpora are read.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from regard.bundle import Bundle
from regard.data.batch import Batch, example_index, per_sequence, sequences
from regard.data.blocks import Blocks
from regard.data.fields import Fields, LabelField, TextField
from regard.data.rows import Lengths, Numbers, Rows
from regard.data.store import Store
from regard.models.build import build_classifier
from regard.models.classifier import Classifier
from regard.nn.ragged import Ragged
from regard.predict.classifier import Classified, TextClassifier, classifier_inputs
from regard.recipe import Corpus, FieldKind, Filter, Han
from regard.score.classification import Label, accuracy, correct, expected_calibration_error, macro_f1
from regard.score.metric import Score
from regard.tasks.task import Predictions, ProcessGroup, Sample, Task

SAMPLES, SHOWN = 3, 200  # samples shown at each validation, and their characters
SENTENCE_LENGTH = 20  # tokens of a sentence, to count the operations of a hierarchical model


@dataclass(frozen=True, eq=False)
class LabelledBatch(Batch):
    """Texts or pictures with their labels."""

    labels: Ragged = sequences(fill=0)
    """Class numbers of each example: one, or any number if it may have several labels."""
    counted_B: Float[Tensor, " B"] = per_sequence(fill=0.0)
    """1 for an example, and 0 for what fills up the batch."""
    index_B: Int64[Tensor, " B"] = example_index()
    """Numbers of the examples."""

    @property
    def units(self) -> int:
        """The number of examples."""
        return int(self.counted_B.sum())


@dataclass(frozen=True, eq=False)
class ClassificationBatch(LabelledBatch):
    """Texts with their labels."""

    tokens: Ragged = sequences()
    """Token ids of each text, between `<s>` and `</s>`; those of a document without symbols."""


@dataclass(frozen=True, eq=False)
class DocumentBatch(ClassificationBatch):
    """Documents with their labels."""

    sizes: Ragged = sequences(fill=0)
    """The number of tokens of each sentence of each document."""


@dataclass(frozen=True)
class ClassificationTask(Task):
    """Classification of the field `text` by the field `label`."""

    @property
    def kinds(self) -> Mapping[str, FieldKind]:
        """Texts, or documents for a hierarchical model; one label, or several."""
        label: FieldKind = "labels" if self.several else "label"
        return {"text": "document" if self._hierarchical else "text", "label": label}

    @property
    def input(self) -> str:
        """The name of the field that is classified."""
        return "text"

    @property
    def several(self) -> bool:
        """Whether an example may have several labels."""
        return self.recipe.classification.several

    @property
    def weights(self) -> str:
        """How the classes are weighted in the loss: `equal` or `balanced`."""
        return self.recipe.classification.weights

    @property
    def unit(self) -> str:
        """The loss is averaged over texts."""
        return "texts"

    @property
    def filters(self) -> Collection[Filter]:
        """Empty texts and duplicates are dropped; a long text is cut, and there is no second text to compare with."""
        return tuple(name for name in self.recipe.data.drop if name in ("empty", "duplicate"))

    @property
    def cut_at(self) -> int | None:
        """Texts are cut at their end to this many tokens."""
        return self.recipe.data.longest

    @property
    def metrics(self) -> Sequence[str]:
        """Accuracy and macro F1 can select the best weights."""
        return ("accuracy", "macro_f1")

    def sequence_lengths(self, lengths: Mapping[str, Lengths]) -> tuple[Numbers, ...]:
        """Return the tokens that are left of each text, with two symbols; and its number of labels, if it varies."""
        text = np.minimum(lengths["text"], self.recipe.data.longest) + np.int64(0 if self._hierarchical else 2)
        # A document without sentences has no tokens, but a batch must not hold any number of them.
        text = np.maximum(text, 1)
        return (text, lengths["label"].astype(np.int64)) if self.several else (text,)

    def collate(self, rows: Mapping[str, Rows], index: Numbers) -> LabelledBatch:
        """Cut long texts, and add the symbols that the encoder expects."""
        tokens, sizes = classifier_inputs(rows["text"], self._hierarchical, self.recipe.data.longest)
        labels = rows["label"].to_ragged(), torch.ones(len(index)), torch.from_numpy(index)
        return ClassificationBatch(*labels, tokens) if sizes is None else DocumentBatch(*labels, tokens, sizes)

    def build(self, sizes: Mapping[str, int]) -> nn.Module:
        """Build a classifier with the encoder of the recipe's family."""
        return build_classifier(self.recipe.model, sizes["text"], sizes["label"], self.recipe.classification)

    def observe(self, model: nn.Module, stores: Sequence[Store | Blocks]) -> None:
        """Set the weights of the classes in the loss from their frequencies in the training data.

        With one label a text, `balanced` gives class c the weight n / (k · n_c), for n texts, k classes and n_c texts
        of the class, so that the mean weight of a text is 1. With several, texts that have label c count
        (n - n_c) / n_c times as much for it as the others.
        """
        if self.weights == "equal":
            return
        weights_V = model.get_buffer("class_weights_V")
        classes, texts = len(weights_V), 0.0
        counts = np.zeros(classes)
        for corpus, store in zip(self.recipe.data.train, stores, strict=True):
            assert isinstance(store, Store), "the recipe allows no blocks in classification"
            counts += corpus.weight * np.bincount(store.fields["label"].ids, minlength=classes)
            texts += corpus.weight * len(store)
        present = np.maximum(counts, 1e-9)
        weights = (texts - counts) / present if self.several else texts / (classes * present)
        weights_V.copy_(torch.from_numpy(np.where(counts > 0, weights, 1.0)))

    def logits(self, model: nn.Module, batch: LabelledBatch) -> Float[Tensor, "B V"]:
        """Return the logits of a batch."""
        assert isinstance(model, Classifier)
        assert isinstance(batch, ClassificationBatch)
        logits_BV: Tensor = model(batch.tokens, batch.sizes if isinstance(batch, DocumentBatch) else None)
        return logits_BV

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the cross-entropy with label smoothing and class weights, and with R-Drop if the recipe asks for it.

        With several labels it is the binary cross-entropy, summed over the classes. R-Drop (Liang et al. 2021, eq. 4)
        is halved, so that it is on the scale of one pass.
        """
        assert isinstance(batch, LabelledBatch)
        settings, weights_V = self.recipe.train, model.get_buffer("class_weights_V")
        first_BV = self.logits(model, batch)
        loss = (self._losses(first_BV, batch, settings.smoothing, weights_V) * batch.counted_B).sum()
        if not settings.rdrop:
            return loss
        second_BV = self.logits(model, batch)
        loss = loss + (self._losses(second_BV, batch, settings.smoothing, weights_V) * batch.counted_B).sum()
        p_BV, q_BV = self._probabilities(first_BV), self._probabilities(second_BV)
        # KL(p ‖ q) + KL(q ‖ p) in one sum, for a softmax as for independent labels: log-partitions cancel.
        divergence_B = ((p_BV - q_BV) * (first_BV - second_BV)).sum(-1)
        return (loss + settings.rdrop / 2 * (divergence_B * batch.counted_B).sum()) / 2

    def evaluate(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the summed cross-entropy without smoothing and weights, and the number of correct texts."""
        assert isinstance(batch, LabelledBatch)
        with torch.no_grad():
            logits_BV = self.logits(model, batch)
            losses_B = self._losses(logits_BV, batch, 0.0, torch.ones_like(model.get_buffer("class_weights_V")))
            if self.several:
                right_B = ((logits_BV >= 0) == _targets(batch.labels, logits_BV).bool()).all(-1)
            else:
                right_B = logits_BV.argmax(-1) == _single_label(batch.labels)
            return torch.stack([(losses_B * batch.counted_B).sum(), (right_B * batch.counted_B).sum()])

    def quality(self, sums: Sequence[float], units: int) -> dict[str, float]:
        """Return loss and accuracy of a corpus."""
        loss, right = sums
        return {"loss": loss / units, "accuracy": right / units}

    def units(self, lengths: Mapping[str, Lengths]) -> int:
        """Return the number of texts."""
        return len(lengths["text"])

    def flops(self, model: nn.Module, lengths: Mapping[str, Lengths]) -> float:
        """Return the operations of the classifier; sentences are assumed to have `SENTENCE_LENGTH` tokens."""
        assert isinstance(model, Classifier)
        tokens = self.sequence_lengths(lengths)[0]
        sentences = -(-tokens // SENTENCE_LENGTH)
        return model.forward_flops(tokens.tolist(), sentences.tolist() if self._hierarchical else ())

    def predict(
        self, model: nn.Module, fields: Fields, store: Store | Blocks, corpus: Corpus, count: int, group: ProcessGroup
    ) -> Predictions:
        """Classify some texts; score them with accuracy and macro F1."""
        texts, labels = self._texts(store, fields, count)
        predictions, _ = self._classify(model, fields, texts, group)
        scores = accuracy(labels, predictions), macro_f1(labels, predictions)
        shown = zip(texts[:SAMPLES], labels[:SAMPLES], predictions[:SAMPLES], strict=True)
        samples = [Sample(text[:SHOWN], ", ".join(sorted(gold)), ", ".join(label)) for text, gold, label in shown]
        return Predictions(scores, tuple(samples))

    def final_scores(
        self, model: nn.Module, fields: Fields, store: Store | Blocks, corpus: Corpus, group: ProcessGroup
    ) -> tuple[Score, ...]:
        """Classify a whole corpus; return accuracy, macro F1 and the expected calibration error."""
        texts, labels = self._texts(store, fields, len(store))
        predictions, confidences = self._classify(model, fields, texts, group)
        error = expected_calibration_error(confidences, correct(labels, predictions))
        return accuracy(labels, predictions), macro_f1(labels, predictions), error

    def predictor(self, bundle: Bundle, precision: str = "auto") -> Any:
        """Return a text classifier."""
        return TextClassifier.from_bundle(bundle, precision)

    @property
    def _hierarchical(self) -> bool:
        return isinstance(self.recipe.model, Han)

    def _losses(
        self, logits_BV: Tensor, batch: LabelledBatch, smoothing: float, weights_V: Tensor
    ) -> Float[Tensor, " B"]:
        """Return the loss of each text, in float32 at least."""
        logits_BV = logits_BV.to(torch.promote_types(logits_BV.dtype, torch.float32))
        weights_V = weights_V.to(logits_BV.dtype)
        if self.several:
            targets_BV = _targets(batch.labels, logits_BV) * (1 - smoothing) + smoothing / 2
            losses_BV = functional.binary_cross_entropy_with_logits(
                logits_BV, targets_BV, pos_weight=weights_V, reduction="none"
            )
            return losses_BV.sum(-1)
        label_B, logprobs_BV = _single_label(batch.labels), logits_BV.log_softmax(-1)
        right_B = logprobs_BV.gather(1, label_B[:, None])[:, 0]
        smoothed_B = (1 - smoothing) * right_B + smoothing * logprobs_BV.mean(-1)
        return -smoothed_B * weights_V.index_select(0, label_B)

    def _probabilities(self, logits_BV: Tensor) -> Tensor:
        """Return the probabilities of the classes."""
        logits_BV = logits_BV.to(torch.promote_types(logits_BV.dtype, torch.float32))
        return logits_BV.sigmoid() if self.several else logits_BV.softmax(-1)

    def _texts(self, store: Store | Blocks, fields: Fields, count: int) -> tuple[list[str], list[Label]]:
        """Return `count` texts and the labels of each; a smaller count gives a prefix of a larger one."""
        assert isinstance(store, Store), "the recipe allows no blocks in classification"
        field = fields["label"]
        assert isinstance(field, LabelField)
        order = np.random.default_rng(0).permutation(len(store)) if count < len(store) else np.arange(len(store))
        columns = store.text(order[:count])
        return columns[self.input], [tuple(field.split(value)) for value in columns["label"]]

    def classify(self, model: nn.Module, fields: Fields, texts: Sequence[str]) -> Sequence[Classified]:
        """Classify texts with the model as it is now."""
        assert isinstance(model, Classifier)
        text, label = fields["text"], fields["label"]
        assert isinstance(text, TextField)
        assert isinstance(label, LabelField)
        return TextClassifier(model, text, label, self.recipe.data.longest).classify(texts)

    def _classify(
        self, model: nn.Module, fields: Fields, texts: Sequence[str], group: ProcessGroup
    ) -> tuple[list[Label], list[float]]:
        """Classify texts, each process its share; return all predictions and their probabilities on every process."""
        part = self.classify(model, fields, texts[group.rank :: group.world_size])
        gathered = [line.split("\t") for line in group.gather_strided(list(map(_as_line, part)))]
        return [tuple(labels) for _, *labels in gathered], [float(confidence) for confidence, *_ in gathered]


def _as_line(result: Classified) -> str:
    """Return a prediction as a string: its probability, then its labels, which contain no tabs."""
    return "\t".join([repr(result.probability), *result.labels])


def _single_label(labels: Ragged) -> Int64[Tensor, " B"]:
    """Return the only label of each text; that of an empty sequence, which fills up a batch, is arbitrary."""
    return labels.values.index_select(0, labels.offsets[:-1].clamp(max=labels.tokens - 1))


def _targets(labels: Ragged, logits_BV: Tensor) -> Float[Tensor, "B V"]:
    """Return 1 for each label that a text has, and 0 for all others."""
    classes = logits_BV.shape[1]
    slots_N = labels.sequence_N.long() * classes + labels.values
    return logits_BV.new_zeros(logits_BV.numel()).scatter(0, slots_N, 1.0).view_as(logits_BV)
