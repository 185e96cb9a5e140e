"""The settings of models that describe pictures: how they read a picture, and recurrent decoders with attention."""

from typing import ClassVar, Literal

from regard.recipe.family import Family, Sizes
from regard.recipe.recurrent import Recurrent
from regard.recipe.section import Layers, Size


class PictureReading(Family):
    """How a picture becomes a grid of vectors, one for each square region; they share these settings."""

    stem: Literal["convolution", "patches"] = "convolution"
    """How regions become vectors: `convolution` halves the picture stage by stage, so that neighbouring regions
    overlap; `patches` projects the pixels of each region (Dosovitskiy et al. 2021, section 3.1)."""
    patch: Size = 8
    """Side of a region in pixels; it must divide `image.size`, and be a power of two with convolutions."""
    stem_layers: Layers = 2
    """Convolutions in each stage, of which the first halves the picture."""

    def check_image(self, size: int) -> None:
        """Raise a ValueError unless regions tile pictures of this size."""
        if size % self.patch:
            fitting = [side for side in range(1, size + 1) if size % side == 0]
            raise ValueError(
                f"model.patch = {self.patch} does not divide image.size = {size}; it may be one of {fitting}"
            )
        if self.stem == "convolution" and (not 2 <= self.patch < size or self.patch & (self.patch - 1)):
            raise ValueError(
                f"model.patch = {self.patch} is no power of two below image.size, but each stage of convolutions "
                "halves the picture; "
                "set model.patch = 4, 8 or 16, or model.stem = 'patches'"
            )


class ShowAttendTell(Recurrent, PictureReading):
    """An LSTM that describes a picture, attending to a region before each word (Xu et al. 2015)."""

    FOLLOWS: ClassVar[dict[str, str]] = {"embedding": "width", "annotation": "width"}
    SIZES: ClassVar[Sizes] = {
        "tiny": {"width": 128, "dropout": 0.1},
        "small": {"width": 256, "dropout": 0.3},
        "base": {"width": 1000, "embedding": 512, "annotation": 512, "dropout": 0.5},
    }

    kind: Literal["show_attend_tell"] = "show_attend_tell"
    """The family of the model."""
    attention: Literal["soft", "hard", "gumbel", "none"] = "soft"
    """Attention: `soft` mixes all regions (section 4.2); `hard` samples one, and learns which by REINFORCE (section
    4.1); `gumbel` samples one with a straight-through gradient (Jang et al. 2017); `none` reads one vector of the
    picture before the first word (Vinyals et al. 2015). With `hard` and `gumbel`, a trained model attends to the most
    probable region."""
    annotation: Size = 256
    """Width of the vectors of regions, D in the paper; unset is width."""
    tied: Literal["decoder", "none"] = "none"
    """Whether the embedding of words and the output projection share one matrix (Press & Wolf 2017): `decoder` or
    none."""

    @property
    def output_width(self) -> tuple[int, str]:
        """Width of the output projection's input, and the setting that determines it."""
        return (self.width, "width") if self.attention == "none" else (self.embedding, "embedding")
