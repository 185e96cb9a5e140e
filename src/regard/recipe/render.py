"""A recipe as a person reads it: TOML with every setting, and a mark on each that nobody set."""

from collections.abc import Iterator
from typing import Any

import tomli_w
from pydantic import BaseModel

from regard.recipe.family import Family
from regard.recipe.settings import Recipe


def render(recipe: Recipe) -> str:
    """Write every setting, one a line, marked where it is the default or comes from the model's size."""
    lines = list(_settings(recipe))
    for name, section in recipe:
        if isinstance(section, BaseModel):
            lines += ["", f"[{name}]", *_settings(section)]
    return "\n".join(lines) + "\n"


def _settings(section: BaseModel) -> Iterator[str]:
    """The lines of one section; sections inside a recipe have their own."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(section, Recipe) and isinstance(value, BaseModel):
            continue
        mark = _mark(section, name, value, field.default)
        if value is None:
            yield f"# {name} is unset"
        elif name == "train":
            yield from ["train = [", *(f"    {_inline(each)}," for each in value), "]"]
        else:
            yield f"{name} = {_inline(value)}{mark}"


def _mark(section: BaseModel, name: str, value: object, default: object) -> str:
    """Why a setting is what it is, where the recipe did not say."""
    if isinstance(section, Family) and name in section.preset:
        return f"  # {section.size}" if value == section.preset[name] else ""
    return "  # default" if value == default and type(value) is type(default) else ""


def _inline(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, BaseModel):
        said = {name: each for name, each in value if each != type(value).model_fields[name].default or name == "kind"}
        return "{ " + ", ".join(f"{name} = {_inline(each)}" for name, each in said.items()) + " }"
    if isinstance(value, tuple):
        return "[" + ", ".join(_inline(each) for each in value) + "]"
    return tomli_w.dumps({"value": value}).partition(" = ")[2].rstrip("\n")
