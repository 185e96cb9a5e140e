"""Classification of pictures: a picture in, a label out, by a Vision Transformer over its patches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from regard.bundle import Bundle
from regard.data.augmentation import Augmentation
from regard.data.batch import RandomKey, per_sequence
from regard.data.fields import Fields, ImageField, LabelField
from regard.data.rows import Lengths, Numbers, Rows
from regard.models.vision import VisionTransformer, build_vision_transformer
from regard.predict.classifier import Classified
from regard.predict.image_classifier import ImageClassifier
from regard.recipe import TASK_FIELDS, FieldKind, Transformer
from regard.tasks.classification import ClassificationTask, LabelledBatch


@dataclass(frozen=True, eq=False)
class ImageBatch(LabelledBatch):
    """Pictures with their labels."""

    image_BCHW: UInt8[Tensor, "B C H W"] = per_sequence(fill=0)
    """Pixels from 0 to 255."""


@dataclass(frozen=True)
class ImageClassificationTask(ClassificationTask):
    """Classification of the field `image` by the field `label`."""

    @property
    def kinds(self) -> Mapping[str, FieldKind]:
        """A picture and its label."""
        return TASK_FIELDS["image_classification"]

    @property
    def input(self) -> str:
        """Pictures are classified."""
        return "image"

    @property
    def several(self) -> bool:
        """A picture has one label."""
        return False

    @property
    def weights(self) -> str:
        """How the classes are weighted in the loss."""
        return self.recipe.image_classification.weights

    @property
    def unit(self) -> str:
        """The loss is averaged over pictures."""
        return "pictures"

    @property
    def cut_at(self) -> None:
        """There are no texts to cut."""
        return

    def field_of(self, parameter: str) -> str:
        """Return the field of the classes: no other has a vocabulary."""
        return "label"

    def sequence_lengths(self, lengths: Mapping[str, Lengths]) -> tuple[Numbers, ...]:
        """Return the number of patches of each picture, with the class token."""
        return (np.full(len(lengths["label"]), self._tokens),)

    def units(self, lengths: Mapping[str, Lengths]) -> int:
        """Return the number of pictures."""
        return len(lengths["label"])

    def collate(self, rows: Mapping[str, Rows], index: Numbers) -> ImageBatch:
        """Join pixels and labels."""
        labels = rows["label"].to_ragged(), torch.ones(len(index)), torch.from_numpy(index)
        return ImageBatch(*labels, rows["image"].to_tensor(*self.recipe.image.shape))

    def collate_for_training(self, rows: Mapping[str, Rows], index: Numbers, draw: RandomKey) -> ImageBatch:
        """Join pixels, which vary in every epoch, and labels."""
        options, image = self.recipe.image_classification, rows["image"]
        augmentation = Augmentation(options.shift, options.rotation, options.scale)
        pixels = augmentation.apply(image.ids.reshape(len(image), *self.recipe.image.shape), draw)
        return self.collate({**rows, "image": Rows(pixels.reshape(-1), image.offsets)}, index)

    def build(self, sizes: Mapping[str, int]) -> VisionTransformer:
        """Build a Vision Transformer from the encoder's settings of the recipe."""
        settings, recipe = self.recipe.model, self.recipe
        assert isinstance(settings, Transformer), "checked by the recipe"
        return build_vision_transformer(settings, recipe.image_classification, recipe.image.shape, sizes["label"])

    def logits(self, model: nn.Module, batch: LabelledBatch) -> Float[Tensor, "B V"]:
        """Return the logits of a batch."""
        assert isinstance(batch, ImageBatch)
        logits_BV: Tensor = model(batch.image_BCHW)
        return logits_BV

    def flops(self, model: nn.Module, lengths: Mapping[str, Lengths]) -> float:
        """Return the operations of the Vision Transformer."""
        assert isinstance(model, VisionTransformer)
        return model.forward_flops(self.units(lengths))

    def classify(self, model: nn.Module, fields: Fields, texts: Sequence[str]) -> Sequence[Classified]:
        """Classify pictures, given by name, with the model as it is now."""
        assert isinstance(model, VisionTransformer)
        image, label = fields["image"], fields["label"]
        assert isinstance(image, ImageField)
        assert isinstance(label, LabelField)
        return ImageClassifier(model, image.settings, label).classify(texts)

    def predictor(self, bundle: Bundle, precision: str = "auto") -> ImageClassifier:
        """Return a classifier of pictures."""
        return ImageClassifier.from_bundle(bundle, precision)

    @property
    def _tokens(self) -> int:
        options = self.recipe.image_classification
        return (self.recipe.image.size // options.patch) ** 2 + (options.pooling == "first")
