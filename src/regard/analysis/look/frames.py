"""A frame: one message with the arrays that belong to it, laid out as a safetensors file in memory.

Eight bytes say how long the header is, the header is JSON, the rest is the arrays. A frame written to disk opens with
`safetensors`; the message lies in its metadata.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

Arrays = Mapping[str, NDArray[Any]]

_KINDS = {"uint8": "U8", "float16": "F16", "float32": "F32", "int32": "I32"}


def write_frame(message: Mapping[str, Any], arrays: Arrays | None = None) -> bytes:
    """The bytes of a message and its arrays."""
    # The widest numbers come first, so that each array begins where a reader may lay a view of its kind.
    ordered = sorted((arrays or {}).items(), key=lambda item: -item[1].dtype.itemsize)
    said = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    header: dict[str, Any] = {"__metadata__": {"message": said}}
    parts, at = list[bytes](), 0
    for name, array in ordered:
        data = np.ascontiguousarray(array).tobytes()
        kind = _KINDS[array.dtype.name]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    head = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    return b"".join([len(head).to_bytes(8, "little"), head, *parts])


def read_frame(frame: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The message and the arrays of a frame."""
    size = int.from_bytes(frame[:8], "little")
    message: dict[str, Any] = json.loads(json.loads(frame[8 : 8 + size])["__metadata__"]["message"])
    return message, load(frame)


def shade(weights: NDArray[Any]) -> NDArray[np.uint8]:
    """Weights in eight bits for a picture: 255 · √w, because most weights are small and plain steps would hide them."""
    shaded: NDArray[np.uint8] = np.rint(255 * np.sqrt(np.clip(weights, 0, 1))).astype(np.uint8)
    return shaded
