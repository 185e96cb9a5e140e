"""Whether a run may begin or go on with a recipe, and what a changed one means."""

from pathlib import Path
from typing import Any

from regard.names import RECIPE, WEIGHTS
from regard.recipe import Recipe, load
from regard.train.checkpoint import exists

FREE = {
    "data.root",
    "data.test",
    "train.steps",
    "train.minutes",
    "train.tokens",
    "train.accumulate",
    "train.compile",
    "train.record",
    "train.sharding",
    "train.average",
    "train.every",
    "train.keep",
    "train.patience",
    "train.translate",
}
"""Settings that may change from one part of a run to the next, besides all of `decode`: how long, how fast, where."""


def check_recipe(recipe: Recipe, run: Path) -> None:
    """Refuse to go on with a run by a recipe that would make it another one.

    A run that came to nothing, before its first checkpoint, may be begun anew by any recipe.
    """
    if not (run / RECIPE).is_file() or not (exists(run) or (run / WEIGHTS).is_file()):
        return
    before = load(run / RECIPE)
    changed = [(key, old, new) for key, old, new in differences(before, recipe) if not _free(key)]
    if changed:
        said = "\n".join(f"  {key} was {old!r}, now {new!r}" for key, old, new in changed)
        raise ValueError(
            f"{run} was begun with another recipe:\n{said}\n"
            "give the old settings to go on with it, or another folder with --run to begin anew"
        )
    if not exists(run):
        raise ValueError(
            f"{run} has a trained model but no checkpoint to go on from; give another folder with --run to train anew, "
            f"or remove {run / WEIGHTS} if it is not wanted any more"
        )


def check_choices(recipe: Recipe, run: Path) -> None:
    """Refuse to begin with settings that wait for a validation which never comes."""
    settings = recipe.train
    waiting = {
        "train.choose = 'bleu'": settings.choose == "bleu",
        "train.schedule = 'plateau'": settings.schedule == "plateau",
        f"train.patience = {settings.patience}": settings.patience > 0,
    }
    named = [name for name, waits in waiting.items() if waits]
    if named and recipe.data.valid is None and not exists(run):
        raise ValueError(
            f"{' and '.join(named)} {'needs' if len(named) == 1 else 'need'} text to validate on, and there is no "
            "data.valid; name one, or leave the setting out"
        )


def differences(before: Recipe, after: Recipe) -> list[tuple[str, Any, Any]]:
    """Settings that differ, with both values; a list of corpora counts as one."""
    old, new = _flat(before.model_dump(), ""), _flat(after.model_dump(), "")
    return [(key, old.get(key), new.get(key)) for key in sorted(old | new) if old.get(key) != new.get(key)]


def _free(key: str) -> bool:
    return any(key == each or key.startswith(f"{each}.") for each in FREE | {"decode", "name"})


def _flat(table: dict[str, Any], prefix: str) -> dict[str, Any]:
    """A table of tables as one, keys joined by dots."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
