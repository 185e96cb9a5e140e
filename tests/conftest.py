"""What every test may ask for."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

# Every call into the layers and models is held to the shapes of its signature; so before anything imports them.
# Of the search, only what handles tensors: its options are drawn by hypothesis, where checks that draw too are refused.
SEARCH = ("choose", "constraints", "forbid", "live", "penalty", "sample", "search", "topk", "trellis")
CHECKED = ["regard.nn", "regard.models", *(f"regard.decode.{name}" for name in SEARCH)]
install_import_hook(CHECKED, "beartype.beartype")

# The tensors are tiny: a second thread only waits for the first, and on busy cores it waits long.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # and so in processes that tests start

ROOT = Path(__file__).resolve().parents[1]

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
def memorised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that knows twenty sentences by heart, which takes seconds to learn."""
    from regard.bundle import save_bundle
    from regard.data.example import Rows, prepare
    from regard.data.phrasebook import phrases
    from regard.models.build import build
    from regard.recipe import load
    from regard.text import Tokenizers

    recipe = load(ROOT / "tests" / "memorised.toml")
    pairs = [(phrase.source, phrase.target) for phrase in phrases("de", "train", 20)]
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
    folder = tmp_path_factory.mktemp("runs") / "memorised"
    save_bundle(folder, recipe, tokenizers, model, {})
    return folder
