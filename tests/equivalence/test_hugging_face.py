"""Equality, in double precision, with Hugging Face's Marian and BART, built with random weights."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard.models.build import build
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Stack
from regard.models.weight_map import BART, MARIAN, WeightRule, export_weights, import_weights
from regard.nn.norm import make_norm
from regard.nn.position import SinusoidalPositions
from regard.nn.ragged import Ragged
from regard.nn.tap import recording
from regard.recipe import Transformer

transformers = pytest.importorskip("transformers", reason="transformers, of the extra 'export', is not installed")

WIDTH, VOCABULARY, PLACES = 12, 17, 24
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": PLACES,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
    "decoder_start_token_id": 0,
    "attn_implementation": "eager",
}
OURS: dict[str, Any] = {
    "width": WIDTH,
    "inner": 20,
    "heads": 3,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "norm_first": False,
}


def randomised(theirs: Any) -> Any:
    """Randomise every weight: norms and biases start at 1 and 0, which would hide errors."""
    torch.manual_seed(0)
    theirs = theirs.double().eval()
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            if "embed_positions" not in name or isinstance(theirs, transformers.BartForConditionalGeneration):
                weight.normal_(0, 0.3)
        theirs.final_logits_bias.normal_()
    return theirs


def stacks(model: Seq2Seq) -> list[Stack]:
    return [stack for stack in (model.encoder, model.decoder) if isinstance(stack, Stack)]


def with_output_bias(model: Seq2Seq) -> Seq2Seq:
    """Give each token of the vocabulary a bias, which a recipe cannot ask for."""
    model.output.bias = nn.Parameter(torch.zeros(VOCABULARY))
    return model


def like_marian(**changes: Any) -> Seq2Seq:
    """Build our model with Marian's positions, activation function and output bias."""
    model = with_output_bias(build(Transformer(**(OURS | changes)), VOCABULARY, VOCABULARY))
    for stack in stacks(model):
        stack.embedding.position = SinusoidalPositions(WIDTH, halves=True)
        for block in stack.blocks:
            block.feedforward.activation = nn.functional.silu
    return model.double().eval()


def marian() -> tuple[Any, Seq2Seq, tuple[WeightRule, ...]]:
    config = transformers.MarianConfig(**SIZES, scale_embedding=True, activation_function="swish")
    theirs = randomised(transformers.MarianMTModel(config))
    with torch.no_grad():  # their table of positions is in single precision: fill it again, by the formula
        for side in (theirs.model.encoder, theirs.model.decoder):
            for position in range(PLACES):
                angles = [position / 10000 ** (2 * i / WIDTH) for i in range(WIDTH // 2)]
                row = [math.sin(x) for x in angles] + [math.cos(x) for x in angles]
                side.embed_positions.weight[position] = torch.tensor(row, dtype=torch.float64)
    return theirs, like_marian(), MARIAN


def bart() -> tuple[Any, Seq2Seq, tuple[WeightRule, ...]]:
    theirs = randomised(transformers.BartForConditionalGeneration(transformers.BartConfig(**SIZES)))
    chosen: dict[str, Any] = {
        "position": "learned",
        "positions": PLACES,
        "activation": "gelu",
        "scale_embedding": False,
    }
    ours = with_output_bias(build(Transformer(**OURS, **chosen), VOCABULARY, VOCABULARY))
    for stack in stacks(ours):
        stack.embedding.norm = make_norm("layer", WIDTH)
    return theirs, ours.double().eval(), BART


MODELS = {"marian": marian(), "bart": bart()}
for their_model, our_model, table in MODELS.values():
    import_weights(our_model, table, their_model.state_dict())
each_model = pytest.mark.parametrize(("theirs", "ours", "rules"), MODELS.values(), ids=MODELS.keys())

ids = st.lists(st.integers(3, VOCABULARY - 1), min_size=1, max_size=PLACES)
pairs = st.lists(st.tuples(ids, ids), min_size=1, max_size=4)
Pairs = list[tuple[list[int], list[int]]]


def their_output(theirs: Any, source: Ragged, target: Ragged) -> Any:
    """Return the output of their model for a padded batch."""
    with torch.no_grad():
        return theirs(
            input_ids=source.to_padded(),
            attention_mask=source.with_values(torch.ones_like(source.values)).to_padded(),
            decoder_input_ids=target.to_padded(),
            output_attentions=True,
            use_cache=False,
        )


@each_model
@given(pairs)
@settings(max_examples=10)
def test_logits_are_equal(theirs: Any, ours: Seq2Seq, rules: tuple[WeightRule, ...], batch: Pairs) -> None:
    source, target = (Ragged.from_list(list(side)) for side in zip(*batch, strict=True))
    expected = target.layout.unpad(their_output(theirs, source, target).logits)
    torch.testing.assert_close(ours(source, target), expected)


@each_model
@given(pairs)
@settings(max_examples=5)
def test_attention_weights_are_equal(theirs: Any, ours: Seq2Seq, rules: tuple[WeightRule, ...], batch: Pairs) -> None:
    source, target = (Ragged.from_list(list(side)) for side in zip(*batch, strict=True))
    output = their_output(theirs, source, target)
    with recording(ours, "*.weights") as seen:
        ours(source, target)
    for name, given_weights in (
        ("encoder.layers.{}.self.weights", output.encoder_attentions),
        ("decoder.layers.{}.self.weights", output.decoder_attentions),
        ("decoder.layers.{}.cross.weights", output.cross_attentions),
    ):
        queries = source.layout if name.startswith("encoder") else target.layout
        for number, weights in enumerate(given_weights):
            mine = seen[name.format(number)][0].transpose(1, 2)
            torch.testing.assert_close(queries.unpad(mine), queries.unpad(weights.transpose(1, 2)))


@each_model
def test_exported_weights_are_the_ones_imported(theirs: Any, ours: Seq2Seq, rules: tuple[WeightRule, ...]) -> None:
    exported, state = export_weights(ours, rules), theirs.state_dict()
    for name, weight in exported.items():
        skip = 2 if "embed_positions" in name else 0
        assert torch.equal(weight.reshape(state[name].shape)[skip:], state[name][skip:])
    same = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"}  # the shared matrix once more
    kept = {name for name in state if "embed_positions" not in name or rules is BART} - same
    assert exported.keys() == kept


def test_a_model_with_other_parameters_is_refused() -> None:
    ours = build(Transformer(**OURS, position="learned"), VOCABULARY, VOCABULARY)
    with pytest.raises(ValueError, match=r"no weights of theirs correspond to .*embedding\.position\.weight"):
        import_weights(ours, MARIAN, MODELS["marian"][0].state_dict())


def test_a_model_of_another_size_is_refused() -> None:
    ours = like_marian(inner=24)
    with pytest.raises(ValueError, match=r"feedforward.* has shape \(24, 12\) in our model and \(20, 12\) in theirs"):
        import_weights(ours, MARIAN, MODELS["marian"][0].state_dict())


def test_missing_weights_are_an_error_that_names_them() -> None:
    ours = like_marian()
    state = {name: weight for name, weight in MODELS["marian"][0].state_dict().items() if "fc1" not in name}
    with pytest.raises(ValueError, match=r"consists of .*fc1.*, which are missing from their weights"):
        import_weights(ours, MARIAN, state)
