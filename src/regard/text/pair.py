"""The two tokenizers of a model, source and target, and the folder they are kept in."""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from regard.files import write_whole
from regard.names import TOKENIZER
from regard.text.learn import LONGEST, SAMPLE, reservoir
from regard.text.settings import Settings
from regard.text.tokenizer import Tokenizer

_VERSION = 1
_INDEX = "tokenizer.json"


@dataclass(frozen=True)
class Tokenizers:
    """A tokenizer for each side; the very same one when the vocabulary is joint."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        """Whether both sides share one vocabulary."""
        return self.source is self.target

    @property
    def fingerprint(self) -> str:
        """Equal fingerprints, equal ids on both sides."""
        return f"{self.source.fingerprint}-{self.target.fingerprint}"

    @classmethod
    def learn(
        cls,
        pairs: Iterable[tuple[str, str]],
        *,
        kind: str = "bpe",
        size: int = 8000,
        joint: bool = True,
        normalise: str = "nfkc",
        lowercase: bool = False,
        bytes: bool = True,  # noqa: A002
        symbols: tuple[str, ...] = (),
        seed: int = 0,
    ) -> "Tokenizers":
        """Learn from pairs of lines, read once as a stream; `size` is that of each vocabulary."""
        settings = Settings(kind, normalise, lowercase, bytes, symbols)
        kept = reservoir(((source[:LONGEST], target[:LONGEST]) for source, target in pairs), SAMPLE // 2, seed)
        if joint:
            both = Tokenizer.learn(chain.from_iterable(kept), size, settings, seed)
            return cls(both, both)
        source, target = (Tokenizer.learn((pair[side] for pair in kept), size, settings, seed) for side in range(2))
        return cls(source, target)

    def extended(self, symbols: Iterable[str]) -> "Tokenizers":
        """The same with these symbols on the source's side too, which both sides share where they are joint."""
        source = self.source.extended(symbols)
        return Tokenizers(source, source if self.joint else self.target)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder: `joint.model`, or `source.model` and `target.model`, and `tokenizer.json` that names them."""
        sides = {"joint": self.source} if self.joint else {"source": self.source, "target": self.target}
        for name, tokenizer in sides.items():
            tokenizer.save(Path(folder) / f"{name}.model")
        index = {"version": _VERSION, **{name: _entry(name, tokenizer) for name, tokenizer in sides.items()}}
        text = json.dumps(index, ensure_ascii=False, indent=2) + "\n"
        write_whole(Path(folder) / _INDEX, text.encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tokenizers":
        """Read a folder written by `save`, a run directory that holds one as `tokenizer/`, or one `.model` file."""
        place = Path(path)
        if place.is_file():
            both = Tokenizer.load(place)
            return cls(both, both)
        for folder in (place, place / TOKENIZER):
            if (folder / _INDEX).is_file():
                return cls._from_folder(folder)
        found = "it is not there" if not place.exists() else f"it holds no {_INDEX}, and no {TOKENIZER}/{_INDEX}"
        raise ValueError(f"no tokenizer at {place}: {found}; name a run, a tokenizer folder or a .model file")

    @classmethod
    def _from_folder(cls, folder: Path) -> "Tokenizers":
        index = _read_index(folder / _INDEX)
        if "joint" in index:
            both = _read_side(folder, index["joint"])
            return cls(both, both)
        return cls(_read_side(folder, index["source"]), _read_side(folder, index["target"]))


def _entry(name: str, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "model": f"{name}.model",
        "size": len(tokenizer),
        "fingerprint": tokenizer.fingerprint,
        **asdict(tokenizer.settings),
    }


def _read_index(file: Path) -> dict[str, Any]:
    try:
        index = json.loads(file.read_text(encoding="utf-8"))
        sides = {"joint"} if "joint" in index else {"source", "target"}
        whole = all({"model", "fingerprint"} <= set(index[side]) for side in sides)
    except (ValueError, KeyError, TypeError) as fault:
        raise ValueError(f"{file} is damaged ({fault}); restore it from a copy, or learn it again") from fault
    if index.get("version") != _VERSION or not whole:
        raise ValueError(
            f"{file} has version {index.get('version')!r}, and this regard reads version {_VERSION}: "
            "use the regard that wrote it, or learn it again"
        )
    return dict(index)


def _read_side(folder: Path, entry: dict[str, Any]) -> Tokenizer:
    file = folder / entry["model"]
    tokenizer = Tokenizer.load(file)
    if tokenizer.fingerprint != entry["fingerprint"]:
        raise ValueError(
            f"{file} is not the model {folder / _INDEX} was written with (damaged or replaced): "
            "restore both from a copy, or learn them again"
        )
    return tokenizer
