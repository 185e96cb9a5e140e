"""TOML and `key=value` words in, a `Recipe` out; and back."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from regard.names import RECIPE
from regard.recipe.problems import describe
from regard.recipe.settings import Recipe

Table = dict[str, Any]


def load(path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe from a TOML file and apply `key=value` overrides; the file's stem names a run that has no name."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ValueError(f"{path}: no such recipe{_near(path)}") from None
    except IsADirectoryError:
        raise ValueError(f"{path}: a folder, not a recipe{_inside(path)}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 at byte {error.start}; a recipe is a TOML text file") from None
    return parse(text, overrides, where=str(path), name=path.stem)


def parse(text: str, overrides: Iterable[str] = (), *, where: str = "recipe", name: str = "run") -> Recipe:
    """Make a recipe from TOML text; `where` opens every error, `name` names a run that has none."""
    try:
        table: Table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where}: not valid TOML: {error}") from None
    for word in overrides:
        _override(table, word)
    table.setdefault("name", name)
    try:
        return Recipe.model_validate(table)
    except ValidationError as error:
        raise ValueError(f"{where}: {describe(error)}") from None


def dump(recipe: Recipe) -> str:
    """Write every setting as TOML; `parse(dump(recipe)) == recipe`."""
    return tomli_w.dumps(recipe.model_dump(mode="json", exclude_none=True))


def _override(table: Table, word: str) -> None:
    """Set one `section.key=value`; the value is TOML where it parses, else a plain string."""
    key, equals, value = word.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"'{word}' is not an override; write key=value, such as train.steps=500")
    *parents, last = key.strip().split(".")
    place: Any = table
    for depth, step in enumerate(parents):
        place = _descend(place, step, last if depth + 1 == len(parents) else parents[depth + 1], word)
    if isinstance(place, list):
        place[_position(place, last, word)] = _value(value)
    else:
        place[last] = _value(value)


def _descend(place: Any, step: str, following: str, word: str) -> Any:
    """The table or array inside `place` that `step` names, made if it is missing."""
    inner = place[_position(place, step, word)] if isinstance(place, list) else place.setdefault(step, {})
    if not isinstance(inner, dict | list):
        raise ValueError(f"'{word}': '{step}' is {inner!r}, not a section, so it has no '{following}'")
    return inner


def _position(array: list[Any], step: str, word: str) -> int:
    """The index `step` names in an array."""
    if step.isdecimal() and int(step) < len(array):
        return int(step)
    raise ValueError(f"'{word}': '{step}' is not a place in an array of {len(array)}; places count from 0")


def _value(text: str) -> Any:
    """A TOML value if it reads as one, else the text itself, so that `model.size=base` needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _near(path: Path) -> str:
    """A hint at recipes lying where the missing one was looked for, or in a folder of recipes there."""
    found = [str(each) for folder in (path.parent, path.parent / "recipes") for each in _recipes_in(folder)]
    return f"; there are {', '.join(found)}" if found else ""


def _inside(folder: Path) -> str:
    """A hint at what may have been meant by a folder: the run in it, or one of its recipes."""
    if (folder / RECIPE).is_file():
        return f"; to go on with the run in it: regard train {folder / RECIPE} --run {folder}"
    found = [str(each) for each in _recipes_in(folder)]
    return f"; it has {', '.join(found)}" if found else ""


def _recipes_in(folder: Path) -> list[Path]:
    """The recipes of a folder; TOML is written for other things too."""
    return [each for each in sorted(folder.glob("*.toml")) if _is_recipe(each)]


def _is_recipe(file: Path) -> bool:
    """Whether a TOML file names text to learn from, which every recipe must and nothing else does."""
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8-sig")).get("data")
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and "train" in data
