"""Read recipes from TOML and `key=value` overrides, and write them."""

import tomllib
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError

from regard.recipe.family import Family
from regard.recipe.problems import describe
from regard.recipe.settings import Recipe
from regard.run_files import RECIPE

Table = dict[str, Any]

SHIPPED = files("regard").joinpath("recipes")
"""Folder of the recipes that are part of the package."""


def load(path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe from a TOML file, or one that regard ships, and apply `key=value` overrides.

    Example:
        >>> load("phrasebook", ["train.steps=500", "model.size=tiny"])

    Args:
        path: The file, or the name of a shipped recipe, such as `phrasebook`, if there is no such file. Its stem is the
            name of a run without a name.
        overrides: Settings to change, such as `train.steps=500`.

    Raises:
        ValueError: If there is no such file, or the recipe is invalid. The message lists all problems.
    """
    path = Path(path)
    if not path.is_file() and str(path) in shipped_recipes():
        return parse(shipped_recipe(str(path)), overrides, where=str(path), name=path.stem)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ValueError(f"{path}: no such recipe{_hint_at_recipes(path)}") from None
    except IsADirectoryError:
        raise ValueError(f"{path}: a folder, not a recipe{_hint_in_folder(path)}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 at byte {error.start}; a recipe is a TOML text file") from None
    return parse(text, overrides, where=str(path), name=path.stem)


def shipped_recipes() -> list[str]:
    """Return the names of the recipes that regard ships; names of the same study share a folder."""
    names = [file.name for file in SHIPPED.iterdir() if file.is_file()]
    for folder in filter(lambda entry: entry.is_dir(), SHIPPED.iterdir()):
        names += [f"{folder.name}/{file.name}" for file in folder.iterdir()]
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def shipped_recipe(name: str) -> str:
    """Return the text of a recipe that regard ships, without the line that tells editors its schema.

    Raises:
        ValueError: If there is no such recipe. The message lists them.
    """
    if name not in shipped_recipes():
        raise ValueError(f"regard ships no recipe '{name}'; it has {', '.join(shipped_recipes())}")
    text = SHIPPED.joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#:schema"))


def parse(text: str, overrides: Iterable[str] = (), *, where: str = "recipe", name: str = "run") -> Recipe:
    """Return the recipe in a TOML text; `where` begins every error, and `name` is the default name of the run."""
    try:
        table: Table = tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"{where}: not a recipe: its values are nested too deeply") from None
    except ValueError as error:  # also an integer with thousands of digits
        raise ValueError(f"{where}: not valid TOML: {error}") from None
    for override in overrides:
        _apply(table, override)
    table.setdefault("name", name)
    try:
        return Recipe.model_validate(table)
    except ValidationError as error:
        raise ValueError(f"{where}: {describe(error)}") from None


def dump(recipe: Recipe) -> str:
    """Return all settings as TOML; `parse(dump(recipe)) == recipe`."""
    return tomli_w.dumps(recipe.model_dump(mode="json", exclude_none=True))


def render(recipe: Recipe) -> str:
    """Return all settings as TOML, one per line, with a comment at those from a default or from the model's size."""
    lines = list(_setting_lines(recipe))
    for name, section in recipe:
        if name in recipe.unused_sections:
            continue
        if isinstance(section, BaseModel):
            lines += ["", f"[{name}]", *_setting_lines(section)]
    return "\n".join(lines) + "\n"


def _setting_lines(section: BaseModel) -> Iterator[str]:
    """Yield the lines of one section, without those of sections inside it."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(section, Recipe) and isinstance(value, BaseModel):
            continue
        if value is None:
            yield f"# {name} is unset"
        elif name == "train":
            yield from ["train = [", *(f"    {_inline(corpus)}," for corpus in value), "]"]
        else:
            yield f"{name} = {_inline(value)}{_origin(section, name, value, field.default)}"


def _origin(section: BaseModel, name: str, value: object, default: object) -> str:
    """Return a comment that says where a value comes from, if not from the recipe."""
    if isinstance(section, Family) and name in section.preset:
        return f"  # {section.size}" if value == section.preset[name] else ""
    return "  # default" if value == default and type(value) is type(default) else ""


def _inline(value: Any) -> str:
    """Return a value as TOML on one line."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        table = {name: entry for name, entry in value if entry != fields[name].default or name == "kind"}
        table = {**table.pop("files", {}), **table}  # the keys of files are the names of their fields
        return "{ " + ", ".join(f"{name} = {_inline(entry)}" for name, entry in table.items()) + " }"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return tomli_w.dumps({"value": value}).partition(" = ")[2].rstrip("\n")


def _apply(table: Table, override: str) -> None:
    """Set one `section.key=value` in a table."""
    key, equals, value = override.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"'{override}' is not an override; write key=value, such as train.steps=500")
    *parents, last = names = key.strip().split(".")
    section: Any = table
    for name, following in zip(parents, names[1:], strict=True):
        inner = section[_index(section, name, override)] if isinstance(section, list) else section.setdefault(name, {})
        if not isinstance(inner, dict | list):
            raise ValueError(f"'{override}': '{name}' is {inner!r}, not a section, so it has no '{following}'")
        section = inner
    if isinstance(section, list):
        section[_index(section, last, override)] = _value(value)
    else:
        section[last] = _value(value)


def _index(array: list[Any], name: str, override: str) -> int:
    if name.isdecimal() and int(name) < len(array):
        return int(name)
    raise ValueError(f"'{override}': '{name}' is not an index of an array of {len(array)}; indices count from 0")


def _value(text: str) -> Any:
    """Return a TOML value, or the text itself if it is none, so that `model.size=base` needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _hint_at_recipes(path: Path) -> str:
    """Return a hint that lists the recipes in the folder of a missing file and, for a bare name, those of regard."""
    recipes = [*_recipes_in(path.parent), *_recipes_in(path.parent / "recipes")]
    hint = f"; there are {', '.join(recipes)}" if recipes else ""
    return f"{hint}; regard ships {', '.join(shipped_recipes())}" if len(path.parts) == 1 else hint


def _hint_in_folder(folder: Path) -> str:
    """Return a hint how to resume the run in a folder, or a list of the recipes in it."""
    if (folder / RECIPE).is_file():
        return f"; to resume the run in it: regard train {folder / RECIPE} --run {folder}"
    recipes = _recipes_in(folder)
    return f"; it has {', '.join(recipes)}" if recipes else ""


def _recipes_in(folder: Path) -> list[str]:
    return [str(file) for file in sorted(folder.glob("*.toml")) if _is_recipe(file)]


def _is_recipe(file: Path) -> bool:
    """Return whether a TOML file has `data.train`, which every recipe needs."""
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8-sig")).get("data")
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and "train" in data
