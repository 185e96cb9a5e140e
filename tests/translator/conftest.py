"""A small model in double precision, so that equal means equal, and sentences it knows."""

from pathlib import Path

import pytest

from regard.bundle import Bundle, load_bundle
from regard.data.phrasebook import phrases
from regard.translator import Translator


@pytest.fixture(scope="session")
def bundle(memorised: Path) -> Bundle:
    """The model and its vocabularies."""
    found = load_bundle(memorised)
    found.model.double()
    return found


@pytest.fixture(scope="session")
def translator(bundle: Bundle) -> Translator:
    """It searches by the model's own steps."""
    return Translator(bundle.model, bundle.tokenizers, bundle.recipe.decode, longest=bundle.recipe.data.longest)


@pytest.fixture(scope="session")
def pairs() -> list[tuple[str, str]]:
    """What it has learned."""
    return [(phrase.source, phrase.target) for phrase in phrases("de", "train", 20)]


@pytest.fixture(scope="session")
def lines(pairs: list[tuple[str, str]]) -> list[str]:
    """Lines it knows, and some it has never seen."""
    return [source for source, _ in pairs[:3]] + [each.source for each in phrases("de", "test", 2)]
