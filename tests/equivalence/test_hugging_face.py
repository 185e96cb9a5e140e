"""Equal, in double precision, to Hugging Face's Marian and BART built from a configuration with random weights."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.models.outline import Outline
from regard.models.seq2seq import Seq2Seq
from regard.models.weight_map import BART, MARIAN, Rule, export_weights, import_weights
from regard.nn.ragged import Ragged
from regard.nn.tap import recording

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
    """Their model in double precision, every weight random: norms and biases begin at 1 and 0, which hides much."""
    torch.manual_seed(0)
    theirs = theirs.double().eval()
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            if "embed_positions" not in name or isinstance(theirs, transformers.BartForConditionalGeneration):
                weight.normal_(0, 0.3)
        theirs.final_logits_bias.normal_()
    return theirs


def marian() -> tuple[Any, Seq2Seq, tuple[Rule, ...]]:
    config = transformers.MarianConfig(**SIZES, scale_embedding=True, activation_function="swish")
    theirs = randomised(transformers.MarianMTModel(config))
    with torch.no_grad():  # their table of positions is in single precision: fill it again, by the formula
        for side in (theirs.model.encoder, theirs.model.decoder):
            for place in range(PLACES):
                turns = [place / 10000 ** (2 * i / WIDTH) for i in range(WIDTH // 2)]
                row = [math.sin(x) for x in turns] + [math.cos(x) for x in turns]
                side.embed_positions.weight[place] = torch.tensor(row, dtype=torch.float64)
    outline = Outline(**OURS, position="sinusoidal-halves", activation="silu", output_bias=True)
    return theirs, outline.seq2seq(VOCABULARY, VOCABULARY).double().eval(), MARIAN


def bart() -> tuple[Any, Seq2Seq, tuple[Rule, ...]]:
    theirs = randomised(transformers.BartForConditionalGeneration(transformers.BartConfig(**SIZES)))
    outline = Outline(
        **OURS,
        position="learned",
        positions=PLACES,
        activation="gelu",
        embedding_norm=True,
        scaled=False,
        output_bias=True,
    )
    return theirs, outline.seq2seq(VOCABULARY, VOCABULARY).double().eval(), BART


MODELS = {"marian": marian(), "bart": bart()}
for their_model, our_model, table in MODELS.values():
    import_weights(our_model, table, their_model.state_dict())
each = pytest.mark.parametrize(("theirs", "ours", "rules"), MODELS.values(), ids=MODELS.keys())

ids = st.lists(st.integers(3, VOCABULARY - 1), min_size=1, max_size=PLACES)
pairs = st.lists(st.tuples(ids, ids), min_size=1, max_size=4)
Pairs = list[tuple[list[int], list[int]]]


def asked(theirs: Any, source: Ragged, target: Ragged) -> Any:
    """What their model says of a padded batch."""
    with torch.no_grad():
        return theirs(
            input_ids=source.to_padded(),
            attention_mask=source.with_values(torch.ones_like(source.values)).to_padded(),
            decoder_input_ids=target.to_padded(),
            output_attentions=True,
            use_cache=False,
        )


@each
@given(pairs)
@settings(max_examples=10)
def test_logits_are_equal(theirs: Any, ours: Seq2Seq, rules: tuple[Rule, ...], batch: Pairs) -> None:
    source, target = Ragged.from_list([one for one, _ in batch]), Ragged.from_list([other for _, other in batch])
    expected = target.layout.unpad(asked(theirs, source, target).logits)
    torch.testing.assert_close(ours(source, target), expected)


@each
@given(pairs)
@settings(max_examples=5)
def test_attention_weights_are_equal(theirs: Any, ours: Seq2Seq, rules: tuple[Rule, ...], batch: Pairs) -> None:
    source, target = Ragged.from_list([one for one, _ in batch]), Ragged.from_list([other for _, other in batch])
    said = asked(theirs, source, target)
    with recording(ours, "*.weights") as seen:
        ours(source, target)
    for name, given_weights in (
        ("encoder.layers.{}.self.weights", said.encoder_attentions),
        ("decoder.layers.{}.self.weights", said.decoder_attentions),
        ("decoder.layers.{}.cross.weights", said.cross_attentions),
    ):
        queries = source.layout if name.startswith("encoder") else target.layout
        for number, weights in enumerate(given_weights):
            mine = seen[name.format(number)][0].transpose(1, 2)
            torch.testing.assert_close(queries.unpad(mine), queries.unpad(weights.transpose(1, 2)))


@each
def test_exported_weights_are_the_ones_imported(theirs: Any, ours: Seq2Seq, rules: tuple[Rule, ...]) -> None:
    exported, state = export_weights(ours, rules), theirs.state_dict()
    for name, weight in exported.items():
        skip = 2 if "embed_positions" in name else 0
        assert torch.equal(weight.reshape(state[name].shape)[skip:], state[name][skip:])
    same = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"}  # the shared matrix once more
    kept = {name for name in state if "embed_positions" not in name or rules is BART} - same
    assert exported.keys() == kept


def test_a_model_outlined_otherwise_is_refused() -> None:
    ours = Outline(**OURS, position="learned").seq2seq(VOCABULARY, VOCABULARY)
    with pytest.raises(ValueError, match=r"nothing of theirs makes .*embedding\.position\.weight"):
        import_weights(ours, MARIAN, MODELS["marian"][0].state_dict())


def test_a_model_of_another_size_is_refused() -> None:
    ours = Outline(**{**OURS, "inner": 24}, output_bias=True).seq2seq(VOCABULARY, VOCABULARY)
    with pytest.raises(ValueError, match=r"feedforward.* is \(24, 12\) here and \(20, 12\) there"):
        import_weights(ours, MARIAN, MODELS["marian"][0].state_dict())


def test_weights_that_are_not_there_are_named() -> None:
    ours = Outline(**OURS, output_bias=True).seq2seq(VOCABULARY, VOCABULARY)
    state = {name: each for name, each in MODELS["marian"][0].state_dict().items() if "fc1" not in name}
    with pytest.raises(ValueError, match=r"is made of .*fc1.*, which their weights have not"):
        import_weights(ours, MARIAN, state)
