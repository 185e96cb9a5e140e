"""A catalogue of all settings with type, default and description, for `regard recipe explain`, errors and editors."""

import json
import re
import types
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from regard.recipe.family import Family
from regard.recipe.settings import Recipe


@dataclass(frozen=True)
class Setting:
    """A setting of a recipe."""

    key: str
    name: str
    allowed: str
    default: str
    description: str
    families: tuple[str, ...] = ()
    """The model families with this setting; empty if it is not in the `[model]` section."""

    @property
    def paper(self) -> str:
        """Return the papers and sections that the description cites."""
        cited = re.findall(r"\(?([A-Z][\w&. ]*?(?:et al\.)? (?:19|20)\d\d)|(§[\d.]+)", self.description)
        return "; ".join(author or f"Vaswani et al. 2017, {section}" for author, section in cited)


@cache
def catalogue() -> tuple[Setting, ...]:
    """Return all settings of all sections, in the order of their declaration."""
    return tuple(_settings(Recipe, ""))


def find_settings(key: str) -> tuple[Setting, ...]:
    """Return the setting with a key such as `train.warmup`, or with a name such as `warmup` that only one key has.

    A setting of the model whose description differs between families is returned once for each.

    Raises:
        ValueError: If there is no such setting, or several keys have this name.
    """
    settings = catalogue()
    exact = [setting for setting in settings if setting.key == key]
    named = exact or [setting for setting in settings if setting.name == key]
    keys = list(dict.fromkeys(setting.key for setting in named))
    if len(keys) == 1:
        return tuple(named)
    if named:
        raise ValueError(f"'{key}' could be {' or '.join(keys)}; write the whole key")
    similar = get_close_matches(key, [setting.key for setting in settings], n=1, cutoff=0.4)
    hint = f"; did you mean {similar[0]}?" if similar else ""
    raise ValueError(f"there is no setting '{key}'{hint}")


def json_schema() -> str:
    """Return the JSON schema of a recipe, with which editors complete and check TOML."""
    schema = Recipe.model_json_schema()
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2) + "\n"


def _settings(section: type[BaseModel], prefix: str) -> Iterator[Setting]:
    """Yield the settings of a section and of the sections inside it."""
    for name, field in section.model_fields.items():
        key = f"{prefix}{name}"
        inner = list(_sections(field.annotation))
        if inner and field.annotation is inner[0]:
            yield from _settings(inner[0], f"{key}.")
            continue
        if len(inner) > 1 and all(issubclass(section, Family) for section in inner):
            yield from _family_settings(inner, f"{key}.")
            continue
        yield Setting(key, name, _allowed(field), _default(field), _description(field))
        if inner and name == "train":  # valid and test have the same settings, which are listed only once
            yield from _corpus_settings(inner, f"{key}.")


def _corpus_settings(kinds: list[type[BaseModel]], prefix: str) -> Iterator[Setting]:
    """Yield the settings of all kinds of corpora; a setting that several have is listed once."""
    settings = {setting.key: setting for section in reversed(kinds) for setting in _settings(section, prefix)}
    key = f"{prefix}kind"
    names = ", ".join(str(section.model_fields["kind"].default) for section in kinds)
    kind = Setting(key, "kind", f"one of {names}", "implied by the other keys", "The kind of corpus.")
    yield from {**settings, key: kind}.values()


def _family_settings(families: list[type[BaseModel]], prefix: str) -> Iterator[Setting]:
    """Yield the settings of all model families; a setting that is equal in several is listed once with their names."""
    names = [str(family.model_fields["kind"].default) for family in families]
    kind = f"{prefix}kind"
    yield Setting(kind, "kind", f"one of {', '.join(names)}", _literal(names[0]), "The family of the model.")
    owners: dict[Setting, list[str]] = {}
    for name, family in zip(names, families, strict=True):
        for setting in _settings(family, prefix):
            owners.setdefault(setting, []).append(name)
    yield from (replace(setting, families=tuple(having)) for setting, having in owners.items() if setting.key != kind)


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the section classes inside a type annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections(argument)


def _description(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return "unset" if field.default is None else _literal(field.default)


def _literal(value: object) -> str:
    """Return a value as TOML writes it."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def _allowed(field: FieldInfo) -> str:
    """Describe the allowed values of a setting."""
    bounds = [_bound(rule) for rule in field.metadata]
    return " ".join([_type(field.annotation), *filter(None, bounds)])


def _bound(rule: Any) -> str:
    symbols = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤", "min_length": "; at least", "pattern": "matching"}
    return ", ".join(
        f"{symbol} {getattr(rule, name)}" for name, symbol in symbols.items() if getattr(rule, name, None) is not None
    )


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a string", type(None): "unset"}
    if annotation in names:
        return names[annotation]
    if origin is Literal:
        choices = [str(choice) for choice in arguments]
        return f"one of {', '.join(choices)}" if len(choices) > 1 else f"'{choices[0]}'"
    if origin is Annotated:
        return " ".join([_type(arguments[0]), *filter(None, (_rule(rule) for rule in arguments[1:]))])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_type, arguments)))
    if origin is tuple:
        return f"a list, each {_type(arguments[0])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "a table"
    return str(annotation)


def _rule(rule: Any) -> str:
    return " ".join(filter(None, map(_bound, rule.metadata))) if isinstance(rule, FieldInfo) else ""
