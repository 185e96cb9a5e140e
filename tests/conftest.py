"""Fixtures and settings for all tests."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from tests.fork_server import forked_python
from tests.scheduling import (  # noqa: F401
    pytest_collection_modifyitems,
    pytest_xdist_auto_num_workers,
    pytest_xdist_make_scheduler,
)
from tests.shape_checks import install_shape_checks

ROOT = Path(__file__).resolve().parents[1]

# Check the shapes in the signatures of layers and models. The hook must come before their import. In
# `decode` only modules that handle tensors are checked: hypothesis draws its options and allows no other random draws.
SEARCH = ["beams", "candidates", "constraints", "greedy", "incremental", "ranking", "rules", "sampling", "search"]
SEARCH += ["search_group", "static_search", "topk", "trellis"]
NN = [f"regard.nn.{path.stem}" for path in (ROOT / "src/regard/nn").iterdir() if path.stem not in ("cuda", "__init__")]
# Not the kernels: Triton would look up their names in the module of the checks.
CHECKED = [*NN, "regard.models", *(f"regard.decode.{name}" for name in SEARCH)]
install_shape_checks(CHECKED)

# Hundreds of processes import the same modules. Each would compile them if none may keep the result.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The tensors are tiny: a second thread would only wait for the first.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # also in processes that tests start

# No deadlines: shared cores are slow at times. `make sweep` tries ten times as many examples.
for profile, examples in (("regard", 30), ("sweep", 300)):
    settings.register_profile(
        profile, deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples
    )
settings.load_profile("regard")


@pytest.fixture(scope="session")
def python() -> str:
    """Return a command like `sys.executable` that forks a process, for files that are programs themselves."""
    return forked_python()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real corpora; skip the test if there is none."""
    folder = Path(os.environ.get("REGARD_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("no real corpora; set REGARD_DATA to their folder")
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a cache of its own, so that none uses the user's."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a cache for tests that read the same corpora."""
    return str(tmp_path_factory.mktemp("shared-cache"))


@pytest.fixture
def shared_cache(cache: str, monkeypatch: pytest.MonkeyPatch, own_cache: None) -> None:
    """Share vocabularies and stores between the tests that use this fixture."""
    monkeypatch.setenv("REGARD_CACHE", cache)


@pytest.fixture(scope="session")
def memorised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a translation run that has memorised twenty German sentences."""
    return train_memorised(tmp_path_factory.mktemp("runs") / "memorised", "de")


@pytest.fixture(scope="session")
def memorised_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a language model that has memorised twenty English sentences."""
    from regard.bundle import save_bundle
    from regard.data.fields import with_tokenizers
    from regard.data.phrasebook import phrases
    from regard.recipe import load
    from regard.tasks.language_model import LanguageModelBatch, LanguageModelTask
    from regard.text import Tokenizer, Tokenizers, TokenizerSettings

    recipe = load(ROOT / "tests" / "memorised.toml", ["task=language_model"])
    sentences = [phrase.source for phrase in phrases("de", "train", 20)]
    tokenizer = Tokenizer.learn(sentences, recipe.text.size, TokenizerSettings(multiline=True))
    fields = with_tokenizers(Tokenizers({"text": tokenizer}))
    task = LanguageModelTask(recipe)
    torch.manual_seed(1)
    model = task.build(fields.sizes)
    batch = task.collate({"text": fields["text"].encode(sentences)}, np.arange(len(sentences)))
    assert isinstance(batch, LanguageModelBatch)
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(80):
        optimiser.zero_grad()
        torch.autograd.backward(torch.nn.functional.cross_entropy(model(batch.tokens), batch.labels_N))
        optimiser.step()
    folder = tmp_path_factory.mktemp("runs") / "memorised-text"
    save_bundle(folder, recipe, fields, model, {})
    return folder


@pytest.fixture(scope="session")
def masked_run(tmp_path_factory: pytest.TempPathFactory, cache: str) -> Path:
    """Return the folder of a masked language model of sentences of three words, each determined by the other two."""
    from regard.recipe import load
    from regard.train.loop import train

    folder = tmp_path_factory.mktemp("runs") / "masked"
    numbers = [(first, second) for first in range(5) for second in range(5)]
    lines = [f"{'abcde'[i]} {'pqrst'[(i + j) % 5]} {'vwxyz'[j]}\n" for i, j in numbers]
    folder.mkdir()
    (folder / "text.txt").write_text("".join(lines), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", cache)
        for _ in train(load(ROOT / "tests" / "masked.toml", [f"data.root='{folder}'"]), folder, "cpu"):
            pass
    return folder


@pytest.fixture(scope="session")
def classifier_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a hierarchical attention network that has learned to name the colour in a text."""
    from tests.classified import train_classifier

    return train_classifier(tmp_path_factory.mktemp("runs") / "colours", "han", "mean")


@pytest.fixture(scope="session")
def memorised_chat_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a chat run that has memorised five dialogues."""
    from tests.chats import train_chat

    return train_chat(tmp_path_factory.mktemp("runs") / "memorised-chat")


@pytest.fixture(scope="session")
def chat_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a chatbot with attention that remembers a name over several turns."""
    from tests.chat_names import train_chatbot

    return train_chatbot(tmp_path_factory.mktemp("runs") / "names")


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a Vision Transformer that has learned drawn digits."""
    from tests.digit_classifier import train_digits

    folder = tmp_path_factory.mktemp("digits")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("REGARD_CACHE", str(folder / "cache"))
        return train_digits(folder / "run")


def train_memorised(folder: Path, to: str) -> Path:
    """Train a model on twenty sentences until it knows them, and return its folder."""
    from regard.bundle import save_bundle
    from regard.data.fields import with_tokenizers
    from regard.data.phrasebook import phrases
    from regard.recipe import load
    from regard.tasks.translation import TranslationTask
    from regard.text import Tokenizers

    recipe = load(
        ROOT / "tests" / "memorised.toml", [f"data.{corpus}.to={to}" for corpus in ("train.0", "valid", "test")]
    )
    pairs = [(phrase.source, phrase.target) for phrase in phrases(to, "train", 20)]
    fields = with_tokenizers(Tokenizers.learn(pairs, size=recipe.text.size, symbols=recipe.text.symbols))
    task = TranslationTask(recipe)
    torch.manual_seed(1)
    model = task.build(fields.sizes)
    columns = dict(zip(fields, zip(*pairs, strict=True), strict=True))
    batch = task.collate({name: fields[name].encode(columns[name]) for name in fields}, np.arange(len(pairs)))
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(60):
        optimiser.zero_grad()
        logits_NV = model(batch.source, batch.target)
        torch.autograd.backward(torch.nn.functional.cross_entropy(logits_NV, batch.labels_N, label_smoothing=0.1))
        optimiser.step()
    save_bundle(folder, recipe, fields, model, {})
    return folder
