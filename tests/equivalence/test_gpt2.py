"""Equality, in double precision, with Hugging Face's GPT-2 built from a configuration with random weights."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.equivalence.ragged_output import POSITIONS, VOCABULARY, assert_equal_attention, output_of, randomise, texts

from regard.models.build import build_language_model
from regard.models.weight_map import GPT2, export_weights, import_weights
from regard.nn.ragged import Ragged
from regard.recipe import Transformer

transformers = pytest.importorskip("transformers", reason="transformers, of the extra 'export', is not installed")

CONFIG = transformers.GPT2Config(
    vocab_size=VOCABULARY,
    n_positions=POSITIONS,
    n_embd=12,
    n_layer=3,
    n_head=3,
    bos_token_id=0,
    eos_token_id=1,
    attn_implementation="eager",
)
torch.manual_seed(0)
THEIRS: Any = transformers.GPT2LMHeadModel(CONFIG).double().eval()
randomise(THEIRS)
OURS = build_language_model(
    Transformer(
        width=12,
        inner=48,
        heads=3,
        decoder_layers=3,
        position="learned",
        positions=POSITIONS,
        activation="gelu_tanh",
        scale_embedding=False,
    ),
    VOCABULARY,
)
OURS = OURS.double().eval().requires_grad_(False)
import_weights(OURS, GPT2, THEIRS.state_dict())


@given(texts)
@settings(max_examples=20)
def test_logits_are_equal(sequences: list[list[int]]) -> None:
    batch = Ragged.from_list(sequences)
    torch.testing.assert_close(OURS(batch), batch.layout.unpad(output_of(THEIRS, batch).logits))


@given(texts)
@settings(max_examples=5)
def test_attention_weights_are_equal(sequences: list[list[int]]) -> None:
    assert_equal_attention(OURS, "decoder", THEIRS, sequences)


@given(texts, st.integers(1, 3))
@settings(max_examples=10)
def test_decoding_after_prompts_gives_their_log_probabilities(sequences: list[list[int]], beams: int) -> None:
    prompts = [sequence[:-1] for sequence in sequences]
    last = torch.tensor([sequence[-1] for sequence in sequences]).repeat_interleave(beams)
    logprobs, _ = OURS.step(last, OURS.start(Ragged.from_list(prompts), beams))
    batch = Ragged.from_list(sequences)
    theirs = batch.layout.unpad(output_of(THEIRS, batch).logits)[batch.offsets[1:].long() - 1].log_softmax(-1)
    torch.testing.assert_close(logprobs, theirs.repeat_interleave(beams, 0))


def test_exported_weights_are_the_ones_imported() -> None:
    exported, state = export_weights(OURS, GPT2), THEIRS.state_dict()
    assert exported.keys() == {name for name in state if not name.endswith((".attn.bias", ".attn.masked_bias"))}
    assert all(torch.equal(weight, state[name]) for name, weight in exported.items())
