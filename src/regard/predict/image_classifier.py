"""Classification of pictures by a trained model: labels, probabilities, and attention over the picture."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from regard.bundle import Bundle
from regard.data.fields import ImageField, LabelField
from regard.data.pictures import Source, load_image
from regard.models.vision import VisionTransformer
from regard.nn.tap import recording
from regard.predict.forward_pass import BATCH_TOKENS, plain_precision
from regard.predict.rollout import attention_rollout
from regard.recipe import ImageSettings

Maps = NDArray[np.float64]
ATTENTION = "encoder.layers.*.self.weights"


@dataclass(frozen=True, eq=False)
class PatchAttention:
    """Attention weights over the patches of a picture: those of the class token or, without one, their mean.

    All arrays end in two dimensions: the rows and columns of patches. What the class token gives to itself has no
    place in the picture, so weights may sum to less than one.
    """

    weights: Maps
    """Weights of each layer and head, of the shape (layers, heads, rows, columns)."""
    rollout: Maps
    """Weights through all layers, of the shape (rows, columns); see `attention_rollout`."""

    @property
    def last(self) -> Maps:
        """Weights of the last layer, averaged over its heads."""
        mean: Maps = self.weights[-1].mean(0)
        return mean

    def to_json(self) -> dict[str, Any]:
        """Return all weights as nested lists."""
        return {"weights": self.weights.tolist(), "rollout": self.rollout.tolist()}


@dataclass(frozen=True)
class ClassifiedImage:
    """The predicted label of a picture, with the probability of each class."""

    label: str
    """The predicted label."""
    probability: float
    """Probability of the label."""
    probabilities: dict[str, float]
    """Probability of each class, the most probable first."""
    attention: PatchAttention | None = field(default=None, repr=False)
    """Attention over the patches, if it was asked for."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The predicted label alone, in the form of a classifier with several labels."""
        return (self.label,)

    def to_json(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        table = {"label": self.label, "probability": self.probability, "probabilities": self.probabilities}
        return table if self.attention is None else {**table, "attention": self.attention.to_json()}


class ImageClassifier:
    """A trained classifier of pictures with its classes.

    >>> classifier = regard.load("runs/digits")
    >>> classifier("seven.png").label
    """

    def __init__(
        self, model: VisionTransformer, settings: ImageSettings, labels: LabelField, precision: str = "float32"
    ) -> None:
        """Classify with a model as it is now.

        Args:
            model: The classifier.
            settings: The size and the channels of its pictures.
            labels: The field of the labels.
            precision: Precision of matrix products: `float32` or `bfloat16`.
        """
        self.model, self.settings, self.label_field, self.precision = model, settings, labels, precision

    @classmethod
    def from_bundle(cls, bundle: Bundle, precision: str = "auto") -> "ImageClassifier":
        """Classify with a trained run, on the device it was loaded to."""
        model, image, labels = bundle.model, bundle.fields["image"], bundle.fields["label"]
        assert isinstance(model, VisionTransformer)
        assert isinstance(image, ImageField)
        assert isinstance(labels, LabelField)
        return cls(model, image.settings, labels, plain_precision(precision, model.output.weight.device))

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels that it knows, in alphabetical order."""
        return self.label_field.classes

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.model.output.weight.device

    @overload
    def __call__(  # type: ignore[overload-overlap]  # a str is a Sequence, too
        self, images: Source, *, attention: bool = False
    ) -> ClassifiedImage: ...
    @overload
    def __call__(self, images: Sequence[Source], *, attention: bool = False) -> list[ClassifiedImage]: ...
    def __call__(
        self, images: Source | Sequence[Source], *, attention: bool = False
    ) -> ClassifiedImage | list[ClassifiedImage]:
        """Classify a picture, or a list of pictures; see `classify`."""
        if isinstance(images, str | bytes | PathLike | Image.Image | np.ndarray):
            return self.classify([images], attention)[0]
        return self.classify(images, attention)

    def classify(self, images: Sequence[Source], attention: bool = False) -> list[ClassifiedImage]:
        """Classify pictures of any size.

        Args:
            images: Names of files, bytes of files, Pillow images, or arrays of uint8 with the shape (height, width) or
                (height, width, channels).
            attention: Whether to return the attention weights over the patches, too.

        Raises:
            ValueError: If a picture cannot be read; the message names it.
        """
        results: list[ClassifiedImage] = []
        rows = max(1, BATCH_TOKENS // self.model.encoder.embedding.tokens)
        for begin in range(0, len(images), rows):
            results += self._classify([self.read(image) for image in images[begin : begin + rows]], attention)
        return results

    def read(self, image: Source) -> NDArray[np.uint8]:
        """Return a picture as the model sees it, of the shape (size, size, channels)."""
        return load_image(image, self.settings.size, self.settings.channels, self.settings.fit)

    def _classify(self, images: Sequence[NDArray[np.uint8]], attention: bool) -> list[ClassifiedImage]:
        """Classify pictures of the model's size in one forward pass."""
        image_BCHW = torch.from_numpy(np.stack(images).transpose(0, 3, 1, 2).copy()).to(self.device)
        half = torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16")
        maps: Sequence[PatchAttention | None] = [None] * len(images)
        with torch.no_grad(), half:
            if attention:
                with recording(self.model, ATTENTION) as recorded:
                    logits_BV = self.model(image_BCHW)
                maps = self._attention([weights for (weights,) in recorded.values()])
            else:
                logits_BV = self.model(image_BCHW)
        probabilities = logits_BV.double().softmax(-1).cpu().numpy()
        return [self._result(row, seen) for row, seen in zip(probabilities, maps, strict=True)]

    def _attention(self, recorded: Sequence[torch.Tensor]) -> list[PatchAttention]:
        """Return the weights over the patches of each picture, given those of each layer between all vectors."""
        layers = np.stack([weights.double().cpu().numpy() for weights in recorded], 1)  # pictures, layers, heads, Q, K
        rollouts = [attention_rollout(list(weights.mean(1))) for weights in layers]
        return [PatchAttention(*map(self._map, pair)) for pair in zip(layers, rollouts, strict=True)]

    def _map(self, weights: Maps) -> Maps:
        """Return the weights of the class token or, without one, the mean of all, in rows and columns of patches."""
        embedding = self.model.encoder.embedding
        chosen = weights[..., 0, 1:] if embedding.class_token is not None else weights.mean(-2)
        return chosen.reshape(*chosen.shape[:-1], embedding.side, embedding.side)

    def _result(self, probabilities: NDArray[np.float64], attention: PatchAttention | None) -> ClassifiedImage:
        """Return the prediction for a picture from the probabilities of its classes."""
        ranked = np.argsort(-probabilities, kind="stable").tolist()
        by_class = {self.classes[number]: float(probabilities[number]) for number in ranked}
        best = self.classes[ranked[0]]
        return ClassifiedImage(best, by_class[best], by_class, attention)
