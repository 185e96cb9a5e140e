"""The files that `web/` was built into."""

from pathlib import Path

import regard

FOLDER = Path(regard.__file__).parent / "web"


def built(name: str, folder: Path = FOLDER) -> str:
    """The text of one of them; an install without them says how to get them."""
    path = folder / name
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is not there: this regard was installed without its explorer. Install a release, or in a clone "
            "run `make setup`, which builds it"
        )
    return path.read_text(encoding="utf-8")
