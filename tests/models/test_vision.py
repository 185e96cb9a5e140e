"""The laws of Vision Transformers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from regard.models.vision import GridPositions, VisionTransformer, build_vision_transformer
from regard.nn.tap import recording
from regard.recipe import ImageClassification, Transformer

SHAPE, PATCH, CLASSES = (2, 9, 9), 3, 4


def build(position: str = "learned", pooling: str = "first", **changes: object) -> VisionTransformer:
    torch.manual_seed(2)
    model = Transformer.model_validate(
        {"width": 8, "inner": 12, "heads": 2, "encoder_layers": 2, "position": position, **changes}
    )
    options = ImageClassification.model_validate({"patch": PATCH, "pooling": pooling})
    return build_vision_transformer(model, options, SHAPE, CLASSES).double().eval().requires_grad_(False)


MODELS = {
    (position, pooling): build(position, pooling)
    for position in ("learned", "sinusoidal", "none")
    for pooling in ("first", "mean")
}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=map(" ".join, MODELS))
images = st.integers(0, 2**31).map(
    lambda seed: torch.randint(0, 256, (3, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
)
ONE = torch.randint(0, 256, (1, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def patches_of(image: Tensor) -> list[Tensor]:
    """Return the patches of a picture, row by row."""
    rows = range(0, SHAPE[1], PATCH)
    return [image[:, top : top + PATCH, left : left + PATCH] for top in rows for left in rows]


def permuted(image: Tensor, order: list[int]) -> Tensor:
    """Return a picture whose patches are in another order."""
    patches = [patches_of(image)[number] for number in order]
    return torch.cat([torch.cat(patches[start : start + 3], 2) for start in range(0, 9, 3)], 1)


@every_model
@given(images)
@settings(max_examples=5)
def test_other_pictures_of_a_batch_change_no_logit_and_their_order_is_kept(
    model: VisionTransformer, batch: Tensor
) -> None:
    together, alone = model(batch), torch.cat([model(image[None]) for image in batch])
    torch.testing.assert_close(together, alone)
    torch.testing.assert_close(model(batch.flip(0)), together.flip(0))


@every_model
def test_watching_the_weights_changes_no_logit_and_they_sum_to_one(model: VisionTransformer) -> None:
    with recording(model, "encoder.layers.*.self.weights") as seen:
        watched = model(ONE)
    torch.testing.assert_close(watched, model(ONE))
    for (weights,) in seen.values():
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


@given(st.permutations(range(9)))
@settings(max_examples=10)
def test_without_positions_the_states_of_permuted_patches_are_permuted(order: list[int]) -> None:
    model, image = MODELS["none", "first"], ONE[0]
    states, other = (model.encoder.encode(picture[None]).states_ND for picture in (image, permuted(image, order)))
    torch.testing.assert_close(other[0], states[0])
    torch.testing.assert_close(other[1:], states[1:][order])


@pytest.mark.parametrize("position", ["learned", "sinusoidal"])
def test_with_positions_the_order_of_patches_matters(position: str) -> None:
    model = MODELS[position, "first"]
    assert not torch.allclose(model(ONE), model(permuted(ONE[0], list(range(9))[::-1])[None]))


def test_the_vectors_of_patches_are_those_of_a_convolution() -> None:
    embedding = MODELS["none", "mean"].encoder.embedding
    kernel = embedding.projection.weight.view(8, *SHAPE[:1], PATCH, PATCH)
    pixels = ONE.double() / 127.5 - 1
    expected = torch.nn.functional.conv2d(pixels, kernel, embedding.projection.bias, stride=PATCH)
    torch.testing.assert_close(embedding(ONE), expected.flatten(2)[0].T)


def test_positions_in_two_dimensions_share_a_half_within_a_row_and_the_other_within_a_column() -> None:
    place = GridPositions(8, 3)(torch.zeros(0, dtype=torch.float64)).view(3, 3, 8)
    assert torch.equal(place[1, 0, :4], place[1, 2, :4])
    assert torch.equal(place[0, 1, 4:], place[2, 1, 4:])
    assert len({tuple(vector.tolist()) for vector in place.flatten(0, 1)}) == 9


@every_model
def test_counted_operations_are_those_that_torch_counts(model: VisionTransformer) -> None:
    # Watched attention uses no fused kernel, which torch would not count.
    with recording(model, "*weights"), FlopCounterMode(display=False) as counter:
        model(ONE)
    assert model.forward_flops(1) == counter.get_total_flops()


def test_a_picture_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"reads pictures of the shape \(2, 9, 9\).*not \(2, 9, 12\)"):
        MODELS["none", "mean"](torch.zeros(1, 2, 9, 12, dtype=torch.uint8))


def test_initial_weights_have_the_deviation_of_the_recipe() -> None:
    weight = build(init_std=0.02, width=64).encoder.embedding.projection.weight
    assert 0.018 < float(weight.std()) < 0.022
