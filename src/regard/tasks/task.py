"""The interface of tasks, and what they return. A task is the only place that knows what the fields of a record mean.

A task says which fields a record has and how a batch is made of them, which model is trained with which loss, how it is
validated, and what a trained run becomes. Store, batching, training loop, checkpoints, CUDA graphs, distributed
training and reports use this interface and serve every task.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from numpy.typing import ArrayLike
from torch import Tensor, nn

from regard.bundle import Bundle
from regard.data.batch import Batch, RandomKey
from regard.data.blocks import Blocks
from regard.data.fields import Fields
from regard.data.rows import Lengths, Numbers, Rows
from regard.data.store import Store
from regard.recipe import TASK_FIELDS, Corpus, FieldKind, Filter, Recipe
from regard.score import Alignment, Score
from regard.text import printable


@dataclass(frozen=True)
class Sample:
    """A validation example to show: the input, the reference and the present output of the model.

    Control characters are escaped: a model that writes bytes may produce them, and a terminal would execute them. Tabs
    become spaces, and line breaks a visible sign.
    """

    input: str
    reference: str
    output: str

    def __post_init__(self) -> None:
        """Escape control characters."""
        for name in ("input", "reference", "output"):
            text = getattr(self, name).replace("\t", " ").replace("\n", "↵")
            object.__setattr__(self, name, printable(text))


@dataclass(frozen=True)
class Predictions:
    """Metrics of predictions for some validation examples, and a few of them to show."""

    scores: tuple[Score, ...] = ()
    samples: tuple[Sample, ...] = ()

    def criterion(self, index: int) -> float:
        """Return the value of a score with the sign that makes higher values better."""
        score = self.scores[index]
        return score.value if score.higher_is_better else -score.value


@dataclass(frozen=True)
class AttentionMap:
    """Attention weights between words, for a report."""

    keys: Sequence[str]
    """Words that are attended to; columns of the map."""
    queries: Sequence[str]
    """Words that attend; rows of the map."""
    weights_QK: ArrayLike
    gold: Alignment | None = None
    """Correct links between the words, if they are known."""


class ProcessGroup(Protocol):
    """The processes that train together, as far as a task divides work among them."""

    @property
    def rank(self) -> int:
        """Number of this process."""

    @property
    def world_size(self) -> int:
        """Number of processes."""

    def gather_strided(self, part: list[str]) -> list[str]:
        """Collect the results of items that were divided as `items[rank::world_size]`, in their original order."""


@dataclass(frozen=True)
class Task(ABC):
    """Base class of tasks. A new task implements the abstract methods; the others have sensible defaults."""

    recipe: Recipe
    """The recipe of the run."""

    @property
    def kinds(self) -> Mapping[str, FieldKind]:
        """The fields of a record and their kinds, in the order of columns in a file.

        The fields of a built-in task are declared in `regard.recipe.TASK_FIELDS`, where recipes are checked.
        """
        return TASK_FIELDS[self.recipe.task]

    @abstractmethod
    def sequence_lengths(self, lengths: Mapping[str, Lengths]) -> tuple[Numbers, ...]:
        """Return the tokens that each record brings into a batch, for each of its sequences; symbols included."""

    @abstractmethod
    def collate(self, rows: Mapping[str, Rows], index: Numbers) -> Batch:
        """Make a batch of encoded records and their numbers in the data."""

    def collate_for_training(self, rows: Mapping[str, Rows], index: Numbers, draw: RandomKey) -> Batch:
        """Make a batch for training; random choices in it are derived from `draw`."""
        return self.collate(rows, index)

    def with_fields(self, fields: Fields) -> Self:
        """Return the task with everything that it needs of the vocabularies to make batches."""
        return self

    @abstractmethod
    def build(self, sizes: Mapping[str, int]) -> nn.Module:
        """Build the untrained model for vocabularies of these sizes; its weights depend on torch's random state."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the training loss, summed over `batch.units`."""

    @abstractmethod
    def evaluate(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return sums over a batch, one for each name in `sums`; losses without regularisation."""

    @abstractmethod
    def units(self, lengths: Mapping[str, Lengths]) -> int:
        """Return the units of records with these lengths, as their batches count them."""

    @abstractmethod
    def predictor(self, bundle: Bundle, precision: str = "auto") -> Any:
        """Return the object that users call: a `Translator`, a `TextGenerator`, …"""

    @property
    def unit(self) -> str:
        """The name of what `units` counts, in the plural."""
        return "tokens"

    @property
    def divisible(self) -> bool:
        """Whether the loss of a batch is the sum of the losses of its parts, so that threads may share a batch.

        Only then does gradient accumulation, or the number of processes, not change the result.
        """
        return True

    @property
    def multiline(self) -> bool:
        """Whether texts are documents, whose line breaks are tokens."""
        return False

    @property
    def filters(self) -> Collection[Filter]:
        """The filters that apply to training records; documents that are joined into blocks may have any length."""
        drop = self.recipe.data.drop
        return drop if self.recipe.data.block is None else tuple(name for name in drop if name != "long")

    @property
    def cut_at(self) -> int | None:
        """Maximum number of tokens of a text, to which longer ones are cut at their end; None cuts none."""
        return None

    @property
    def tagged(self) -> str | None:
        """The text field that the tag of a corpus is put before, if any."""
        return None

    @property
    def metrics(self) -> Sequence[str]:
        """Values of `train.choose` beside `loss`, in the order in which `predict` returns their scores."""
        return ()

    @property
    def sums(self) -> Sequence[str]:
        """Names of the sums that `evaluate` returns: cross-entropy, and the number of correct units."""
        return ("loss", "correct")

    def quality(self, sums: Sequence[float], units: int) -> dict[str, float]:
        """Return the teacher-forced metrics of a corpus from the sums of `evaluate`: `loss` and others."""
        loss, correct = sums
        return {"loss": loss / units, "perplexity": math.exp(min(loss / units, 700.0)), "accuracy": correct / units}

    def flops(self, model: nn.Module, lengths: Mapping[str, Lengths]) -> float:
        """Return the floating-point operations of a forward pass over records with these lengths.

        The default counts two operations for each weight of a matrix and each token.
        """
        matrices = sum(weight.numel() for weight in model.parameters() if weight.ndim == 2)
        return 2.0 * matrices * max(int(counts.sum()) for counts in self.sequence_lengths(lengths))

    def tokens(self, lengths: Mapping[str, Lengths]) -> int:
        """Return the tokens of records with these lengths, which batches are limited by."""
        if self.unit == "tokens":
            return self.units(lengths)
        return max(int(counts.sum()) for counts in self.sequence_lengths(lengths))

    def observe(self, model: nn.Module, stores: Sequence[Store | Blocks]) -> None:  # noqa: B027
        """Give an untrained model, or one that resumes, what it needs to know of the training data.

        What it gets must follow from the data alone, because a checkpoint holds only the weights.
        """

    def field_of(self, parameter: str) -> str:
        """Return the field whose vocabulary the rows of an embedding or output matrix belong to."""
        return next(name for name, kind in self.kinds.items() if kind in ("text", "document", "words"))

    def predict(
        self, model: nn.Module, fields: Fields, store: Store | Blocks, corpus: Corpus, count: int, group: ProcessGroup
    ) -> Predictions:
        """Predict `count` validation examples quickly, to show the progress of training."""
        return Predictions()

    def final_scores(
        self, model: nn.Module, fields: Fields, store: Store | Blocks, corpus: Corpus, group: ProcessGroup
    ) -> tuple[Score, ...]:
        """Predict a whole validation or test corpus as the recipe's `[decode]` section says, and score it."""
        return ()

    def after_training(self, model: nn.Module, fields: Fields) -> dict[str, Any]:
        """Return further entries of `scores.json`, such as which attention head aligns words best."""
        return {}

    def attention_maps(self, bundle: Bundle, samples: Sequence[Sample]) -> Sequence[AttentionMap]:
        """Return the attention weights of a trained run between input and output of samples, for its report."""
        return ()
