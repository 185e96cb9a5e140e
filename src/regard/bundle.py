"""A trained model on disk: a folder with its recipe, vocabularies, weights and scores.

    recipe.toml         every setting of the run, enough to repeat it
    tokenizer/          the tokenizers of text fields
    labels.json         the classes of label fields, if there are any
    model.safetensors   the weights, each tensor once; no pickle, so opening a model executes no code
    scores.json         metrics and facts of the training, as plain JSON; may be missing

The folder of a run is a bundle as soon as it has weights.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from regard.data.fields import Fields, load_fields
from regard.files import write_atomically
from regard.recipe import FieldKind, Recipe, dump
from regard.run_files import RECIPE, SCORES, TOKENIZER, WEIGHTS
from regard.run_path import load_checkpoint_weights, other_weights
from regard.text import Tokenizers


class BundleTask(Protocol):
    """What a task must provide to open a bundle."""

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


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the weights of a model atomically; a tensor that two modules share is written once."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in _distinct(model).items()}
    # safetensors' own save_file makes files that only their owner can read.
    write_atomically(path, save(tensors, metadata={"format": "pt"}))


def load_weights(model: nn.Module, path: Path) -> None:
    """Read weights into a model of the same shapes, which keeps its precision and device.

    Raises:
        ValueError: If tensors are missing, unexpected or of another shape. The message names all of them, and the model
            is unchanged.
    """
    tensors = _distinct(model)
    try:
        with safe_open(path, "pt") as file:
            names = file.keys()
            _check_shapes(path, tensors, {name: tuple(file.get_slice(name).get_shape()) for name in names})
            with torch.no_grad():
                for name, tensor in tensors.items():
                    tensor.copy_(file.get_tensor(name))
    except SafetensorError as error:
        raise ValueError(
            f"{path} is damaged or not a safetensors file ({error}); restore it from a copy, or train again"
        ) from error


def save_bundle(folder: Path, recipe: Recipe, fields: Fields, model: nn.Module, scores: dict[str, Any]) -> None:
    """Write a bundle. The weights come last: a folder with weights is complete, even if writing was interrupted."""
    fields.save(folder)
    write_atomically(folder / RECIPE, dump(recipe).encode())
    save_scores(folder, scores)
    save_weights(model, folder / WEIGHTS)


def read_bundle(
    folder: Path, recipe: Recipe, task: BundleTask, device: torch.device, weights: Path | None = None
) -> Bundle:
    """Read vocabularies, model and scores of a run; `regard.tasks.load_bundle` finds recipe and task.

    Args:
        folder: The folder of the run.
        recipe: Its recipe.
        task: Its task.
        device: Where the model goes.
        weights: A file of weights or the folder of a checkpoint. Default: the trained model of the run.
    """
    fields = load_fields(folder, task.kinds)
    model = task.build(fields.sizes)
    if weights is not None and weights.is_dir():
        load_checkpoint_weights(model, weights)
    else:
        load_weights(model, weights or folder / WEIGHTS)
    return Bundle(folder, recipe, fields, model.to(device).eval(), load_scores(folder))


def save_scores(folder: Path, scores: dict[str, Any]) -> None:
    """Write `scores.json`."""
    write_atomically(folder / SCORES, (json.dumps(scores, indent=2, ensure_ascii=False) + "\n").encode())


def load_scores(folder: Path) -> dict[str, Any]:
    """Read `scores.json`; an empty table if there is none."""
    path = folder / SCORES
    try:
        scores = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
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


def _distinct(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a model by name; a shared tensor under its first name only."""
    seen: dict[int, str] = {}
    tensors = model.state_dict(keep_vars=True)
    return {name: tensor for name, tensor in tensors.items() if seen.setdefault(id(tensor), name) == name}


def _check_shapes(path: Path, tensors: dict[str, Tensor], stored: dict[str, tuple[int, ...]]) -> None:
    """Raise a ValueError that names every tensor of the file that does not match the model."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    faults = [f"missing: {name} {shapes[name]}" for name in sorted(shapes.keys() - stored.keys())]
    faults += [f"unexpected: {name} {stored[name]}" for name in sorted(stored.keys() - shapes.keys())]
    faults += [
        f"of another shape: {name} is {stored[name]} in the file and {shapes[name]} in the model"
        for name in sorted(shapes.keys() & stored.keys())
        if stored[name] != shapes[name]
    ]
    if faults:
        raise ValueError(
            f"{path} does not fit the model of the recipe; were the recipe or the tokenizer changed after training?\n  "
            + "\n  ".join(faults)
        )


def check_folder(folder: Path) -> None:
    """Raise a ValueError unless the folder is a trained run; the message says what it is instead."""
    if not folder.exists():
        runs = sorted(str(path.parent) for path in folder.parent.glob(f"*/{WEIGHTS}"))
        hint = f"trained runs in the same folder: {', '.join(runs)}" if runs else "train one with: regard train RECIPE"
        raise ValueError(f"there is no run at {folder}; {hint}")
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file; a run is a folder with {RECIPE}, {TOKENIZER}/ and {WEIGHTS} in it")
    missing = [name for name in (RECIPE, WEIGHTS) if not (folder / name).is_file()]
    if missing == [WEIGHTS]:
        raise ValueError(f"{folder} is a run without {WEIGHTS}: it is not trained yet; {other_weights(folder)}")
    if missing:
        raise ValueError(f"{folder} is not a run: it has no {' and no '.join(missing)}")
