"""Write and read frames: a JSON message with arrays, laid out as a safetensors file in memory.

Eight bytes give the length of the header, the header is JSON, and the arrays follow. The message is in the header's
metadata. A frame saved to disk opens with `safetensors`.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

Arrays = Mapping[str, NDArray[Any]]
Message = tuple[dict[str, Any], Arrays]
"""A message and the arrays that belong to it."""

_DTYPES = {"uint8": "U8", "float16": "F16", "float32": "F32", "int32": "I32"}


def write_frame(message: Mapping[str, Any], arrays: Arrays | None = None) -> bytes:
    """Encode a message and its arrays."""
    # The widest types come first, so that every array starts at a multiple of its item size: a reader can create a
    # typed view of it without copying.
    ordered = sorted((arrays or {}).items(), key=lambda item: -item[1].dtype.itemsize)
    text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    header: dict[str, Any] = {"__metadata__": {"message": text}}
    buffers, offset = list[bytes](), 0
    for name, array in ordered:
        data = np.ascontiguousarray(array).tobytes()
        dtype = _DTYPES[array.dtype.name]
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + len(data)]}
        buffers.append(data)
        offset += len(data)
    head = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    return b"".join([len(head).to_bytes(8, "little"), head, *buffers])


def read_frame(frame: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Decode a frame into its message and its arrays."""
    size = int.from_bytes(frame[:8], "little")
    message: dict[str, Any] = json.loads(json.loads(frame[8 : 8 + size])["__metadata__"]["message"])
    return message, load(frame)


def quantize_weights(weights: NDArray[Any]) -> NDArray[np.uint8]:
    """Quantize attention weights to 8 bits for display, as round(255 · √w).

    Most weights are small. The square root keeps them apart, where a linear scale would round them to zero.
    """
    quantized: NDArray[np.uint8] = np.rint(255 * np.sqrt(np.clip(weights, 0, 1))).astype(np.uint8)
    return quantized
