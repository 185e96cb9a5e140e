"""Find the run and the weights that a path names.

runs/x                               the trained model of a run
runs/x/weights/best.safetensors      other weights of it, such as the best ones so far
runs/x/checkpoints/step-00000400     the weights of a checkpoint
"""

import json
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from regard.files import size_and_checksum
from regard.run_files import CHECKPOINTS, RECIPE, WEIGHTS

_STEP = re.compile(r"step-(\d+)")


@dataclass(frozen=True)
class RunPath:
    """A run, and which of its weights to use."""

    folder: Path
    """The folder of the run."""
    weights: Path
    """A file of weights, or the folder of a checkpoint."""


def find_run(path: str | Path) -> RunPath:
    """Return the run and the weights that a path names: a run, a file of weights in it, or one of its checkpoints.

    Raises:
        ValueError: If there is no such checkpoint, or the weights do not belong to a run.
    """
    path = Path(path)
    step = _STEP.fullmatch(path.name)
    if step and path.parent.name == CHECKPOINTS:
        folder = path if path.is_dir() else path.with_name(f"step-{int(step[1]):08d}")
        if not folder.is_dir():
            names = ", ".join(sorted(entry.name for entry in path.parent.glob("step-*"))) or "none"
            raise ValueError(f"there is no checkpoint {path}; the checkpoints of this run are: {names}")
        return RunPath(_with_recipe(path, path.parents[1]), folder)
    if path.suffix == ".safetensors" and path.is_file():
        inside = path.parents[1] if len(path.parents) > 1 and not (path.parent / RECIPE).is_file() else path.parent
        return RunPath(_with_recipe(path, inside), path)
    return RunPath(path, path / WEIGHTS)


def load_checkpoint_weights(model: nn.Module, folder: Path) -> None:
    """Read the weights of a checkpoint into a model: the moving average, if training has one.

    Raises:
        ValueError: If the checkpoint is damaged, or does not fit the model.
    """
    _check_files(folder)
    reader = HuggingFaceStorageReader(str(folder))
    entries = reader.read_metadata().state_dict_metadata.items()
    stored = {name: tuple(entry.size) for name, entry in entries if isinstance(entry, TensorStorageMetadata)}
    prefix = "average." if any(name.startswith("average.") for name in stored) else "weights."
    tensors: dict[str, Tensor] = {f"{prefix}{name}": weight.detach() for name, weight in model.named_parameters()}
    mismatched = [name for name, tensor in tensors.items() if stored.get(name) != tuple(tensor.shape)]
    if mismatched:
        raise ValueError(
            f"{folder} does not fit the model of the recipe; it has no {', '.join(mismatched[:3])} of the same shape"
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        state_dict_loader.load(tensors, storage_reader=reader, no_dist=True)


def _check_files(folder: Path) -> None:
    """Raise a ValueError unless the files of a checkpoint have the sizes and checksums in its metadata."""
    try:
        files = json.loads((folder / "notes.json").read_text(encoding="utf-8"))["files"]
        changed = [name for name, expected in files.items() if size_and_checksum(folder / name) != expected]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder} is not a complete checkpoint ({error}); use another one") from error
    if changed:
        raise ValueError(f"{folder} is damaged: {', '.join(changed)} changed since it was written; use another one")


def _with_recipe(path: Path, folder: Path) -> Path:
    if not (folder / RECIPE).is_file():
        raise ValueError(
            f"{path} does not belong to a run: {folder} has no {RECIPE}; give a path inside a run's folder"
        )
    return folder


def other_weights(folder: Path) -> str:
    """Return a hint at the weights that an interrupted run has, or how to train it."""
    candidates = [
        *sorted((folder / "weights").glob("best.safetensors")),
        *sorted((folder / CHECKPOINTS).glob("step-*"))[-1:],
    ]
    if not candidates:
        return "use: regard train"
    return f"resume it with regard train, or give the path of other weights: {' or '.join(map(str, candidates))}"
