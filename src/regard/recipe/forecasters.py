"""Settings of the model families that forecast series."""

from typing import ClassVar, Literal

from pydantic import model_validator

from regard.recipe.family import Family, Sizes
from regard.recipe.section import Fraction, Layers, Size

Normalise = Literal["instance", "affine", "none"]


class _ForecastTransformer(Family):
    """The settings that forecasting Transformers share."""

    size: Literal["tiny", "small", "base"] = "small"
    """A preset for width, inner, heads, layers and dropout; `base` has the sizes of the paper."""
    width: Size = 64
    """Width of the residual stream."""
    inner: Size = 128
    """Inner width of the feed-forward layers."""
    heads: Size = 4
    """Attention heads in each layer."""
    layers: Layers = 3
    """Layers of the encoder."""
    dropout: Fraction = 0.2
    """Dropout on embeddings, on each sub-layer's output and before the forecast."""
    normalise: Normalise = "instance"
    """Normalise each column of a window by its own mean and standard deviation, and undo it in the forecast (RevIN,
    Kim et al. 2022): `instance`; `affine` with a learned scale and shift for each column; `none`."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "_ForecastTransformer":
        if self.width % self.heads:
            divisors = [n for n in range(1, 65) if self.width % n == 0]
            raise ValueError(f"width = {self.width} does not divide into heads = {self.heads}; heads may be {divisors}")
        return self


class PatchTransformer(_ForecastTransformer):
    """PatchTST: an encoder over patches of each column by itself (Nie et al. 2023)."""

    SIZES: ClassVar[Sizes] = {
        "tiny": {"width": 16, "inner": 128, "heads": 4, "layers": 3, "dropout": 0.3},
        "small": {"width": 64, "inner": 128, "heads": 4, "layers": 3, "dropout": 0.2},
        "base": {"width": 128, "inner": 256, "heads": 16, "layers": 3, "dropout": 0.2},
    }

    kind: Literal["patch"] = "patch"
    """The family of the model."""
    patch: Size = 16
    """Steps of the past that are one patch."""
    stride: Size = 8
    """Steps from one patch to the next; less than `patch` makes patches overlap."""

    @model_validator(mode="after")
    def _patches_leave_no_gap(self) -> "PatchTransformer":
        if self.stride > self.patch:
            raise ValueError(
                f"stride = {self.stride} leaves steps between patches of {self.patch} unread; use at most {self.patch}"
            )
        return self


class InvertedTransformer(_ForecastTransformer):
    """iTransformer: an encoder whose tokens are the columns, each with its whole past (Liu et al. 2024)."""

    SIZES: ClassVar[Sizes] = {
        "tiny": {"width": 32, "inner": 64, "heads": 4, "layers": 2, "dropout": 0.2},
        "small": {"width": 128, "inner": 128, "heads": 8, "layers": 2, "dropout": 0.1},
        "base": {"width": 512, "inner": 512, "heads": 8, "layers": 2, "dropout": 0.1},
    }

    kind: Literal["inverted"] = "inverted"
    """The family of the model."""


class LstmAttention(Family):
    """An LSTM over the past of all columns, with attention and an autoregressive part (LSTNet, Lai et al. 2018)."""

    SIZES: ClassVar[Sizes] = {
        "tiny": {"width": 32, "layers": 1, "dropout": 0.1},
        "small": {"width": 64, "layers": 1, "dropout": 0.2},
        "base": {"width": 128, "layers": 2, "dropout": 0.2},
    }

    kind: Literal["lstm"] = "lstm"
    """The family of the model."""
    size: Literal["tiny", "small", "base"] = "small"
    """A preset for width, layers and dropout."""
    width: Size = 64
    """Width of the hidden states."""
    layers: Layers = 1
    """Number of layers."""
    patch: Size = 8
    """Steps of the past that the LSTM reads at once, and steps of the future that share attention weights."""
    dropout: Fraction = 0.2
    """Dropout on the input, between layers and before the output, never along time (Zaremba et al. 2014)."""
    normalise: Normalise = "instance"
    """Normalise each column of a window by its own mean and standard deviation, and undo it in the forecast (RevIN,
    Kim et al. 2022): `instance`; `affine` with a learned scale and shift for each column; `none`."""


class _Linear(Family):
    """The settings that linear families share."""

    SIZES: ClassVar[Sizes] = {"small": {}}

    size: Literal["small"] = "small"
    """A linear model has one size, given by look-back and horizon."""


class NLinear(_Linear):
    """A linear layer from the past to the future, relative to the last value (NLinear, Zeng et al. 2023)."""

    kind: Literal["nlinear"] = "nlinear"
    """The family of the model."""


class DLinear(_Linear):
    """A linear layer each for the trend and for the rest of the past (DLinear, Zeng et al. 2023)."""

    kind: Literal["dlinear"] = "dlinear"
    """The family of the model."""
    kernel: Size = 25
    """Steps of the moving average that is the trend; odd."""

    @model_validator(mode="after")
    def _kernel_is_odd(self) -> "DLinear":
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel = {self.kernel} must be odd, to have a middle; use {self.kernel + 1}")
        return self
