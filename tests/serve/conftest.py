"""One server for all tests that do not change it, and the same model in this process."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serve.client import Server, running_server, serve_command
from tests.serve.untrained import save_untrained_runs

import regard
from regard.data.phrasebook import phrases
from regard.predict import Chatbot, Translator
from regard.tasks import load_translator


@pytest.fixture(scope="session")
def server(memorised: Path) -> Iterator[Server]:
    """A server with low limits, and one model under two names.

    It is a new interpreter, because torch reads the limits of its caches, which a test of memory needs, when it is
    imported.
    """
    limits = ("--read-timeout", "1", "--max-characters", "4000", "--max-sentences", "40", "--max-beam", "8")
    with running_server(serve_command(str(memorised), f"again={memorised}", *limits, python=sys.executable)) as running:
        yield running


@pytest.fixture(scope="session")
def translator(memorised: Path) -> Translator:
    return load_translator(memorised, "cpu")


@pytest.fixture(scope="session")
def pairs() -> list[tuple[str, str]]:
    """The sentence pairs that the model has memorised."""
    return [(phrase.source, phrase.target) for phrase in phrases("de", "train", 20)]


@pytest.fixture(scope="session")
def lines(pairs: list[tuple[str, str]]) -> list[str]:
    return [source for source, _ in pairs]


@pytest.fixture(scope="session")
def untrained_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A classifier, a tagger, a masked language model and a chatbot."""
    return save_untrained_runs(tmp_path_factory.mktemp("untrained"))


@pytest.fixture(scope="session")
def server_of_labels(untrained_runs: dict[str, Path], memorised: Path) -> Iterator[Server]:
    """A server with low limits, and a model for each route."""
    limits = ("--max-characters", "400", "--max-sentences", "10")
    with running_server(serve_command(*map(str, (*untrained_runs.values(), memorised)), *limits)) as running:
        yield running


@pytest.fixture(scope="session")
def chatbot(untrained_runs: dict[str, Path]) -> Chatbot:
    loaded = regard.load(untrained_runs["chats"], "cpu")
    assert isinstance(loaded, Chatbot)
    return loaded
