import numpy as np
import pytest
import torch

from regard.models.build import build
from regard.predict import Translator
from regard.recipe import parse
from regard.score import Alignment
from regard.tasks.translation import attention_maps
from regard.text import Tokenizers

PAIRS = [("I can go alone", "Ich kann allein gehen"), ("I go", "Ich gehe")]


@pytest.fixture(scope="module")
def translator() -> Translator:
    recipe = parse(
        '[data]\ntrain = [{ to = "de", pairs = 10 }]\n[model]\nsize = "tiny"\nwidth = 16\ninner = 16\nheads = 2\n'
        "encoder_layers = 1\ndecoder_layers = 2\n"
    )
    tokenizers = Tokenizers.learn(PAIRS * 5, kind="bpe", size=300, joint=True, seed=1)
    torch.manual_seed(0)
    return Translator(build(recipe.model, len(tokenizers["source"]), len(tokenizers["target"])), tokenizers)


def test_a_map_has_a_row_for_each_target_word_and_a_column_for_each_source_word(translator: Translator) -> None:
    first, second = attention_maps(translator, PAIRS)
    assert (first.keys, first.queries) == (("I", "can", "go", "alone"), ("Ich", "kann", "allein", "gehen"))
    assert np.shape(first.weights_QK) == (4, 4)
    assert np.shape(second.weights_QK) == (2, 2)


def test_rows_sum_to_the_attention_without_the_end_symbol(translator: Translator) -> None:
    for attention in attention_maps(translator, PAIRS):
        sums = np.asarray(attention.weights_QK).sum(axis=1)
        assert ((sums > 0.0) & (sums < 1.0)).all()


def test_maps_do_not_depend_on_other_pairs(translator: Translator) -> None:
    together = attention_maps(translator, PAIRS)[1]
    (alone,) = attention_maps(translator, PAIRS[1:])
    np.testing.assert_allclose(np.asarray(alone.weights_QK), np.asarray(together.weights_QK), rtol=1e-4)


def test_gold_links_are_kept_with_their_map(translator: Translator) -> None:
    gold = [Alignment(frozenset({(0, 0)})), Alignment(frozenset({(1, 1)}))]
    assert [attention.gold for attention in attention_maps(translator, PAIRS, gold)] == gold


def test_a_model_without_attention_weights_has_no_maps(translator: Translator) -> None:
    blind = Translator(translator.model, translator.tokenizers)
    blind.alignment_head = None
    assert attention_maps(blind, PAIRS) == []
    assert attention_maps(translator, []) == []
