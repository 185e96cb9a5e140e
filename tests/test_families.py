"""Runs of every model family load, translate and align words."""

from pathlib import Path

import pytest
import torch

from regard.bundle import save_bundle
from regard.data.fields import with_tokenizers
from regard.models.build import build
from regard.nn.ragged import Ragged
from regard.predict import Translator
from regard.recipe import Recipe, parse
from regard.tasks import load_bundle
from regard.text import Tokenizers

PAIRS = [("I can go alone", "Ich kann allein gehen"), ("a cat", "eine Katze"), ("the street", "die Straße")]
FAMILIES = ["sutskever", "bahdanau", "luong", "convs2s"]


def recipe(family: str) -> Recipe:
    return parse(
        "[data]\ntrain = [{ to = 'de', pairs = 10 }]\n[text]\nsize = 300\n"
        f"[model]\nkind = '{family}'\nsize = 'tiny'\nwidth = 16\n[decode]\nbeam = 2\n"
    )


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    return Tokenizers.learn(PAIRS, size=300)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_of_any_family_loads_to_the_last_bit_translates_and_aligns(
    tmp_path: Path, tokenizers: Tokenizers, family: str
) -> None:
    torch.manual_seed(3)
    live = build(recipe(family).model, len(tokenizers["source"]), len(tokenizers["target"])).eval()
    save_bundle(tmp_path, recipe(family), with_tokenizers(tokenizers), live, {})
    bundle = load_bundle(tmp_path)
    source, target = Ragged.from_list([[5, 6, 3], [9, 3]]), Ragged.from_list([[2, 8], [2, 7, 6]])
    assert torch.equal(live(source, target), bundle.model(source, target))
    translator = Translator.from_bundle(bundle)
    translations = translator(["I can go alone", ""])
    assert translations[0].score < 0
    assert translations[1].text == ""
    if family == "sutskever":
        with pytest.raises(ValueError, match="has no cross-attention, so it cannot align words"):
            translator("a cat", alignments=True)
    else:
        aligned = translator("I can go alone", alignments=True)
        assert all(0 <= source < 4 for source, _ in aligned.alignment or ())
