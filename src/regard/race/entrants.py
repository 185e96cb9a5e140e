"""Who runs: recipes by name, held to the same text, and those that run when nobody is named."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from regard.recipe import Recipe, load, parse

SELF_ATTENTION = 'size="tiny", inner=512, encoder_layers=2, decoder_layers=2, dropout=0.0'
FAMILIES: dict[str, tuple[str, ...]] = {
    "sutskever": ('model={kind="sutskever", size="small", dropout=0.0}', "train.rate=1e-2"),
    "bahdanau": ('model={kind="bahdanau", size="tiny", dropout=0.0}', "train.optimiser=adamw", "train.rate=5e-3"),
    "luong": ('model={kind="luong", size="tiny", dropout=0.0}', "train.rate=1e-2"),
    "convs2s": ('model={kind="convs2s", size="tiny", dropout=0.0}', "train.rate=1e-2"),
    "restricted": (f"model={{{SELF_ATTENTION}, window=3}}", "train.rate=8e-3"),
    "transformer": (f"model={{{SELF_ATTENTION}}}", "train.rate=8e-3"),
}
"""The lectures' families, oldest first, and what each is told besides what all share; rates were chosen on validation
text (docs/race.md)."""


@dataclass(frozen=True)
class Contender:
    """A recipe under the name it runs by."""

    name: str
    recipe: Recipe


def lectures_contenders(overrides: Sequence[str] = ()) -> list[Contender]:
    """The families of the lectures on the phrasebook."""
    text = files("regard.race").joinpath("lectures.toml").read_text(encoding="utf-8")
    return [
        Contender(name, parse(text, [f"name={name}", *told, *overrides], where=f"the race's recipe {name}"))
        for name, told in FAMILIES.items()
    ]


def named_contenders(paths: Sequence[str], overrides: Sequence[str] = ()) -> list[Contender]:
    """Recipes from files; two of one name are told apart by a number."""
    found: list[Contender] = []
    for path in paths:
        recipe = load(Path(path), overrides)
        alike = sum(each.recipe.name == recipe.name for each in found)
        found.append(Contender(f"{recipe.name}-{alike + 1}" if alike else recipe.name, recipe))
    return found


def with_seeds(contenders: Sequence[Contender], seeds: int) -> list[Contender]:
    """Each contender once for each of so many seeds, counted from its own."""
    if seeds == 1:
        return list(contenders)
    return [
        Contender(f"{each.name}.{number + 1}", each.recipe.model_copy(update={"seed": each.recipe.seed + number}))
        for each in contenders
        for number in range(seeds)
    ]


def check_fair(contenders: Sequence[Contender]) -> None:
    """Refuse a race that would compare what cannot be compared."""
    if len(contenders) < 2:
        raise ValueError("a race needs at least two recipes; name more, or none for the lectures' families")
    first = contenders[0]
    if first.recipe.data.test is None and first.recipe.data.valid is None:
        raise ValueError(f"{first.name}: no data.test and no data.valid; a race needs text to judge by")
    for each in contenders[1:]:
        for section in ("data", "text"):
            mine, theirs = (getattr(side.recipe, section).model_dump() for side in (each, first))
            keys = [key for key in mine if mine[key] != theirs[key]]
            if keys:
                raise ValueError(
                    f"{each.name} and {first.name} differ in {section}.{keys[0]} "
                    f"({mine[keys[0]]!r} and {theirs[keys[0]]!r}); a race is run on the same text"
                )
