"""Files that are written whole or not at all."""

import os
import tempfile
from pathlib import Path


def write_atomically(file: Path, contents: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(contents)
            out.flush()
            os.fsync(out.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
