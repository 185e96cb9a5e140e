"""One server for all tests that leave it as it was, and the model it serves in this process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serve.talk import Server, command, started

from regard.data.phrasebook import phrases
from regard.translator import Translator, load


@pytest.fixture(scope="session")
def server(memorised: Path) -> Iterator[Server]:
    """Two models, which are one and the same, and little patience."""
    limits = ("--patience", "1", "--max-characters", "4000", "--max-sentences", "40", "--max-beam", "8")
    with started(command(str(memorised), f"again={memorised}", *limits)) as running:
        yield running


@pytest.fixture(scope="session")
def translator(memorised: Path) -> Translator:
    return load(memorised, "cpu")


@pytest.fixture(scope="session")
def pairs() -> list[tuple[str, str]]:
    """What the model has learned."""
    return [(phrase.source, phrase.target) for phrase in phrases("de", "train", 20)]


@pytest.fixture(scope="session")
def lines(pairs: list[tuple[str, str]]) -> list[str]:
    return [source for source, _ in pairs]
