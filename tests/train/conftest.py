"""A run small enough to be trained many times."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from regard.recipe import Recipe, parse
from regard.train.events import Event
from regard.train.loop import train

TINY = """
name = "tiny"
[data]
train = [{ to = "de", pairs = 400 }]
valid = { to = "de", pairs = 12, split = "valid" }
[text]
size = 320
[model]
width = 16
inner = 32
heads = 2
encoder_layers = 1
decoder_layers = 1
dropout = 0.2
[train]
steps = 6
tokens = 512
every = 2
warmup = 2
rate = 1e-2
precision = "float32"
translate = 0
[decode]
beam = 1
longest = 0.5
"""


@pytest.fixture
def tiny() -> Callable[..., Recipe]:
    """The recipe of a tiny run, with `key=value` overrides."""
    return lambda *overrides: parse(TINY, overrides, name="tiny")


@pytest.fixture
def trained() -> Callable[[Recipe, Path], list[Event]]:
    """Return a function that trains a recipe and returns the events."""
    return lambda recipe, run: list(train(recipe, run, "cpu"))


@pytest.fixture(autouse=True)
def one_cache(shared_cache: None) -> None:
    """All tests here share a cache of prepared data."""


@pytest.fixture(scope="session")
def once(cache: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run, trained once; tests must not change it."""
    return train_tiny(cache, tmp_path_factory.mktemp("once"), "train.steps=6")


@pytest.fixture(scope="session")
def begun(cache: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run after four of six steps, trained once; tests must not change it."""
    return train_tiny(cache, tmp_path_factory.mktemp("begun"), "train.steps=4")


def train_tiny(cache: str, folder: Path, *overrides: str) -> Path:
    """Train a tiny run in a folder, and return its folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", cache)
        list(train(parse(TINY, overrides, name="tiny"), folder / "run", "cpu"))
    return folder / "run"


def weights(run: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a run's last checkpoint."""
    from safetensors.torch import load_file

    last = max((run / "checkpoints").glob("step-*"))
    return {name: tensor for file in last.glob("*.safetensors") for name, tensor in load_file(file).items()}


def kinds(events: Sequence[Event]) -> list[str]:
    """Return the names of the events."""
    return [type(event).__name__ for event in events]
