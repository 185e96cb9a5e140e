"""A race small enough to be run while tests wait."""

from collections.abc import Callable
from pathlib import Path

import pytest

from regard.race.budget import Budget
from regard.race.contest import Happening, contend
from regard.race.course import lengthened
from regard.race.entrants import Contender
from regard.recipe import parse

SHARED = """
[data]
train = [{ to = "de", pairs = 60 }]
valid = { to = "de", pairs = 8, split = "valid" }
test = { to = "de", pairs = 16, split = "test" }
[text]
size = 320
[train]
tokens = 256
every = 100
warmup = 2
precision = "float32"
translate = 0
[decode]
beam = 1
longest = 0.5
"""
MODELS = {
    "vector": 'model={kind="sutskever", width=16, layers=1}',
    "soft": 'model={kind="bahdanau", width=16}',
    "attention": "model={width=16, inner=32, heads=2, encoder_layers=1, decoder_layers=1}",
}


@pytest.fixture(scope="session")
def entrants() -> Callable[..., list[Contender]]:
    """Tiny contenders, with `key=value` overrides."""
    return lambda *told: [
        Contender(name, parse(SHARED, [f"name={name}", model, *told])) for name, model in MODELS.items()
    ]


@pytest.fixture(autouse=True)
def one_cache(shared_cache: None) -> None:
    """All tests here share what is made from their text."""


@pytest.fixture(scope="session")
def run_race(
    cache: str, entrants: Callable[..., list[Contender]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[Contender], dict[str, list[Happening]]]:
    """A race that was run to its end in this process: its folder, its contenders, and what happened to each."""
    folder = tmp_path_factory.mktemp("race")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", cache)
        budget = Budget("tokens", 900)
        joined = lengthened(entrants(), 2, folder / "text")
        ready = [Contender(each.name, budget.spent_by(each.recipe)) for each in joined]
        told = {each.name: list(contend(each, folder / each.name, "cpu")) for each in ready}
    return folder, ready, told
