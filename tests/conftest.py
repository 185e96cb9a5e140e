"""What every test may ask for."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

ROOT = Path(__file__).resolve().parents[1]

# Every call into the layers and models is held to the shapes of its signature; so before anything imports them.
# Of the search, only what handles tensors: its options are drawn by hypothesis, where checks that draw too are refused.
SEARCH = ("choose", "constraints", "forbid", "live", "penalty", "sample", "search", "topk", "trellis")
NN = [f"regard.nn.{each.stem}" for each in (ROOT / "src/regard/nn").iterdir() if each.stem not in ("cuda", "__init__")]
# Kernels are Triton's to read: it would look for their names where the checks come from.
CHECKED = [*NN, "regard.models", *(f"regard.decode.{name}" for name in SEARCH)]
install_import_hook(CHECKED, "beartype.beartype")

# The tensors are tiny: a second thread only waits for the first, and on busy cores it waits long.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # and so in processes that tests start

# Two shared cores are slow at times; a law is broken by its example, never by the clock.
settings.register_profile("regard", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
settings.load_profile("regard")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real corpora, where this machine has them."""
    folder = Path(os.environ.get("REGARD_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("no real corpora here; REGARD_DATA names their folder")
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's own cache."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One cache for tests that read the same few corpora."""
    return str(tmp_path_factory.mktemp("shared-cache"))


@pytest.fixture
def shared_cache(cache: str, monkeypatch: pytest.MonkeyPatch, own_cache: None) -> None:
    """What is made from text is made once for all tests that ask for this."""
    monkeypatch.setenv("REGARD_CACHE", cache)


@pytest.fixture(scope="session")
def memorised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that knows twenty German sentences by heart, which takes seconds to learn."""
    return learned_by_heart(tmp_path_factory.mktemp("runs") / "memorised", "de")


def learned_by_heart(folder: Path, to: str) -> Path:
    """Twenty sentences of a language, learned until they are known."""
    from regard.bundle import save_bundle
    from regard.data.example import Rows, prepare
    from regard.data.phrasebook import phrases
    from regard.models.build import build
    from regard.recipe import load
    from regard.text import Tokenizers

    recipe = load(ROOT / "tests" / "memorised.toml", [f"data.{each}.to={to}" for each in ("train.0", "valid", "test")])
    pairs = [(phrase.source, phrase.target) for phrase in phrases(to, "train", 20)]
    tokenizers = Tokenizers.learn(pairs, size=recipe.text.size, symbols=recipe.text.symbols)
    torch.manual_seed(1)
    model = build(recipe.model, len(tokenizers.source), len(tokenizers.target))
    source, target = (
        Rows(*tokenizer.encode_batch(lines))
        for tokenizer, lines in (
            (tokenizers.source, [source for source, _ in pairs]),
            (tokenizers.target, [target for _, target in pairs]),
        )
    )
    batch = prepare(source, target, np.arange(len(pairs)))
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(60):
        optimiser.zero_grad()
        logits_NV = model(batch.source, batch.target)
        torch.autograd.backward(torch.nn.functional.cross_entropy(logits_NV, batch.labels_N, label_smoothing=0.1))
        optimiser.step()
    save_bundle(folder, recipe, tokenizers, model, {})
    return folder
