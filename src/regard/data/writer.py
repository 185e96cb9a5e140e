"""Rows to the files of a store, appended as they come."""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal, Self

import numpy as np
from numpy.typing import NDArray

from regard.data.encode import Rows
from regard.data.store import SideManifest
from regard.files import settle


class SideWriter:
    """The files of one side, open for writing."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype[Any], keep_text: bool) -> None:
        """Create the files `<name>.ids` and so on in a folder."""
        self._dtype: Literal["uint16", "int32"] = "uint16" if dtype.itemsize == 2 else "int32"
        self._longest = 0
        self._open = ExitStack()
        endings = ["ids", "offsets", "lengths"] + ["text", "text-offsets"] * keep_text
        self._paths = {ending: folder / f"{name}.{ending}" for ending in endings}
        self._files: dict[str, BinaryIO] = {
            ending: self._open.enter_context(path.open("wb")) for ending, path in self._paths.items()
        }
        self._ids = _Offsets(self._files["offsets"])
        self._text = _Offsets(self._files["text-offsets"]) if keep_text else None

    def __enter__(self) -> Self:
        """Files are closed when the block is left."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files."""
        self._open.__exit__(kind, error, trace)

    def append(self, rows: Rows) -> None:
        """Write more sequences."""
        self._files["ids"].write(rows.ids.data)
        self._files["lengths"].write(rows.lengths.astype("<i4").data)
        self._ids.append(rows.lengths)
        self._longest = max(self._longest, int(rows.lengths.max(initial=0)))
        if self._text is not None and rows.text is not None and rows.text_lengths is not None:
            self._files["text"].write(rows.text)
            self._text.append(rows.text_lengths)

    def finish(self) -> SideManifest:
        """Close the files, see them onto the disk, and tell what is in them."""
        self._open.close()
        for path in self._paths.values():
            settle(path)
        text = None if self._text is None else self._text.total
        return SideManifest(dtype=self._dtype, tokens=self._ids.total, longest=self._longest, text=text)


class _Offsets:
    """A file of offsets that grows by lengths."""

    def __init__(self, file: BinaryIO) -> None:
        self.total = 0
        self._file = file
        file.write(np.zeros(1, "<i8").data)

    def append(self, lengths: NDArray[np.int64]) -> None:
        """Write where each of these sequences ends."""
        self._file.write((self.total + np.cumsum(lengths)).astype("<i8").data)
        self.total += int(lengths.sum())
