"""What the sections of all model families have in common."""

from typing import Any, ClassVar, Literal

from pydantic import model_validator

from regard.recipe.section import Section

Tied = Literal["all", "decoder", "embeddings", "outer", "none"]


class Family(Section):
    """A model family: its name, and presets from which the recipe only says what differs."""

    SIZES: ClassVar[dict[str, dict[str, Any]]] = {}
    FOLLOWS: ClassVar[dict[str, str]] = {}
    """Settings that are what another one is unless they are told."""

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
        for name, other in cls.FOLLOWS.items():
            if filled.get(name) is None and other in filled:
                filled[name] = filled[other]
        return filled

    @property
    def preset(self) -> dict[str, Any]:
        """What the size says."""
        return self.SIZES[self.size]


def check_tied(tied: str, vectors: int, scored: int, name: str) -> None:
    """Refuse an output that shares the tokens' vectors without being as wide."""
    if tied in ("all", "decoder", "outer") and vectors != scored:
        raise ValueError(
            f"tied = '{tied}' shares the tokens' vectors, {vectors} wide, with the output, which reads {name} = "
            f"{scored}; make them equal, or say tied = 'embeddings' or 'none'"
        )
