"""The `[decode]` section of a recipe: the decoding options that a run may set."""

from typing import Annotated, Any, Literal

from pydantic import Field

from regard.options import Option, TranslationOptions
from regard.recipe.section import Section


def _bounds(option: Option) -> dict[str, Any]:
    bounds = {"ge": option.minimum, "gt": option.above, "le": option.maximum}
    kind = int if option.kind is int else float
    return {name: kind(bound) for name, bound in bounds.items() if bound is not None}


def _declared(name: str) -> Any:
    """Return the pydantic field of an option, with its default, bounds and help text."""
    (option,) = [declared for declared in TranslationOptions.declared() if declared.name == name]
    assert option.recipe, f"{name} is not declared as an option of recipes"
    return Field(option.default, description=option.description, **_bounds(option))


class Decode(Section):
    """Decoding: search and sampling."""

    # Only names and types are declared here, for the type checker; the rest comes from `regard.options`.
    beam: int = _declared("beam")
    length_penalty: float = _declared("length_penalty")
    normalise: Literal["gnmt", "average"] = _declared("normalise")
    coverage_penalty: float = _declared("coverage_penalty")
    no_repeat: int = _declared("no_repeat")
    longest: float = _declared("longest")


def pydantic_field(option: Option, kind: Any = None) -> tuple[Any, Any]:
    """Return type and field of an option that may be missing, for `pydantic.create_model`.

    The field is None if the request does not give it, so that the setting of the run applies:

        fields = {option.name: pydantic_field(option) for option in TranslationOptions.declared() if option.http}
        TranslateFields = create_model("TranslateFields", __base__=Request, **fields)
        given = {name: value for name in fields if (value := getattr(request, name)) is not None}
        options = translator.options.override(**given)

    Args:
        option: The declared option.
        kind: The type of a value, if it differs from that of the option, as for lists with bounds.
    """
    bounds = {**_bounds(option), **({"allow_inf_nan": False} if option.kind is float else {})}
    annotation: Any = Annotated[option.kind if kind is None else kind, Field(**bounds)]
    return annotation | None, Field(None, description=option.description)
