"""Describe validation errors of a recipe: which setting, its value, and what is allowed."""

import re
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from regard.recipe.catalogue import Setting, catalogue


def describe(error: ValidationError) -> str:
    """Return all problems of a recipe, one per line."""
    problems = error.errors(include_url=False)
    causes = [problem for problem in problems if not _is_consequence(problem, problems)]
    messages = dict.fromkeys(_message(problem) for problem in causes)
    # A setting with several types has an error for each of them; keep the message with a hint.
    unique = [text for text in messages if not any(other != text and other.startswith(text) for other in messages)]
    if len(unique) == 1:
        return unique[0]
    return f"{len(unique)} problems\n" + "\n".join(f"  {message}" for message in unique)


def _is_consequence(problem: ErrorDetails, problems: list[ErrorDetails]) -> bool:
    """Return whether a list is too short only because its items are invalid."""
    inside = any(other["loc"][: len(problem["loc"])] == problem["loc"] for other in problems if other is not problem)
    return problem["type"] == "too_short" and inside


def _message(problem: ErrorDetails) -> str:
    """Return a message with the path of a setting, its value and what is allowed."""
    path, family = _path(problem["loc"]), _family(problem["loc"])
    value = _shortened(problem["input"])
    context: dict[str, Any] = problem.get("ctx", {})
    setting = _setting(path, family)
    allowed = setting.allowed if setting else _plain(problem["msg"])
    if path.rpartition(".")[2].isdecimal():  # the error is in an item of a list
        allowed = allowed.partition("each ")[2].partition(" ;")[0] or allowed
    match problem["type"]:
        case "extra_forbidden":
            return f"{path}: no such setting{_suggestion(path, family)}"
        case "missing":
            return f"{path}: missing; {setting.description if setting else 'every recipe needs it'}"
        case "union_tag_invalid":
            tags = context["expected_tags"]
            return f"{path}.kind = '{context['tag']}': must be one of {tags}{_similar_choice(context['tag'], tags)}"
        case "value_error":
            return f"{path}: {context['error']}" if path else str(context["error"])
        case "literal_error":
            return f"{path} = {value}: must be {allowed}{_similar_choice(str(problem['input']), context['expected'])}"
        case _:
            return f"{path} = {value}: must be {allowed}"


def _family(location: tuple[int | str, ...]) -> str:
    """Return the model family of an error in the `[model]` section, or an empty string."""
    return str(location[1]) if len(location) > 1 and location[0] == "model" else ""


def _settings_of(family: str) -> list[Setting]:
    """Return the settings of a family, and all outside the `[model]` section."""
    return [setting for setting in catalogue() if not setting.families or not family or family in setting.families]


def _setting(path: str, family: str) -> Setting | None:
    """Return the setting at a path; indices are ignored, and all corpora have the settings of `data.train`."""
    key = ".".join(step for step in path.split(".") if not step.isdecimal())
    key = re.sub(r"^data\.(valid|test)\.", "data.train.", key)
    return next((setting for setting in _settings_of(family) if setting.key == key), None)


def _plain(message: str) -> str:
    return message.removeprefix("Input should be ").replace(
        "a valid dictionary or instance of", "a section, a table of"
    )


def _path(location: tuple[int | str, ...]) -> str:
    """Return a path such as `data.train.0.source`, without the tags that pydantic inserts."""
    kinds = {"text", "tsv", "jsonl", "conllu", "conll", "phrasebook", "documents", "series", "seasonal"}
    steps = [str(step) for depth, step in enumerate(location) if not (depth > 1 and step in kinds)]
    if _family(location):
        del steps[1]
    tags = ("constrained-int", "bool", "literal[", "function-", "tagged-union")
    return ".".join(step for step in steps if not step.startswith(tags))


def _shortened(value: object) -> str:
    """Return the value in the recipe, truncated if it is long."""
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= 60 else text[:57] + "..."


def _similar_choice(value: str, expected: str) -> str:
    """Return a hint if a value is similar to one of those that pydantic lists as expected."""
    choices = [choice.strip().strip("'") for part in expected.split(" or ") for choice in part.split(",")]
    similar = get_close_matches(value, choices, n=1)
    return f"; did you mean '{similar[0]}'?" if similar else ""


def _suggestion(path: str, family: str) -> str:
    """Return a hint for an unknown setting.

    It is the setting of the same name in another section, or else the one with the most similar name: first in the same
    section, then in all sections.
    """
    *parents, name = path.split(".")
    section = ".".join(step for step in parents if not step.isdecimal())
    section = re.sub(r"^data\.(valid|test)$", "data.train", section)
    settings = _settings_of(family)
    same_section = {setting.name: setting.key for setting in settings if setting.key.rpartition(".")[0] == section}
    everywhere = {setting.name: setting.key for setting in settings if setting.name != name}
    own_key = f"{section}.{name}" if section else name
    # Outside the `[model]` section the family is unknown; the default is the Transformer.
    candidates = _settings_of(family or "transformer")
    moved = dict.fromkeys(setting.key for setting in candidates if setting.name == name and setting.key != own_key)
    owners = dict.fromkeys(owner for setting in catalogue() if setting.key == path for owner in setting.families)
    if family and owners:
        return f" of '{family}'; {' and '.join(owners)} {'has' if len(owners) == 1 else 'have'} it"
    if moved:
        return f"; did you mean {' or '.join(moved)}?"
    same_section.pop(name, None)
    if not section:
        sections = dict.fromkeys(setting.key.partition(".")[0] for setting in catalogue())
        same_section |= {section: section for section in sections}
    for names in (same_section, everywhere):
        similar = get_close_matches(name, names, n=1, cutoff=0.6)
        if similar:
            return f"; did you mean {names[similar[0]]}?"
    return f"; {section or 'a recipe'} has {', '.join(sorted(same_section))}"
