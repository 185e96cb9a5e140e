"""Equality, in double precision, with Hugging Face's BERT classifier built from a configuration with random weights."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from tests.equivalence.ragged_output import POSITIONS, VOCABULARY, assert_equal_attention, output_of, randomise, texts

from regard.models.build import build_classifier
from regard.models.transformer import Stack
from regard.models.weight_map import BERT_CLASSIFIER, export_weights, fold_token_types, import_weights
from regard.nn.norm import make_norm
from regard.nn.ragged import Ragged
from regard.recipe import Classification, Transformer

transformers = pytest.importorskip("transformers", reason="transformers, of the extra 'export', is not installed")

WIDTH, CLASSES = 12, 5
CONFIG = transformers.BertConfig(
    vocab_size=VOCABULARY,
    hidden_size=WIDTH,
    num_hidden_layers=3,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=POSITIONS,
    num_labels=CLASSES,
    layer_norm_eps=1e-5,  # ours; 1e-12 is theirs
    attn_implementation="eager",
)
torch.manual_seed(0)
THEIRS: Any = transformers.BertForSequenceClassification(CONFIG).double().eval()
randomise(THEIRS)
SETTINGS = Transformer(
    width=WIDTH,
    inner=20,
    heads=3,
    encoder_layers=3,
    position="learned",
    positions=POSITIONS,
    activation="gelu",
    scale_embedding=False,
    norm_first=False,
)
OURS = build_classifier(SETTINGS, VOCABULARY, CLASSES, Classification(pooling="first"))
assert isinstance(OURS.encoder, Stack)
OURS.encoder.embedding.norm = make_norm("layer", WIDTH)  # which a recipe cannot ask for
OURS = OURS.double().eval().requires_grad_(False)
import_weights(OURS, BERT_CLASSIFIER, fold_token_types(THEIRS.state_dict()))


@given(texts)
@settings(max_examples=20)
def test_logits_are_equal(sequences: list[list[int]]) -> None:
    batch = Ragged.from_list(sequences)
    torch.testing.assert_close(OURS(batch), output_of(THEIRS, batch).logits)


@given(texts)
@settings(max_examples=5)
def test_attention_weights_are_equal(sequences: list[list[int]]) -> None:
    assert_equal_attention(OURS, "encoder", THEIRS, sequences)


def test_exported_weights_give_their_model_our_logits() -> None:
    copy = transformers.BertForSequenceClassification(CONFIG).double().eval()
    types = torch.zeros_like(THEIRS.bert.embeddings.token_type_embeddings.weight)
    exported = {**export_weights(OURS, BERT_CLASSIFIER), "bert.embeddings.token_type_embeddings.weight": types}
    missing, unexpected = copy.load_state_dict(exported, strict=False)
    assert (missing, unexpected) == ([], [])
    batch = Ragged.from_list([[3, 1, 4, 1, 5], [9, 2]])
    torch.testing.assert_close(output_of(copy, batch).logits, OURS(batch))
