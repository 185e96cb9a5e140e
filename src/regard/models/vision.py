"""The Vision Transformer (Dosovitskiy et al. 2021): pictures in, logits of classes out.

A picture is cut into square patches. A linear layer makes a vector of the pixels of each, positions are added, and the
layers of a Transformer's encoder follow, as for the tokens of a text.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from regard.models.memory import Memory
from regard.models.transformer import BlockStack, initialise, make_layers
from regard.nn.attention.mask import AttentionMask
from regard.nn.block import TransformerBlock
from regard.nn.cost import TokenCounts, count_flops
from regard.nn.dropout import Dropout
from regard.nn.linear import ClassProjection, make_projection
from regard.nn.pooling import FirstPooling, MeanPooling
from regard.nn.position import LearnedPositions, SinusoidalPositions
from regard.nn.ragged import Layout
from regard.nn.tap import Tap
from regard.recipe import ImageClassification, Transformer

MEAN, DEVIATION = 127.5, 127.5
"""Mean and standard deviation that pixels of 0 to 255 are normalised by, to -1 … 1."""


class GridPositions(nn.Module):
    """Sinusoidal positions in two dimensions: one half of the vector encodes the row, the other the column."""

    def __init__(self, width: int, side: int) -> None:
        """Create the positions of a square grid of `side` rows and columns."""
        super().__init__()
        if width % 2:
            raise ValueError(f"sinusoidal positions in two dimensions need an even width; found {width}")
        self.side, self.line = side, SinusoidalPositions(width // 2)

    def forward(self, like: Tensor) -> Float[Tensor, "P D"]:
        """Return the vector of each patch, row by row."""
        vectors = self.line(torch.arange(self.side, device=like.device), like)
        return torch.cat([vectors.repeat_interleave(self.side, 0), vectors.repeat(self.side, 1)], -1)


class PatchEmbedding(nn.Module):
    """A vector for each patch of a picture, row by row, with its position (Dosovitskiy et al. 2021, eq. 1).

    Pixels are normalised to -1 … 1. The linear layer is a convolution whose stride is its size.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        patch: int,
        width: int,
        position: str = "learned",
        class_token: bool = True,
        dropout: float = 0.0,
    ) -> None:
        """Create the embedding.

        Args:
            shape: Channels, height and width of all pictures.
            patch: Height and width of a patch.
            width: Size of the vectors.
            position: `learned`, a vector for each patch and the class token; `sinusoidal` in two dimensions; or `none`.
            class_token: Whether a learned vector, the class token, comes before the patches.
            dropout: Probability with which a value of a vector is dropped.
        """
        super().__init__()
        channels, height, columns = shape
        if height != columns or height % patch:
            raise ValueError(f"pictures of {height} x {columns} pixels cannot be cut into patches of {patch} x {patch}")
        self.shape, self.patch, self.side = shape, patch, height // patch
        self.projection = make_projection(channels * patch * patch, [width])
        self.class_token = nn.Parameter(torch.empty(width)) if class_token else None
        if self.class_token is not None:
            nn.init.normal_(self.class_token, std=width**-0.5)
        self.position: LearnedPositions | GridPositions | None = None
        if position == "learned":
            self.position = LearnedPositions(width, self.tokens)
        elif position == "sinusoidal":
            self.position = GridPositions(width, self.side)
        elif position != "none":
            raise ValueError(f"patches have no position '{position}'; choose learned, sinusoidal or none")
        self.drop, self.joined = Dropout(dropout), Tap()

    @property
    def tokens(self) -> int:
        """The number of vectors of a picture: its patches and the class token."""
        return self.side**2 + (self.class_token is not None)

    def forward(self, image_BCHW: UInt8[Tensor, "B C H W"]) -> Float[Tensor, "N D"]:
        """Return the vectors of all pictures, end to end.

        Raises:
            ValueError: The pictures have another shape.
        """
        if tuple(image_BCHW.shape[1:]) != self.shape:
            raise ValueError(
                f"this model reads pictures of the shape {self.shape} (channels, height, width), not "
                f"{tuple(image_BCHW.shape[1:])}"
            )
        weight = self.projection.weight
        pixels_BCHW = (image_BCHW.to(weight.dtype) - MEAN) / DEVIATION
        vector_BTD: Tensor = self.projection(self._patches(pixels_BCHW))
        if self.class_token is not None:
            first_B1D = self.class_token.to(vector_BTD.dtype).expand(vector_BTD.shape[0], 1, -1)
            vector_BTD = torch.cat([first_B1D, vector_BTD], 1)
        place_TD = self._places()
        if place_TD is not None:
            vector_BTD = vector_BTD + place_TD
        joined_ND: Tensor = self.drop(self.joined(vector_BTD.flatten(0, 1)))
        if joined_ND.is_cuda and torch.is_autocast_enabled("cuda"):
            return joined_ND.to(torch.get_autocast_dtype("cuda"))  # as the embedding of tokens
        return joined_ND

    def flops(self, counts: TokenCounts) -> int:
        """Return the operations of a forward pass; the class token has no pixels."""
        patches = counts.tokens - (counts.sequences if self.class_token is not None else 0)
        return 2 * patches * self.projection.weight.numel()

    def _patches(self, pixels_BCHW: Float[Tensor, "B C H W"]) -> Float[Tensor, "B P F"]:
        """Cut pictures into patches; the pixels of one are in the order channel, row, column."""
        size, side, (channels, _, _) = self.patch, self.side, self.shape
        grid = pixels_BCHW.reshape(-1, channels, side, size, side, size)  # picture, channel, row, y, column, x
        return grid.permute(0, 2, 4, 1, 3, 5).reshape(-1, side * side, channels * size * size)

    def _places(self) -> Float[Tensor, "T D"] | None:
        """Return the position of each vector; with sinusoids, that of the class token is zero."""
        weight = self.projection.weight
        if self.position is None:
            return None
        if isinstance(self.position, LearnedPositions):
            place_TD: Tensor = self.position(torch.arange(self.tokens, device=weight.device), weight)
            return place_TD
        place_PD: Tensor = self.position(weight)
        return nn.functional.pad(place_PD, (0, 0, self.tokens - self.side**2, 0))


