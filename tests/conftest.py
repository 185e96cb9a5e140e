"""What every test may ask for."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

# Every call into the layers and models is held to the shapes of its signature; so before anything imports them.
install_import_hook(["regard.nn", "regard.models"], "beartype.beartype")

# The tensors are tiny: a second thread only waits for the first, and on busy cores it waits long.
torch.set_num_threads(1)

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
