"""A family is a word in a recipe: what is saved of any of them loads, translates and aligns."""

from pathlib import Path

import pytest
import torch

from regard.bundle import load_bundle, save_bundle
from regard.models.build import build
from regard.nn.ragged import Ragged
from regard.recipe import Recipe, parse
from regard.text import Tokenizers
from regard.translator import Translator

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
    live = build(recipe(family).model, len(tokenizers.source), len(tokenizers.target)).eval()
    save_bundle(tmp_path, recipe(family), tokenizers, live, {})
    bundle = load_bundle(tmp_path)
    source, target = Ragged.from_list([[5, 6, 3], [9, 3]]), Ragged.from_list([[2, 8], [2, 7, 6]])
    assert torch.equal(live(source, target), bundle.model(source, target))
    translator = Translator.from_bundle(bundle)
    both = translator(["I can go alone", ""])
    assert both[0].score < 0
    assert both[1].text == ""
    if family == "sutskever":
        with pytest.raises(ValueError, match="does not look at its source by weights"):
            translator("a cat", alignments=True)
    else:
        aligned = translator("I can go alone", alignments=True)
        assert all(0 <= source < 4 for source, _ in aligned.alignment or ())
