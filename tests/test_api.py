"""What `import regard` offers: its names, without importing torch until one is used."""

import subprocess
import sys
from pathlib import Path

import pytest

import regard

DATA = '[data]\ntrain = [{ to = "de", pairs = 20 }]\n'


def test_every_public_name_is_listed_and_torch_is_not_imported() -> None:
    code = "import sys, regard; print({*regard.__all__} <= {*dir(regard)}, regard.load_recipe, 'torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith("True <function load")
    assert said.endswith(" False\n")
    assert {"load", "load_recipe", "train"} <= {*dir(regard)}
    assert all(callable(getattr(regard, name)) for name in regard.__all__ if name != "__version__")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'regard' has no attribute 'fit'"):
        regard.fit  # noqa: B018


def test_overrides_belong_to_the_file_of_a_recipe(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(DATA, encoding="utf-8")
    recipe = regard.load_recipe(tmp_path / "r.toml", ["train.steps=3"])
    assert recipe.train.steps == 3
    with pytest.raises(ValueError, match="pass them to load_recipe"):
        regard.train(recipe, tmp_path / "run", ["train.steps=4"])
