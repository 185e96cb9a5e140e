"""The settings as data: every key with its type, default and meaning, for `show`, `explain`, errors and editors."""

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
    """One thing a run may be told."""

    key: str
    name: str
    allowed: str
    default: str
    meaning: str
    families: tuple[str, ...] = ()
    """The model families that have it so; none if it is not about the model."""

    @property
    def paper(self) -> str:
        """The papers and sections its meaning cites, if any."""
        cited = re.findall(r"\(?([A-Z][\w&. ]*?(?:et al\.)? (?:19|20)\d\d)|(§[\d.]+)", self.meaning)
        return "; ".join(author or f"Vaswani et al. 2017, {section}" for author, section in cited)


@cache
def catalogue() -> tuple[Setting, ...]:
    """Every setting of every section, in the order they are declared."""
    return tuple(_walk(Recipe, ""))


def find_settings(key: str) -> tuple[Setting, ...]:
    """What this key, or the only one with this last name, means: one setting, or one for each family that differs."""
    settings = catalogue()
    exact = [each for each in settings if each.key == key]
    named = exact or [each for each in settings if each.name == key]
    keys = list(dict.fromkeys(each.key for each in named))
    if len(keys) == 1:
        return tuple(named)
    if named:
        raise ValueError(f"'{key}' could be {' or '.join(keys)}; write the whole key")
    near = get_close_matches(key, [each.key for each in settings], n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ValueError(f"there is no setting '{key}'{hint}")


def json_schema() -> str:
    """The recipe's JSON schema, for editors that complete and check TOML."""
    schema = Recipe.model_json_schema()
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2) + "\n"


def _walk(section: type[BaseModel], prefix: str) -> Iterator[Setting]:
    """The settings of a section and of the sections inside it."""
    for name, field in section.model_fields.items():
        key = f"{prefix}{name}"
        inner = list(_sections(field.annotation))
        if inner and field.annotation is inner[0]:
            yield from _walk(inner[0], f"{key}.")
            continue
        if len(inner) > 1 and all(issubclass(each, Family) for each in inner):
            yield from _walk_families(inner, f"{key}.")
            continue
        yield Setting(key, name, _allowed(field), _default(field), _meaning(field))
        if inner and name == "train":  # what a corpus may be told stands once; valid and test take the same
            yield from _walk_kinds(inner, f"{key}.")


def _walk_kinds(kinds: list[type[BaseModel]], prefix: str) -> Iterator[Setting]:
    """The settings of several kinds of one thing: a setting they share stands once, `kind` has all their names."""
    seen = {setting.key: setting for each in reversed(kinds) for setting in _walk(each, prefix)}
    key = f"{prefix}kind"
    names = ", ".join(str(each.model_fields["kind"].default) for each in kinds)
    kind = Setting(key, "kind", f"one of {names}", "told by the other keys", "Which kind of corpus it is.")
    yield from {**seen, key: kind}.values()


def _walk_families(families: list[type[BaseModel]], prefix: str) -> Iterator[Setting]:
    """The settings of all model families; what several have in the very same way stands once and names them."""
    names = [str(each.model_fields["kind"].default) for each in families]
    kind = f"{prefix}kind"
    yield Setting(kind, "kind", f"one of {', '.join(names)}", _literal(names[0]), "The family of the model.")
    found: dict[Setting, list[str]] = {}
    for name, family in zip(names, families, strict=True):
        for setting in _walk(family, prefix):
            found.setdefault(setting, []).append(name)
    yield from (replace(each, families=tuple(having)) for each, having in found.items() if each.key != kind)


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    """The settings classes inside a type, whatever wraps them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections(argument)


def _meaning(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    return "unset" if field.default is None else _literal(field.default)


def _literal(value: object) -> str:
    """A value as TOML writes it."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def _allowed(field: FieldInfo) -> str:
    """What a setting takes, in words."""
    bounds = [_bound(rule) for rule in field.metadata]
    return " ".join([_type(field.annotation), *filter(None, bounds)])


def _bound(rule: Any) -> str:
    words = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤", "min_length": "; at least", "pattern": "matching"}
    return ", ".join(
        f"{sign} {getattr(rule, name)}" for name, sign in words.items() if getattr(rule, name, None) is not None
    )


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a string", type(None): "unset"}
    if annotation in names:
        return names[annotation]
    if origin is Literal:
        choices = [str(each) for each in arguments]
        return f"one of {', '.join(choices)}" if len(choices) > 1 else f"'{choices[0]}'"
    if origin is Annotated:
        return " ".join([_type(arguments[0]), *filter(None, (_rule(each) for each in arguments[1:]))])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type(each) for each in arguments))
    if origin is tuple:
        return f"a list, each {_type(arguments[0])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "a table"
    return str(annotation)


def _rule(rule: Any) -> str:
    return " ".join(filter(None, map(_bound, rule.metadata))) if isinstance(rule, FieldInfo) else ""
