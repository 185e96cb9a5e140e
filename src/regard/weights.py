"""Weights on disk: safetensors files that carry a checksum, which is verified before a weight is used.

Each tensor of a model is stored once, without pickle, so reading weights executes no code. The header of a file has,
under `__metadata__`, what its writer stated about the weights and a `checksum` of everything else in the file. Files
without a checksum, of other programs and of version 0.1, are read as they are.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from regard.files import atomic_write, checksum, checksum_of

_CHECKSUM, _METADATA = "checksum", "__metadata__"
_LONGEST_HEADER = 100_000_000  # bytes; the limit of the safetensors library


@dataclass(frozen=True)
class WeightsFile:
    """A file of weights, of which only the header has been read."""

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    """Shape of each tensor."""
    metadata: Mapping[str, str]
    """What the writer stated about the weights."""
    _header: Mapping[str, Any]
    _data_start: int

    @classmethod
    def open(cls, path: Path) -> "WeightsFile":
        """Read the header of a file.

        Raises:
            ValueError: If it is not a safetensors file, or damaged.
        """
        try:
            with path.open("rb") as file:
                size = int.from_bytes(file.read(8), "little")
                if not 2 <= size <= min(_LONGEST_HEADER, os.fstat(file.fileno()).st_size - 8):
                    raise ValueError(f"its header cannot have {size:,} bytes")
                header = json.loads(file.read(size))
            metadata = {str(name): str(value) for name, value in header.get(_METADATA, {}).items()}
            shapes = {name: tuple(map(int, entry["shape"])) for name, entry in header.items() if name != _METADATA}
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
            raise _damaged(path, error) from error
        return cls(path, shapes, metadata, header, 8 + size)

    def verify(self) -> None:
        """Raise a ValueError unless the file has the contents that it was written with, and finite weights."""
        written = self.metadata.get(_CHECKSUM)
        if written is not None and written != _seal(self._header, checksum(self.path, self._data_start)):
            raise _damaged(self.path, "its contents do not match its checksum")
        for name, tensor in self._tensors():
            if tensor.is_floating_point() and tensor.numel() and not _is_finite(tensor):
                raise _damaged(self.path, f"{name} has values that are not finite")

    def check_shapes(self, model: nn.Module) -> None:
        """Raise a ValueError that names every tensor of the file that does not match the model."""
        shapes = {name: tuple(tensor.shape) for name, tensor in _distinct(model).items()}
        stored = self.shapes
        faults = [f"missing: {name} {shapes[name]}" for name in sorted(shapes.keys() - stored.keys())]
        faults += [f"unexpected: {name} {stored[name]}" for name in sorted(stored.keys() - shapes.keys())]
        faults += [
            f"of another shape: {name} is {stored[name]} in the file and {shapes[name]} in the model"
            for name in sorted(shapes.keys() & stored.keys())
            if stored[name] != shapes[name]
        ]
        if faults:
            listed = faults[:20] + [f"and {len(faults) - 20} others"] * (len(faults) > 20)
            raise ValueError(
                f"{self.path} does not fit the model of the recipe; were the recipe or the tokenizer changed after "
                "training?\n  " + "\n  ".join(listed)
            )

    def copy_into(self, model: nn.Module) -> None:
        """Copy the weights, once they are verified, into a model of the same shapes; it keeps its precision."""
        tensors = _distinct(model)
        with torch.no_grad():
            for name, stored in self._tensors():
                tensors[name].copy_(stored)

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors by name, one at a time."""
        try:
            with safe_open(self.path, "pt") as file:
                for name in self.shapes:
                    yield name, file.get_tensor(name)
        except SafetensorError as error:
            raise _damaged(self.path, error) from error


def save_weights(model: nn.Module, path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write the weights of a model atomically; a tensor that two modules share is written once.

    Args:
        model: The model.
        path: The file.
        metadata: Statements about the weights, for `WeightsFile.metadata`.
    """
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in _distinct(model).items()}
    # safetensors' own save_file makes files that only their owner can read.
    encoded = memoryview(save(tensors))
    start = 8 + int.from_bytes(encoded[:8], "little")
    header, data = json.loads(bytes(encoded[8:start])), encoded[start:]
    header[_METADATA] = {"format": "pt", **(metadata or {})}
    header[_METADATA][_CHECKSUM] = _seal(header, checksum_of(data))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the tensors are aligned, as safetensors asks for
    with atomic_write(path) as scratch, scratch.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.write(data)


def load_weights(model: nn.Module, path: Path) -> None:
    """Read weights into a model of the same shapes, which keeps its precision and device.

    Raises:
        ValueError: If the file is damaged, or if tensors are missing, unexpected or of another shape: then the message
            names all of them, and the model is unchanged.
    """
    stored = WeightsFile.open(path)
    stored.check_shapes(model)
    stored.verify()
    stored.copy_into(model)


def _damaged(path: Path, reason: object) -> ValueError:
    return ValueError(f"{path} is damaged or not a safetensors file ({reason}); restore it from a copy, or train again")


def _seal(header: Mapping[str, Any], data: str) -> str:
    """Return the checksum of a file from its header, without the checksum in it, and the checksum of its data."""
    metadata = {name: value for name, value in header[_METADATA].items() if name != _CHECKSUM}
    text = json.dumps({**header, _METADATA: metadata}, sort_keys=True)
    return hashlib.sha256(text.encode() + data.encode()).hexdigest()


def _is_finite(tensor: Tensor) -> bool:
    """Return whether no value is infinite or NaN, in one pass; a NaN is the minimum and the maximum of its tensor."""
    if tensor.dtype.itemsize < 2:  # 8-bit floats have no comparison
        tensor = tensor.float()
    return all(bool(bound.isfinite()) for bound in tensor.aminmax())


def _distinct(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a model by name; a shared tensor under its first name only."""
    first_names: dict[int, str] = {}
    tensors = model.state_dict(keep_vars=True)
    return {name: tensor for name, tensor in tensors.items() if first_names.setdefault(id(tensor), name) == name}
