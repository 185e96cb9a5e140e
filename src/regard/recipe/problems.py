"""A validation error in, sentences out: what was wrong, what was found, what is allowed."""

from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from regard.recipe.catalogue import catalogue


def describe(error: ValidationError) -> str:
    """All problems of a recipe at once, one line each."""
    problems = [_sentence(each) for each in error.errors(include_url=False)]
    unique = list(dict.fromkeys(problems))
    if len(unique) == 1:
        return unique[0]
    return f"{len(unique)} problems\n" + "\n".join(f"  {each}" for each in unique)


def _sentence(problem: ErrorDetails) -> str:
    """One problem, with its path, what was found and what to do."""
    path = _path(problem["loc"])
    found = _found(problem["input"])
    context: dict[str, Any] = problem.get("ctx", {})
    match problem["type"]:
        case "extra_forbidden":
            return f"{path}: no such setting{_neighbour(problem['loc'])}"
        case "missing":
            return f"{path}: missing; {_meaning(problem['loc'])}"
        case "literal_error":
            near = get_close_matches(str(problem["input"]), _choices(context["expected"]), n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            return f"{path} = {found}: must be one of {context['expected']}{hint}"
        case "union_tag_invalid":
            return f"{path}.kind = '{context['tag']}': must be one of {context['expected_tags']}"
        case "value_error":
            return f"{path}: {context['error']}" if path else str(context["error"])
        case _:
            message = problem["msg"].removeprefix("Input should be ").removeprefix("Value should ")
            return f"{path} = {found}: must be {message}"


def _path(location: tuple[int | str, ...]) -> str:
    """`data.train.0.source`, without the tags that pydantic puts between."""
    kinds = {"text", "tsv", "jsonl", "phrasebook", "transformer"}
    steps = [str(step) for place, step in enumerate(location) if not (place > 1 and step in kinds)]
    noise = ("constrained-int", "literal[", "function-", "tagged-union")
    return ".".join(step for step in steps if not step.startswith(noise))


def _found(value: object) -> str:
    """What the user wrote, cut if it is long."""
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= 60 else text[:57] + "..."


def _choices(expected: str) -> list[str]:
    return [each.strip().strip("'") for part in expected.split(" or ") for each in part.split(",")]


def _meaning(location: tuple[int | str, ...]) -> str:
    """What the missing setting is for."""
    wanted = str(location[-1])
    section = str(location[0])
    for setting in catalogue():
        if setting.key == wanted or (setting.key.endswith(f".{wanted}") and setting.key.startswith(section)):
            return f"it says: {setting.meaning}"
    return "it has no default"


def _neighbour(location: tuple[int | str, ...]) -> str:
    """The setting most like an unknown one: in its own section first, then anywhere."""
    name = str(location[-1])
    section = _path(location[:-1]).split(".")[0] if len(location) > 1 else ""
    here = {
        setting.name: setting.key for setting in catalogue() if setting.key.partition(".")[0] == section or not section
    }
    everywhere = {setting.name: setting.key for setting in catalogue()}
    for names in (here, everywhere):
        near = get_close_matches(name, names, n=1, cutoff=0.6)
        if near:
            return f"; did you mean {names[near[0]]}?"
    return f"; {section or 'a recipe'} has {', '.join(sorted(here))}"
