"""The base classes of all sections of a recipe and of all corpora, and the types of their settings."""

from collections.abc import Sequence
from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _list_to_tuple(value: object) -> object:
    """Return a TOML array as a tuple, since recipes are immutable."""
    return tuple(value) if isinstance(value, list) else value


T = TypeVar("T")
TupleOf = Annotated[tuple[T, ...], BeforeValidator(_list_to_tuple)]
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]
Positive = Annotated[int, Field(gt=0)]
# Sizes of a model are bounded, so that a wrong or hostile recipe is an error and not an exhausted machine.
Size = Annotated[int, Field(gt=0, le=1_048_576)]
Layers = Annotated[int, Field(gt=0, le=1_000)]


class Section(BaseModel):
    """A group of settings. It is frozen, does not convert types, and rejects unknown keys."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


class BaseCorpus(Section):
    """Settings that every kind of corpus has."""

    weight: float = Field(default=1.0, gt=0.0, le=1000.0)
    """How often each record appears in an epoch: 2 shows it twice, 0.5 shows a new random half each time."""
    tag: str = ""
    """Symbol put before each source text, such as `<2de>` for the target language (Johnson et al. 2017)."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The files of the corpus, as the recipe names them."""
        return ()

    def check_fields(self, names: Sequence[str]) -> None:
        """Raise a ValueError if the corpus does not provide the fields of a task."""
