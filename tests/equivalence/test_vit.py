"""Equality, in double precision, with Hugging Face's Vision Transformer from a configuration with random weights."""

from typing import Any

import pytest
import torch
from tests.equivalence.ragged_output import randomise
from torch import Tensor

from regard.models.vision import MEAN, build_vision_transformer
from regard.models.weight_map import VIT_CLASSIFIER, export_weights, import_weights
from regard.nn.tap import recording
from regard.recipe import ImageClassification, Transformer

transformers = pytest.importorskip("transformers", reason="transformers, of the extra 'export', is not installed")

WIDTH, CLASSES, LAYERS = 12, 5, 3
CONFIG = transformers.ViTConfig(
    image_size=8,
    patch_size=4,
    num_channels=3,
    hidden_size=WIDTH,
    num_hidden_layers=LAYERS,
    num_attention_heads=3,
    intermediate_size=20,
    num_labels=CLASSES,
    layer_norm_eps=1e-5,  # ours; 1e-12 is theirs
    attn_implementation="eager",
)
torch.manual_seed(0)
THEIRS: Any = transformers.ViTForImageClassification(CONFIG).double().eval()
randomise(THEIRS)
SETTINGS = Transformer(
    width=WIDTH, inner=20, heads=3, encoder_layers=LAYERS, position="learned", activation="gelu", dropout=0.0
)
OURS = build_vision_transformer(SETTINGS, ImageClassification(patch=4), (3, 8, 8), CLASSES)
OURS = OURS.double().eval().requires_grad_(False)
import_weights(OURS, VIT_CLASSIFIER, THEIRS.state_dict())
IMAGES = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)


def run_theirs(images: Tensor) -> Any:
    """Return what their model computes for pictures that are normalised as their image processor does."""
    with torch.no_grad():
        return THEIRS(pixel_values=(images.double() / 255 - 0.5) / 0.5, output_attentions=True)


def test_logits_are_equal() -> None:
    assert float(MEAN) == 255 / 2
    torch.testing.assert_close(OURS(IMAGES), run_theirs(IMAGES).logits)


def test_attention_weights_are_equal() -> None:
    with recording(OURS, "encoder.layers.*.self.weights") as seen:
        OURS(IMAGES)
    theirs = run_theirs(IMAGES).attentions
    assert len(theirs) == len(seen) == LAYERS
    for (ours,), weights in zip(seen.values(), theirs, strict=True):
        torch.testing.assert_close(ours, weights)


def test_exported_weights_give_their_model_our_logits() -> None:
    copy: Any = transformers.ViTForImageClassification(CONFIG).double().eval()
    exported = export_weights(OURS, VIT_CLASSIFIER)
    copy.load_state_dict({name: exported[name].reshape(weight.shape) for name, weight in copy.state_dict().items()})
    with torch.no_grad():
        logits = copy(pixel_values=IMAGES.double() / 127.5 - 1).logits
    torch.testing.assert_close(logits, OURS(IMAGES))
