"""Small models in float64, so that results can be compared to the last digits, and what they have memorised."""

from pathlib import Path

import pytest

from regard.bundle import Bundle
from regard.data.phrasebook import phrases
from regard.predict import Chatbot, Translator
from regard.tasks import load_bundle


@pytest.fixture(scope="session")
def bundle(memorised: Path) -> Bundle:
    """The run of the memorised model, in float64."""
    bundle = load_bundle(memorised)
    bundle.model.double()
    return bundle


@pytest.fixture(scope="session")
def translator(bundle: Bundle) -> Translator:
    """A translator that decodes with the model itself."""
    return Translator(bundle.model, bundle.tokenizers, bundle.recipe.decode, longest=bundle.recipe.data.longest)


@pytest.fixture(scope="session")
def pairs() -> list[tuple[str, str]]:
    """The training pairs."""
    return [(phrase.source, phrase.target) for phrase in phrases("de", "train", 20)]


@pytest.fixture(scope="session")
def lines(pairs: list[tuple[str, str]]) -> list[str]:
    """Some training sources, and some test sources."""
    return [source for source, _ in pairs[:3]] + [phrase.source for phrase in phrases("de", "test", 2)]


@pytest.fixture(scope="session")
def chat_bundle(memorised_chat_run: Path) -> Bundle:
    """The run of the model that has memorised dialogues, in float64."""
    bundle = load_bundle(memorised_chat_run)
    bundle.model.double()
    return bundle


@pytest.fixture(scope="session")
def chatbot(chat_bundle: Bundle) -> Chatbot:
    """A chatbot that decodes with the model itself."""
    data = chat_bundle.recipe.data
    return Chatbot(
        chat_bundle.model, chat_bundle.fields, chat_bundle.recipe.decode, longest=data.longest, turns=data.turns
    )