class VisionEncoder(BlockStack):
    """Bidirectional layers over the patches of pictures."""

    def __init__(
        self,
        embedding: PatchEmbedding,
        blocks: Iterable[TransformerBlock],
        norm: nn.Module | None,
        mask: AttentionMask,
    ) -> None:
        """Put built parts together."""
        super().__init__(blocks, norm, mask)
        self.embedding = embedding

    def encode(self, image_BCHW: UInt8[Tensor, "B C H W"]) -> Memory:
        """Return a state for each patch, after that of the class token if there is one."""
        tokens, pictures = self.embedding.tokens, image_BCHW.shape[0]
        ends = torch.arange(0, (pictures + 1) * tokens, tokens, dtype=torch.int32, device=image_BCHW.device)
        layout = Layout.from_device_offsets(ends, pictures * tokens, tokens)
        return Memory(self.transform(self.embedding(image_BCHW), layout), layout)


class VisionTransformer(nn.Module):
    """An encoder of patches, pooling, dropout and a linear layer with one logit for each class.

    Example:
        ::

            model = build_vision_transformer(Transformer(size="tiny"), ImageClassification(), (1, 28, 28), classes=10)
            logits_BV = model(torch.zeros(2, 1, 28, 28, dtype=torch.uint8))
    """

    class_weights_V: Float[Tensor, " V"]

    def __init__(self, encoder: VisionEncoder, pooling: nn.Module, width: int, classes: int, dropout: float) -> None:
        """Put built parts together; see `regard.models.classifier.Classifier`."""
        super().__init__()
        self.encoder, self.pooling = encoder, pooling
        self.drop, self.output = Dropout(dropout), ClassProjection(width, classes)
        self.register_buffer("class_weights_V", torch.ones(classes), persistent=False)  # as in `Classifier`

    def forward(self, image_BCHW: UInt8[Tensor, "B C H W"]) -> Float[Tensor, "B V"]:
        """Return the logits of all classes for each picture."""
        memory = self.encoder.encode(image_BCHW)
        logits_BV: Tensor = self.output(self.drop(self.pooling(memory.states_ND, memory.layout)))
        return logits_BV

    def forward_flops(self, pictures: int) -> float:
        """Return the operations of a forward pass; see `regard.nn.cost`."""
        counts = TokenCounts.of([self.encoder.embedding.tokens] * pictures)
        output = count_flops(self.output, TokenCounts(pictures, pictures, 0))
        return float(count_flops(self.encoder, counts) + output)


def build_vision_transformer(
    settings: Transformer, options: ImageClassification, shape: tuple[int, int, int], classes: int
) -> VisionTransformer:
    """Build the untrained classifier of pictures that a recipe asks for.

    Args:
        settings: The `[model]` section.
        options: The `[image_classification]` section.
        shape: Channels, height and width of all pictures.
        classes: Number of classes.
    """
    has_token = options.pooling == "first"
    embedding = PatchEmbedding(shape, options.patch, settings.width, settings.position, has_token, settings.dropout)
    encoder = VisionEncoder(embedding, *make_layers(settings, settings.encoder_layers))
    pooling = FirstPooling() if has_token else MeanPooling()
    model = VisionTransformer(encoder, pooling, settings.width, classes, settings.dropout)
    initialise(model, settings)
    return model
