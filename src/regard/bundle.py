"""A trained model on disk: a folder with its recipe, vocabularies, weights and scores.

    recipe.toml         every setting of the run, enough to repeat it
    tokenizer/          the tokenizers of text fields
    labels.json         the classes of label fields, if there are any
    model.safetensors   the weights, with a checksum, the settings of the model and the fingerprint of the vocabularies
    scores.json         metrics and facts of the training, as plain JSON; may be missing

The folder of a run is a bundle as soon as it has weights. A bundle may come from an untrusted source: only regular
files inside its folder are opened, sizes are compared with the weights before a model is built, and no code is run.
"""

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from regard.data.fields import Fields, load_fields
from regard.files import find_inside, read_inside, write_atomically
from regard.recipe import FieldKind, Recipe, dump, parse
from regard.run_files import CHECKPOINTS, RECIPE, SCORES, TOKENIZER, WEIGHTS
from regard.run_path import load_checkpoint_weights, other_weights
from regard.text import Tokenizers
from regard.weights import WeightsFile, save_weights

LONGEST_RECIPE = 1 << 20
LONGEST_SCORES = 1 << 26
"""Maximal bytes of the files `recipe.toml` and `scores.json`."""


class BundleTask(Protocol):
    """The part of a task that is needed to open a bundle."""

    @property
    def kinds(self) -> Mapping[str, FieldKind]:
        """The fields of a record and their kinds."""

    def build(self, sizes: Mapping[str, int]) -> nn.Module:
        """Build the untrained model for vocabularies of these sizes."""


