"""Encoders of pictures: a grid of annotation vectors, one for each square region (Xu et al. 2015, §3.1.1).

A picture of H × W pixels becomes a memory of (H / patch) · (W / patch) states, row by row, which any decoder reads.
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional

from regard.models.memory import Memory
from regard.models.transformer import BlockStack
from regard.nn.cost import TokenCounts, count_flops
from regard.nn.dropout import Dropout
from regard.nn.ragged import Layout
from regard.nn.tap import Tap

NARROWEST = 16  # channels of the first stage of convolutions


class ConvolutionalStem(nn.Module):
    """Stages of 3 × 3 convolutions, of which the first in each stage halves the picture and doubles the channels.

    Each channel is normalised over the places of a picture (Ulyanov et al. 2016), so that things stand out from the
    background, which most regions show.
    """

    def __init__(self, channels: int, width: int, stages: int, layers: int) -> None:
        """Create `stages` stages of `layers` convolutions, which end with `width` channels."""
        super().__init__()
        self.convolutions, self.norms = nn.ModuleList(), nn.ModuleList()
        before = channels
        for stage in range(stages):
            after = max(min(NARROWEST, width), width >> (stages - 1 - stage))
            for layer in range(layers):
                self.convolutions.append(nn.Conv2d(before, after, 3, 1 if layer else 2, 1))
                self.norms.append(nn.GroupNorm(after, after))
                before = after

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D H2 W2"]:
        """Return the vectors of all regions."""
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = functional.relu(norm(convolution(x)))
        return x


class ImageEncoder(nn.Module):
    """Vectors of regions with learned positions of rows and columns, and layers in which regions attend to each other.

    Rows and columns have vectors, because relations such as "left of" depend on where something is.
    """

    def __init__(
        self, stem: nn.Module, grid: tuple[int, int], width: int, dropout: float, stack: BlockStack | None = None
    ) -> None:
        """Put built parts together.

        Args:
            stem: Makes a grid of vectors of a picture.
            grid: Rows and columns of the grid.
            width: Width of the vectors.
            dropout: Dropout on the vectors.
            stack: Layers of self-attention between regions.
        """
        super().__init__()
        self.stem, self.grid, self.norm = stem, grid, nn.LayerNorm(width)
        self.rows, self.columns = (nn.Parameter(0.1 * torch.randn(count, width)) for count in grid)
        self.mix, self.drop, self.annotations, self.stack = nn.Linear(width, width), Dropout(dropout), Tap(), stack

    @property
    def max_positions(self) -> int | None:
        """The longest input: the number of regions."""
        return self.regions

    @property
    def regions(self) -> int:
        """The number of regions of a picture, L in the paper."""
        return self.grid[0] * self.grid[1]

    def encode(self, inputs: Shaped[Tensor, "B C H W"]) -> Memory:
        """Encode pictures, given by bytes (0 … 255).

        Raises:
            ValueError: The pictures have another size than the grid.
        """
        x = self.stem((inputs.to(self.rows.dtype) - 127.5) / 63.75)
        if tuple(x.shape[2:]) != self.grid:
            raise ValueError(
                f"pictures of {inputs.shape[2]} × {inputs.shape[3]} pixels give {x.shape[2]} × {x.shape[3]} regions, "
                f"but this encoder has {self.grid[0]} × {self.grid[1]}; scale them to the size in its recipe"
            )
        x_BLD = self.norm(x.flatten(2).transpose(1, 2))
        positions_LD = (self.rows[:, None] + self.columns).flatten(0, 1)
        x_ND = (x_BLD + positions_LD).flatten(0, 1)
        # Without this, the mean over regions, from which decoders start, would not tell what is where.
        x_ND = self.drop(self.annotations(x_ND + functional.relu(self.mix(x_ND))))
        layout = Layout.from_lengths([self.regions] * inputs.shape[0]).to(x_ND.device)
        return Memory(x_ND if self.stack is None else self.stack.transform(x_ND, layout), layout)

    def flops(self, counts: TokenCounts) -> int:
        """Return the operations of a forward pass over pictures."""
        places, total = self.regions, 2 * self.mix.weight.numel() * counts.tokens
        # From the last convolution to the first: before one that halves the picture, there are four times the places.
        for convolution in reversed([module for module in self.stem.modules() if isinstance(module, nn.Conv2d)]):
            total += 2 * convolution.weight.numel() * places * counts.sequences
            places *= convolution.stride[0] * convolution.stride[1]
        return total + (0 if self.stack is None else count_flops(self.stack, counts))


def make_image_encoder(
    stem: str,
    shape: tuple[int, int, int],
    patch: int,
    width: int,
    layers: int,
    dropout: float,
    stack: BlockStack | None = None,
) -> ImageEncoder:
    """Make an encoder of pictures.

    Args:
        stem: `convolution` or `patches`.
        shape: Channels, height and width of the pictures.
        patch: Side of a region in pixels.
        width: Width of the vectors of regions.
        layers: Convolutions in each stage.
        dropout: Dropout on the vectors.
        stack: Layers of self-attention between regions.
    """
    channels, height, breadth = shape
    made: nn.Module
    if stem == "patches":
        made = nn.Conv2d(channels, width, patch, patch)
    else:
        made = ConvolutionalStem(channels, width, patch.bit_length() - 1, layers)
    return ImageEncoder(made, (height // patch, breadth // patch), width, dropout, stack)
