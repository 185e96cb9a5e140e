"""A tiny race."""

from collections.abc import Callable
from pathlib import Path

import pytest

from regard.race.contenders import Budget, Contender, with_joined_phrases
from regard.race.runner import RaceEvent, run_contender
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
def make_contenders() -> Callable[..., list[Contender]]:
    """Return a function that makes tiny contenders with `key=value` overrides."""
    return lambda *overrides: [
        Contender(name, parse(SHARED, [f"name={name}", model, *overrides])) for name, model in MODELS.items()
    ]


@pytest.fixture(autouse=True)
def one_cache(shared_cache: None) -> None:
    """Share the cache between all tests of this folder."""


@pytest.fixture(scope="session")
def run_race(
    cache: str, make_contenders: Callable[..., list[Contender]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[Contender], dict[str, list[RaceEvent]]]:
    """Run a race in this process, and return its folder, its contenders and the events of each."""
    folder = tmp_path_factory.mktemp("race")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", cache)
        budget = Budget("tokens", 900)
        joined = with_joined_phrases(make_contenders(), 2, folder / "text")
        contenders = [Contender(contender.name, budget.limit(contender.recipe)) for contender in joined]
        events = {
            contender.name: list(run_contender(contender, folder / contender.name, "cpu")) for contender in contenders
        }
    return folder, contenders, events
