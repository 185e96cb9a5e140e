"""A trained model on disk: a folder with its recipe, its tokenizer, its weights and its scores.

    recipe.toml         every setting of the run, enough to repeat it
    tokenizer/          source and target vocabularies
    model.safetensors   the weights, each tensor once; no pickle, so opening a model runs nobody's code
    scores.json         what is known of the model, as plain JSON; may be missing

A run's folder is a bundle as soon as it has weights.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from regard.files import write_whole
from regard.models.build import build
from regard.models.seq2seq import Seq2Seq
from regard.names import RECIPE, SCORES, TOKENIZER, WEIGHTS
from regard.recipe import Recipe, dump, load
from regard.text import Tokenizers


@dataclass(frozen=True, eq=False)
class Bundle:
    """A model and all it needs to be used, repeated and cited."""

    folder: Path
    recipe: Recipe
    tokenizers: Tokenizers
    model: Seq2Seq
    scores: dict[str, Any]


def save_weights(model: nn.Module, path: Path) -> None:
    """Write a model's weights, whole or not at all; a tensor that two places share is written once."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in _distinct(model).items()}
    # The library's own writer of files would keep them from everybody but their owner.
    write_whole(path, save(tensors, metadata={"format": "pt"}))


def load_weights(model: nn.Module, path: Path) -> None:
    """Read weights into a model of the same shape, which keeps its own precision and device.

    What is missing, not expected or of another shape is told all at once, and then nothing is changed.
    """
    wanted = _distinct(model)
    try:
        with safe_open(path, "pt") as file:
            names = file.keys()
            _check(path, wanted, {name: tuple(file.get_slice(name).get_shape()) for name in names})
            with torch.no_grad():
                for name, tensor in wanted.items():
                    tensor.copy_(file.get_tensor(name))
    except SafetensorError as error:
        raise ValueError(
            f"{path} is damaged or no safetensors file ({error}); restore it from a copy, or train again"
        ) from error


def save_bundle(folder: Path, recipe: Recipe, tokenizers: Tokenizers, model: nn.Module, scores: dict[str, Any]) -> None:
    """Write everything a model needs into a folder; the weights come last, so that they never stand alone."""
    tokenizers.save(folder / TOKENIZER)
    write_whole(folder / RECIPE, dump(recipe).encode())
    save_scores(folder, scores)
    save_weights(model, folder / WEIGHTS)


def load_bundle(folder: str | Path, device: str | torch.device = "cpu") -> Bundle:
    """Open a trained model, ready to be used: in evaluation mode, on the device."""
    place = Path(folder)
    where = find_device(device)
    _check_folder(place)
    recipe = load(place / RECIPE)
    tokenizers = Tokenizers.load(place / TOKENIZER)
    model = build(recipe.model, len(tokenizers.source), len(tokenizers.target))
    load_weights(model, place / WEIGHTS)
    return Bundle(place, recipe, tokenizers, model.to(where).eval(), load_scores(place))


def save_scores(folder: Path, scores: dict[str, Any]) -> None:
    """Write what is known of a model."""
    write_whole(folder / SCORES, (json.dumps(scores, indent=2, ensure_ascii=False) + "\n").encode())


def load_scores(folder: Path) -> dict[str, Any]:
    """What is known of a model; nothing where nobody wrote it down."""
    path = folder / SCORES
    try:
        scores = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON ({error}); mend it, or remove it: a model works without") from error
    if not isinstance(scores, dict):
        raise ValueError(f"{path} holds {type(scores).__name__}, not a table of scores; mend it, or remove it")
    return scores


def find_device(name: str | torch.device = "auto") -> torch.device:
    """The device of a name that PyTorch knows and this machine has; `auto` is a GPU where there is one."""
    if str(name) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        # Only an allocation tells whether the device is there.
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"there is no device '{name}' here ({reason}); say cpu, cuda, cuda:0 and so on, or auto"
        ) from error
    return device


def _distinct(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a model by name; of those that are one and the same, the first name only."""
    seen: dict[int, str] = {}
    tensors = model.state_dict(keep_vars=True)
    return {name: tensor for name, tensor in tensors.items() if seen.setdefault(id(tensor), name) == name}


def _check(path: Path, wanted: dict[str, Tensor], found: dict[str, tuple[int, ...]]) -> None:
    """Refuse a file whose tensors are not those of the model, naming every one."""
    shapes = {name: tuple(tensor.shape) for name, tensor in wanted.items()}
    faults = [f"missing: {name} {shapes[name]}" for name in sorted(shapes.keys() - found.keys())]
    faults += [f"unexpected: {name} {found[name]}" for name in sorted(found.keys() - shapes.keys())]
    faults += [
        f"of another shape: {name} is {found[name]} in the file and {shapes[name]} in the model"
        for name in sorted(shapes.keys() & found.keys())
        if found[name] != shapes[name]
    ]
    if faults:
        raise ValueError(
            f"{path} does not hold this model's weights; were recipe or tokenizer changed after training?\n  "
            + "\n  ".join(faults)
        )


def _check_folder(folder: Path) -> None:
    """Refuse what is no trained run, saying what it is instead."""
    if not folder.exists():
        beside = sorted(str(each.parent) for each in folder.parent.glob(f"*/{WEIGHTS}"))
        hint = f"trained runs beside it: {', '.join(beside)}" if beside else "train one with: regard train RECIPE"
        raise ValueError(f"there is no run at {folder}; {hint}")
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file; a run is a folder with {RECIPE}, {TOKENIZER}/ and {WEIGHTS} in it")
    missing = [name for name in (RECIPE, WEIGHTS) if not (folder / name).is_file()]
    if missing == [WEIGHTS]:
        raise ValueError(f"{folder} is a run without {WEIGHTS}: it is not trained yet; use: regard train")
    if missing:
        raise ValueError(f"{folder} is not a run: it has no {' and no '.join(missing)}")
