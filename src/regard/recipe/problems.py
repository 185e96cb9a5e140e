"""A validation error in, sentences out: what was wrong, what was found, what is allowed."""

import re
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from regard.recipe.catalogue import Setting, catalogue


def describe(error: ValidationError) -> str:
    """All problems of a recipe at once, one line each."""
    problems = error.errors(include_url=False)
    deepest = [each for each in problems if not _is_consequence(each, problems)]
    said = dict.fromkeys(_sentence(each) for each in deepest)
    # A setting that may be one thing or another was refused as each of them; the sentence with a hint says it all.
    unique = [each for each in said if not any(other != each and other.startswith(each) for other in said)]
    if len(unique) == 1:
        return unique[0]
    return f"{len(unique)} problems\n" + "\n".join(f"  {each}" for each in unique)


def _is_consequence(problem: ErrorDetails, problems: list[ErrorDetails]) -> bool:
    """Whether a list only counts as too short because what stands in it was refused."""
    inside = any(each["loc"][: len(problem["loc"])] == problem["loc"] for each in problems if each is not problem)
    return problem["type"] == "too_short" and inside


def _sentence(problem: ErrorDetails) -> str:
    """One problem, with its path, what was found and what to do."""
    path, family = _path(problem["loc"]), _family(problem["loc"])
    found = _found(problem["input"])
    context: dict[str, Any] = problem.get("ctx", {})
    setting = _setting(path, family)
    allowed = setting.allowed if setting else _plain(problem["msg"])
    if path.rpartition(".")[2].isdecimal():  # the fault lies in one item of a list, not in the list
        allowed = allowed.partition("each ")[2].partition(" ;")[0] or allowed
    match problem["type"]:
        case "extra_forbidden":
            return f"{path}: no such setting{_neighbour(path, family)}"
        case "missing":
            return f"{path}: missing; {setting.meaning if setting else 'every recipe needs it'}"
        case "union_tag_invalid":
            near = get_close_matches(context["tag"], _choices(context["expected_tags"]), n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            return f"{path}.kind = '{context['tag']}': must be one of {context['expected_tags']}{hint}"
        case "value_error":
            return f"{path}: {context['error']}" if path else str(context["error"])
        case "literal_error":
            near = get_close_matches(str(problem["input"]), _choices(context["expected"]), n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            return f"{path} = {found}: must be {allowed}{hint}"
        case _:
            return f"{path} = {found}: must be {allowed}"


def _family(location: tuple[int | str, ...]) -> str:
    """The model family whose section a problem is in, if it is in one."""
    return str(location[1]) if len(location) > 1 and location[0] == "model" else ""


def _here(family: str) -> list[Setting]:
    """The settings a family has, and all that are not about the model."""
    return [each for each in catalogue() if not each.families or not family or family in each.families]


def _setting(path: str, family: str) -> Setting | None:
    """The setting a path leads to; places in a list do not count, and every corpus takes what `data.train` takes."""
    key = ".".join(step for step in path.split(".") if not step.isdecimal())
    key = re.sub(r"^data\.(valid|test)\.", "data.train.", key)
    return next((each for each in _here(family) if each.key == key), None)


def _plain(message: str) -> str:
    return message.removeprefix("Input should be ").replace(
        "a valid dictionary or instance of", "a section, a table of"
    )


def _path(location: tuple[int | str, ...]) -> str:
    """`data.train.0.source`, without the tags that pydantic puts between."""
    kinds = {"text", "tsv", "jsonl", "phrasebook"}
    steps = [str(step) for place, step in enumerate(location) if not (place > 1 and step in kinds)]
    if _family(location):
        del steps[1]
    noise = ("constrained-int", "bool", "literal[", "function-", "tagged-union")
    return ".".join(step for step in steps if not step.startswith(noise))


def _found(value: object) -> str:
    """What the user wrote, cut if it is long."""
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= 60 else text[:57] + "..."


def _choices(expected: str) -> list[str]:
    return [each.strip().strip("'") for part in expected.split(" or ") for each in part.split(",")]


def _neighbour(path: str, family: str) -> str:
    """The setting of that name in another section, or the one most like it: in its own section, then anywhere."""
    *parents, name = path.split(".")
    section = ".".join(step for step in parents if not step.isdecimal())
    section = re.sub(r"^data\.(valid|test)$", "data.train", section)
    here = {each.name: each.key for each in _here(family) if each.key.rpartition(".")[0] == section}
    everywhere = {each.name: each.key for each in _here(family) if each.name != name}
    own = f"{section}.{name}" if section else name
    # Outside of the model no family is known; unless told otherwise it is the Transformer.
    moved = dict.fromkeys(each.key for each in _here(family or "transformer") if each.name == name and each.key != own)
    elsewhere = [each for each in catalogue() if each.key == path and each.families]
    if family and elsewhere:
        having = dict.fromkeys(one for each in elsewhere for one in each.families)
        return f" of '{family}'; {' and '.join(having)} {'has' if len(having) == 1 else 'have'} it"
    if moved:
        return f"; did you mean {' or '.join(moved)}?"
    here.pop(name, None)
    if not section:
        here |= {each.key.partition(".")[0]: each.key.partition(".")[0] for each in catalogue()}
    for names in (here, everywhere):
        near = get_close_matches(name, names, n=1, cutoff=0.6)
        if near:
            return f"; did you mean {names[near[0]]}?"
    return f"; {section or 'a recipe'} has {', '.join(sorted(here))}"
