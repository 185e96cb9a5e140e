"""The base class of the settings of model families."""

from typing import Any, ClassVar, Literal

from pydantic import model_validator

from regard.recipe.section import Section

Sizes = dict[str, dict[str, Any]]
Tied = Literal["all", "decoder", "embeddings", "outer", "none"]

_ONLY_FOR_DECODERS = {"decoder_layers", "tied"}
_ONLY_FOR_TRAINING = {"size", "dropout", "attention_dropout", "activation_dropout", "word_dropout", "init_std"}


class Family(Section):
    """A model family: its name, and presets of which a recipe states only the differences."""

    SIZES: ClassVar[Sizes] = {}
    """The settings of each preset."""
    FOLLOWS: ClassVar[dict[str, str]] = {}
    """Settings whose default is the value of another setting."""

    kind: str
    """The family of the model."""
    size: str
    """A preset."""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_size(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        filled = {**cls.SIZES.get(str(value.get("size", "small")), {}), **value}
        for name, followed in cls.FOLLOWS.items():
            if filled.get(name) is None and followed in filled:
                filled[name] = filled[followed]
        return filled

    @property
    def preset(self) -> dict[str, Any]:
        """The settings of the model's size."""
        return self.SIZES[self.size]

    @property
    def architecture(self) -> dict[str, Any]:
        """The settings that trained weights depend on: all but the preset's name, dropout and initialisation."""
        return {name: value for name, value in self.model_dump(mode="json").items() if name not in _ONLY_FOR_TRAINING}

    @property
    def encoder_architecture(self) -> dict[str, Any]:
        """The settings that the trained weights of an encoder depend on."""
        return {name: value for name, value in self.architecture.items() if name not in _ONLY_FOR_DECODERS}


def check_tied(tied: str, embedding: int, output: int, name: str) -> None:
    """Raise an error if embedding and output are to share a matrix but differ in width.

    Args:
        tied: The setting of that name.
        embedding: Size of the embeddings.
        output: Size of the output projection's input.
        name: The setting that determines `output`.
    """
    if tied in ("all", "decoder", "outer") and embedding != output:
        raise ValueError(
            f"tied = '{tied}' shares the embedding of width {embedding} with the output projection, whose input has "
            f"{name} = {output}; make them equal, or set tied = 'embeddings' or 'none'"
        )