@dataclass(frozen=True, eq=False)
class Bundle:
    """A trained model with its recipe, vocabularies and scores."""

    folder: Path
    recipe: Recipe
    fields: Fields
    model: Any
    """An `nn.Module`; its class depends on the task."""
    scores: dict[str, Any]

    @property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers of the text fields."""
        return self.fields.tokenizers


def save_bundle(folder: Path, recipe: Recipe, fields: Fields, model: nn.Module, scores: dict[str, Any]) -> None:
    """Write a bundle. The weights come last: a folder with weights is complete, even if writing was interrupted."""
    fields.save(folder)
    write_atomically(folder / RECIPE, dump(recipe).encode())
    save_scores(folder, scores)
    save_model(folder, recipe, fields, model)


def save_model(
    folder: Path, recipe: Recipe, fields: Fields, model: nn.Module, metadata: Mapping[str, str] | None = None
) -> None:
    """Write the weights of a bundle, with the settings of the model and the fingerprint of the vocabularies they need.

    Args:
        folder: The folder of the bundle.
        recipe: Its recipe.
        fields: Its vocabularies.
        model: The trained model.
        metadata: Further statements about the weights.
    """
    needs = {"model": json.dumps(recipe.architecture), "vocabulary": fields.fingerprint}
    save_weights(model, folder / WEIGHTS, {**(metadata or {}), **needs})


def load_bundle_recipe(folder: Path) -> Recipe:
    """Read the recipe of a bundle."""
    path = folder / RECIPE
    try:
        text = read_inside(folder, RECIPE, LONGEST_RECIPE).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 at byte {error.start}; a recipe is a TOML text file") from None
    return parse(text, where=str(path), name=path.stem)


def read_bundle(
    folder: Path, recipe: Recipe, task: BundleTask, device: torch.device, weights: Path | None = None
) -> Bundle:
    """Read vocabularies, model and scores of a run; `regard.tasks.load_bundle` finds recipe and task.

    Args:
        folder: The folder of the run.
        recipe: Its recipe.
        task: Its task.
        device: Where the model goes.
        weights: A file of weights in it, or the folder of a checkpoint. Default: the trained model of the run.

    Raises:
        ValueError: If a file is damaged, or was changed so that the weights can no longer be used with it.
    """
    scores = load_scores(folder)
    fields = load_fields(folder, task.kinds, recipe.image)
    if weights is not None and weights.parent.name == CHECKPOINTS:
        check_memory(task, fields.sizes)
        model = task.build(fields.sizes)
        load_checkpoint_weights(model, weights)
    else:
        name = WEIGHTS if weights is None else str(weights.relative_to(folder))
        model = _read_model(folder, recipe, task, fields, WeightsFile.open(find_inside(folder, name)))
    return Bundle(folder, recipe, fields, model.to(device).eval(), scores)


def _read_model(folder: Path, recipe: Recipe, task: BundleTask, fields: Fields, weights: WeightsFile) -> nn.Module:
    """Build the model of a run, and fill it with weights that are verified and fit the run."""
    _check_architecture(folder, weights, recipe)
    if weights.metadata.get("vocabulary", fields.fingerprint) != fields.fingerprint:
        raise ValueError(
            f"the vocabularies in {folder} are not those that {weights.path.name} was trained with; were the tokenizer "
            "or the labels changed after training? Restore them from a copy"
        )
    outline = check_memory(task, fields.sizes)
    if outline is not None:  # before memory is reserved: a recipe cannot ask for more than the weights have
        weights.check_shapes(outline)
    with ThreadPoolExecutor(1, thread_name_prefix="verify") as thread:
        verified = thread.submit(weights.verify)  # takes less time than to build the model, so nothing waits for it
        model = task.build(fields.sizes)
        verified.result()
    weights.check_shapes(model)
    weights.copy_into(model)
    return model


def _check_architecture(folder: Path, weights: WeightsFile, recipe: Recipe) -> None:
    """Raise a ValueError if a setting that changes what the weights compute is not the one they were trained with."""
    try:
        trained: Any = json.loads(weights.metadata.get("model", "{}"))
        current = recipe.architecture
        # Weights of earlier versions name settings of the model without their section.
        named = {name if "." in name else f"model.{name}": value for name, value in trained.items()}
        changed = {name: value for name, value in named.items() if name in current and current[name] != value}
    except (ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{weights.path} is damaged ({error}); restore it from a copy, or train again") from error
    if changed:
        values = ", ".join(f"{name} is {current[name]!r} and was {value!r}" for name, value in changed.items())
        raise ValueError(f"{folder / RECIPE} was changed after training: {values}; restore the old settings")


def check_memory(task: BundleTask, sizes: Mapping[str, int]) -> nn.Module | None:
    """Build a model without memory for its weights, to see how large it is before it is built.

    Returns:
        The model on the device `meta`; None for a task of another package that cannot build one there.

    Raises:
        ValueError: If its weights need more than all memory of this machine.
    """
    try:
        with torch.device("meta"):
            model = task.build(sizes)
    except (NotImplementedError, RuntimeError):
        return None
    size = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    present = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if size > present:
        raise ValueError(
            f"the weights of this model need {size / 1e9:,.0f} GB, and this machine has {present / 1e9:,.0f} GB of "
            "memory; use a smaller model.width, model.inner or number of layers"
        )
    return model


def save_scores(folder: Path, scores: dict[str, Any]) -> None:
    """Write `scores.json`."""
    write_atomically(folder / SCORES, (json.dumps(scores, indent=2, ensure_ascii=False) + "\n").encode())


def load_scores(folder: Path) -> dict[str, Any]:
    """Read `scores.json`; an empty table if there is none."""
    path = folder / SCORES
    try:
        scores = json.loads(read_inside(folder, SCORES, LONGEST_SCORES).decode())
    except FileNotFoundError:
        return {}
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(
            f"{path} is not valid JSON ({error}); fix it, or remove it: a model works without it"
        ) from error
    if not isinstance(scores, dict):
        raise ValueError(f"{path} holds {type(scores).__name__}, not a table of scores; fix it, or remove it")
    return scores


def find_device(name: str | torch.device = "auto") -> torch.device:
    """Return a device by its PyTorch name, if this machine has it; `auto` is a GPU if there is one."""
    if str(name) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        # Only an allocation shows whether the device exists.
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"there is no device '{name}' here ({reason}); use cpu, cuda, cuda:0 and so on, or auto"
        ) from error
    return device


def check_folder(folder: Path) -> None:
    """Raise a ValueError unless the folder is a trained run; the message says what it is instead."""
    if not folder.exists():
        runs = sorted(str(path.parent) for path in folder.parent.glob(f"*/{WEIGHTS}"))
        hint = f"trained runs in the same folder: {', '.join(runs)}" if runs else "train one with: regard train RECIPE"
        raise ValueError(f"there is no run at {folder}; {hint}")
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file; a run is a folder with {RECIPE}, {TOKENIZER}/ and {WEIGHTS} in it")
    missing = [name for name in (RECIPE, WEIGHTS) if not (folder / name).exists()]
    if missing == [WEIGHTS]:
        raise ValueError(f"{folder} is a run without {WEIGHTS}: it is not trained yet; {other_weights(folder)}")
    if missing:
        raise ValueError(f"{folder} is not a run: it has no {' and no '.join(missing)}")
