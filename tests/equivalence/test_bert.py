"""Equality, in double precision, with Hugging Face's BERT built from a configuration with random weights."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from tests.equivalence.ragged_output import POSITIONS, VOCABULARY, assert_equal_attention, output_of, randomise, texts

from regard.models.build import build_masked_language_model
from regard.models.weight_map import BERT, export_weights, import_weights
from regard.nn.norm import make_norm
from regard.nn.ragged import Ragged
from regard.recipe import Transformer

transformers = pytest.importorskip("transformers", reason="transformers, of the extra 'export', is not installed")

WIDTH = 12
CONFIG = transformers.BertConfig(
    vocab_size=VOCABULARY,
    max_position_embeddings=POSITIONS,
    hidden_size=WIDTH,
    intermediate_size=20,
    num_hidden_layers=3,
    num_attention_heads=3,
    layer_norm_eps=1e-5,
    attn_implementation="eager",
)
torch.manual_seed(0)
THEIRS: Any = transformers.BertForMaskedLM(CONFIG).double().eval()
randomise(THEIRS)
OURS = build_masked_language_model(
    Transformer(
        width=WIDTH,
        inner=20,
        heads=3,
        encoder_layers=3,
        position="learned",
        positions=POSITIONS,
        activation="gelu",
        norm_first=False,
        scale_embedding=False,
    ),
    VOCABULARY,
)
OURS.encoder.embedding.norm = make_norm("layer", WIDTH)  # which a recipe cannot ask for
OURS = OURS.double().eval().requires_grad_(False)
import_weights(OURS, BERT, THEIRS.state_dict())


@given(texts)
@settings(max_examples=20)
def test_logits_are_equal(sequences: list[list[int]]) -> None:
    batch = Ragged.from_list(sequences)
    torch.testing.assert_close(OURS(batch), batch.layout.unpad(output_of(THEIRS, batch).logits))


@given(texts)
@settings(max_examples=5)
def test_attention_weights_are_equal(sequences: list[list[int]]) -> None:
    assert_equal_attention(OURS, "encoder", THEIRS, sequences)


def test_exported_weights_give_their_model_our_logits() -> None:
    """Type vectors are folded into the positions, so that those of the export are zero."""
    other: Any = transformers.BertForMaskedLM(CONFIG).double().eval()
    exported = export_weights(OURS, BERT)
    types = "bert.embeddings.token_type_embeddings.weight"
    missing, unexpected = other.load_state_dict(
        {**exported, types: torch.zeros(2, WIDTH, dtype=torch.float64)}, strict=False
    )
    assert not unexpected
    assert set(missing) <= {"cls.predictions.decoder.bias"}  # the same tensor as cls.predictions.bias
    batch = Ragged.from_list([[3, 1, 4, 1, 5, 9, 2, 6]])
    with torch.no_grad():
        torch.testing.assert_close(other(input_ids=batch.to_padded()).logits[0], OURS(batch))
