"""What every group of settings has in common: frozen, strict, closed to unknown keys."""

from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def lists_are_tuples(value: object) -> object:
    """TOML knows arrays only; a frozen recipe holds tuples."""
    return tuple(value) if isinstance(value, list) else value


T = TypeVar("T")
Sequence = Annotated[tuple[T, ...], BeforeValidator(lists_are_tuples)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Positive = Annotated[int, Field(gt=0)]


class Section(BaseModel):
    """A group of settings: frozen, strict, and closed to unknown keys."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )
