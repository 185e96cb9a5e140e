"""Before a run starts: check its recipe, and take vocabulary and weights from another run (`train.start`)."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.bundle import check_memory
from regard.data.fields import Fields, load_fields, text_names, with_tokenizers
from regard.data.prepare import Prepared
from regard.nn.embedding import Embedding, OutputProjection
from regard.nn.ngrams import NgramEmbedding
from regard.recipe import TASK_FIELDS, Recipe, load
from regard.run_files import RECIPE, WEIGHTS
from regard.tasks import Task, load_bundle, make_task
from regard.text import Tokenizer, Tokenizers
from regard.train.checkpoint import has_checkpoint
from regard.train.setup import new_model

MUTABLE = ("name", "decode", "data.root", "data.test", *(f"train.{name}" for name in (
    "steps", "minutes", "tokens", "accumulate", "precision", "compile", "record", "sharding", "average", "every",
    "keep", "patience", "translate",
)))  # fmt: skip
"""Settings that may change when a run resumes."""


def check_recipe(recipe: Recipe, run: Path) -> None:
    """Raise a ValueError if the folder holds a run with another recipe, or a model without a checkpoint.

    A run that ended before its first checkpoint may be replaced by one with any recipe.
    """
    if not (run / RECIPE).is_file() or not (has_checkpoint(run) or (run / WEIGHTS).is_file()):
        return
    differences = _differences(load(run / RECIPE), recipe)
    changed = [(key, old, new) for key, old, new in differences if not _is_mutable(key, recipe)]
    if changed:
        changes = "\n".join(f"  {key} was {old!r}, now {new!r}" for key, old, new in changed)
        raise ValueError(
            f"{run} was started with another recipe:\n{changes}\n"
            "use the old settings to resume it, or start a new run in another folder with --run"
            f"{_fine_tuning_hint(run) if any(key.startswith('data.') for key, _, _ in changed) else ''}"
        )
    if not has_checkpoint(run):
        raise ValueError(
            f"{run} has a trained model but no checkpoint to resume from, and is left as it is; start a new run in "
            "another folder with --run (train.start can take the weights of this one)"
        )


def _fine_tuning_hint(run: Path) -> str:
    """Return how to train the model of a run on other data, as the end of a message."""
    return f"; to train its model further on other data: regard train RECIPE --run runs/NEW train.start={run}"


def check_validation_settings(recipe: Recipe, task: Task, run: Path) -> None:
    """Raise a ValueError if settings need a metric that the task lacks, or validation data that the recipe lacks."""
    settings = recipe.train
    if settings.choose != "loss" and settings.choose not in task.metrics:
        raise ValueError(
            f"train.choose = '{settings.choose}' is not a metric of this task; "
            f"use one of {', '.join(('loss', *task.metrics))}"
        )
    needing = {
        f"train.choose = '{settings.choose}'": settings.choose != "loss",
        "train.schedule = 'plateau'": settings.schedule == "plateau",
        f"train.patience = {settings.patience}": settings.patience > 0,
    }
    named = [name for name, needs_validation in needing.items() if needs_validation]
    if named and recipe.data.valid is None and not has_checkpoint(run):
        raise ValueError(
            f"{' and '.join(named)} {'needs' if len(named) == 1 else 'need'} validation data, but the recipe has no "
            "data.valid; add it, or remove the setting"
        )


def _differences(before: Recipe, after: Recipe) -> list[tuple[str, Any, Any]]:
    """Return the settings that differ, with both values; a list of corpora counts as one setting."""
    old, new = _flatten(before.model_dump(), ""), _flatten(after.model_dump(), "")
    return [(key, old.get(key), new.get(key)) for key in sorted(old | new) if old.get(key) != new.get(key)]


def _is_mutable(key: str, recipe: Recipe) -> bool:
    """Return whether a setting may change. Scores that choose the best weights must be of the same sentences."""
    if key == "train.translate" and recipe.train.choose != "loss":
        return False
    return any(key == name or key.startswith(f"{name}.") for name in MUTABLE)


def _flatten(table: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Flatten nested tables, with keys joined by dots."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def inherit_train_settings(recipe: Recipe, run: Path) -> Recipe:
    """Return the recipe with the settings of training that it leaves unset and the run that it resumes has."""
    if not (run / RECIPE).is_file() or not has_checkpoint(run):
        return recipe
    before = load(run / RECIPE).train.model_dump(exclude_none=True)
    unset = [name for name, value in recipe.train if value is None and not _is_mutable(f"train.{name}", recipe)]
    update = {name: before[name] for name in unset if name in before}
    return recipe.model_copy(update={"train": recipe.train.model_copy(update=update)}) if update else recipe


def inherit_model(recipe: Recipe, run: Path | None = None) -> Recipe:
    """Return the recipe with the model of the run that it starts from, if it has no `[model]` section of its own.

    Args:
        recipe: The recipe of the new run.
        run: Folder of the new run, which has its own copy of everything it took over once it has a checkpoint.
    """
    if not recipe.train.start or "model" in recipe.model_fields_set:
        return recipe
    return recipe.model_copy(update={"model": _recipe_of(_vocabulary_folder(recipe.train.start, run)).model})


def inherit_text_settings(recipe: Recipe, run: Path | None = None) -> Recipe:
    """Return the recipe with the text settings of the run that it starts from, if it takes over the vocabulary.

    Args:
        recipe: The recipe of the new run.
        run: Folder of the new run. If it has a checkpoint, it has its own copy of everything it took over, and the
            other run is no longer needed.

    Raises:
        ValueError: If the recipe sets a text setting to another value, which would have no effect.
    """
    settings = recipe.train
    folder = _vocabulary_folder(settings.start, run)
    if folder == settings.start != "":
        _check_model(recipe, _recipe_of(folder))
    if not settings.start or settings.vocabulary == "new":
        return recipe
    before = _recipe_of(folder)
    _check_text(recipe, before)
    symbols = tuple(dict.fromkeys((*before.text.symbols, *recipe.text.symbols)))
    text = before.text.model_copy(update={"symbols": symbols, "sampling": recipe.text.sampling})
    return recipe.model_copy(update={"text": text})


def check_start(recipe: Recipe, task: Task, run: Path | None = None) -> None:
    """Raise a ValueError, before data are read, if the model of a recipe can take nothing over from `train.start`."""
    start = recipe.train.start
    if not start or _vocabulary_folder(start, run) != start:
        return
    outlines = [
        check_memory(of, dict.fromkeys(of.kinds, 8)) for of in (task, _task_of(_recipe_of(start), recipe, task))
    ]
    if outlines[0] is not None and outlines[1] is not None:
        _shared_parts(outlines[0], outlines[1], start)


def inherited_fields(recipe: Recipe, task: Task, run: Path | None = None) -> Fields | None:
    """Return the vocabularies that a recipe takes over, with the symbols it adds; None if it takes over none.

    The classes of labels are never taken over from another run. A text field that the other run does not have gets the
    vocabulary of the other run's encoder.
    """
    settings = recipe.train
    if not settings.start or settings.vocabulary == "new" or not text_names(task.kinds):
        return None
    folder = _vocabulary_folder(settings.start, run)
    if folder != settings.start:
        return load_fields(Path(folder), task.kinds, recipe.image)
    before, names = _task_of(_recipe_of(folder), recipe, task), text_names(task.kinds)
    if not names:
        return None
    known = Tokenizers.load(folder, fields=text_names(before.kinds))
    chosen = {name: known[name if name in known else before.field_of("encoder.embedding.weight")] for name in names}
    tokenizers = Tokenizers(chosen).extended(recipe.text.symbols, fields=[task.tagged or names[0]])
    return with_tokenizers(tokenizers, task.kinds)


def initialise_from_run(recipe: Recipe, task: Task, prepared: Prepared) -> tuple[nn.Module, str]:
    """Return the recipe's model with the weights of the run `train.start`, and a message for the user.

    A run of another task gives the parts that both models have, such as the encoder. Rows of embeddings and output
    layers are matched by token, so that vocabularies may differ.
    """
    start = recipe.train.start
    before = _task_of(_recipe_of(start), recipe, task)
    bundle = load_bundle(start, task=before)
    model = new_model(recipe, task, prepared)
    taken, others = _shared_parts(model, bundle.model, start)
    if recipe.train.vocabulary == "new":
        # The rows of n-grams follow from the numbers of tokens, and these are others now.
        renumbered = [part for part in taken if isinstance(model.get_submodule(part), NgramEmbedding)]
        taken, others = [part for part in taken if part not in renumbered], [*others, *renumbered]
    old = dict(bundle.model.named_parameters(remove_duplicate=False))
    with_vocabulary = _names_with_vocabulary(model)
    rows: dict[str, tuple[Tensor, Tensor]] = {}
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if _part(name) not in taken:
                continue
            if name in with_vocabulary:
                field = task.field_of(name)
                if field not in rows:
                    tokenizers = prepared.fields.tokenizers[field], bundle.tokenizers[before.field_of(name)]
                    rows[field] = _common_tokens(*tokenizers)
                new_rows, old_rows = rows[field]
                weight[new_rows] = old[name][old_rows]
            else:
                weight.copy_(old[name])
    known = ", ".join(f"{len(rows[name][0])} of {len(prepared.fields[name])} {name}" for name in rows)
    parts = f" ({', '.join(taken)} taken over; {', '.join(others)} initialised anew)" if others else ""
    return model, f"started from {start}{parts}{f'; {known} tokens keep their embeddings' if known else ''}"


def _shared_parts(model: nn.Module, old: nn.Module, start: str) -> tuple[list[str], list[str]]:
    """Return the parts that a model takes over from a model of the run `start`, and those that it does not.

    A part, such as `encoder`, is taken over if the other model has all its weights, in the same shapes apart from the
    size of vocabularies.

    Raises:
        ValueError: If there is no such part, or none of several reads tokens.
    """
    shapes = {name: weight.shape for name, weight in old.named_parameters(remove_duplicate=False)}
    with_vocabulary = _names_with_vocabulary(model)
    fits: dict[str, bool] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        begin = 1 if name in with_vocabulary else 0
        is_same = name in shapes and shapes[name][begin:] == weight.shape[begin:]
        fits[_part(name)] = fits.get(_part(name), True) and is_same
    taken, others = ([part for part, fit in fits.items() if fit is wanted] for wanted in (True, False))
    reading = {_part(name) for name, module in model.named_modules() if isinstance(module, Embedding)}
    if not taken or (others and not reading & set(taken)):
        old_parts = dict.fromkeys(map(_part, shapes))
        hint = "; an encoder comes from a masked language model, a classifier, a tagger or a translator"
        raise ValueError(
            f"train.start = '{start}' cannot initialise this model: it consists of {', '.join(old_parts)}, and this "
            f"one of {', '.join(fits)}, which have no part that reads text in common"
            f"{hint if 'encoder' in fits and 'encoder' not in old_parts else ''}"
        )
    return taken, others


def _part(name: str) -> str:
    """Return the part of a model that a weight belongs to."""
    return name.partition(".")[0]


def _names_with_vocabulary(model: nn.Module) -> set[str]:
    """Return the names of the weights that have a row for each token of a vocabulary."""
    return {
        f"{prefix}.{name}"
        for prefix, module in model.named_modules()
        if isinstance(module, Embedding | OutputProjection)
        for name, _ in module.named_parameters(recurse=False)
    }


def _task_of(before: Recipe, recipe: Recipe, task: Task) -> Task:
    """Return the task of the run to start from; that of another package is the one of the new run."""
    if before.task not in TASK_FIELDS:
        return task
    own = before.task == recipe.task and type(task) is not type(make_task(recipe))
    return task if own else make_task(before)


def _vocabulary_folder(start: str, run: Path | None) -> str:
    """Return the folder with the vocabulary: the run itself once it has a checkpoint, else the run it starts from."""
    return str(run) if run is not None and has_checkpoint(run) else start


def _recipe_of(start: str) -> Recipe:
    """Load the recipe of the run to start from."""
    path = Path(start) / RECIPE
    if not path.is_file():
        raise ValueError(
            f"train.start = '{start}' is not a run: {path} does not exist; use the folder of a trained run"
        )
    return load(path)


def _check_model(recipe: Recipe, before: Recipe) -> None:
    """Raise a ValueError that names the differences if the weights of the other run do not fit the model."""
    if (recipe.task, recipe.is_masked) == (before.task, before.is_masked) and not recipe.is_masked:
        new, old, part = recipe.model.architecture, before.model.architecture, "model"
    else:  # what runs of different tasks have in common is the encoder
        new, old, part = recipe.model.encoder_architecture, before.model.encoder_architecture, "encoder"
    different = [key for key in sorted(new | old) if new.get(key) != old.get(key)]
    if different:
        values = ", ".join(f"model.{key} is {old.get(key)!r} there and {new.get(key)!r} here" for key in different)
        raise ValueError(
            f"train.start = '{recipe.train.start}' has another {part}: {values}; remove [model] from this recipe to "
            "use that model, or use the same settings"
        )


def _check_text(recipe: Recipe, before: Recipe) -> None:
    """Raise a ValueError if the recipe sets text settings that the vocabulary of the other run does not have."""
    new, old = recipe.text.model_dump(), before.text.model_dump()
    stated = sorted(recipe.text.model_fields_set - {"symbols", "sampling"})
    different = [key for key in stated if new[key] != old[key]]
    if different:
        values = ", ".join(f"text.{key} is {old[key]!r} there and {new[key]!r} here" for key in different)
        raise ValueError(
            f"train.start = '{recipe.train.start}' brings its own vocabulary, and {values}; remove "
            f"{'it' if len(different) == 1 else 'them'} from this recipe, or learn a new vocabulary with "
            "train.vocabulary = 'new'"
        )


def _common_tokens(new: Tokenizer, old: Tokenizer) -> tuple[Tensor, Tensor]:
    """Return the ids of the tokens that two vocabularies share, in the new and in the old one."""
    old_ids = {old.piece(index): index for index in range(len(old))}
    pairs = [(index, old_ids[piece]) for index in range(len(new)) if (piece := new.piece(index)) in old_ids]
    ids = torch.tensor(pairs).T
    return ids[0], ids[1]
