"""Equality, in double precision, with the attention, layers and Transformer of torch.nn, given the same weights."""

from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.models.build import build
from regard.models.memory import Memory
from regard.models.transformer import Stack, make_block
from regard.nn.attention.mask import AttentionMask
from regard.nn.attention.multihead import CrossAttention, SelfAttention
from regard.nn.attention.plan import plan_attention
from regard.nn.block import TransformerBlock
from regard.nn.ragged import Layout, Ragged
from regard.nn.tap import recording
from regard.recipe import Transformer

WIDTH, HEADS, INNER = 12, 3, 20
lengths = st.lists(st.one_of(st.just(1), st.integers(1, 15)), min_size=1, max_size=5)
pairs = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=5)
orders = pytest.mark.parametrize("norm_first", [True, False], ids=["norm first", "norm last"])
activations = pytest.mark.parametrize("activation", ["relu", "gelu"])
few_examples = settings(max_examples=10)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def randomised(module: nn.Module) -> nn.Module:
    """Randomise every weight: norms and biases start at 1 and 0, which would hide errors."""
    for weight in module.parameters():
        nn.init.normal_(weight, std=0.4)
    return module.double().eval()


def copy(mine: nn.Module, theirs: nn.Module) -> None:
    mine.load_state_dict(theirs.state_dict())


def copy_attention(mine: nn.Module, theirs: nn.MultiheadAttention) -> None:
    copy(mine.get_submodule("out"), theirs.out_proj)
    state = {"weight": theirs.in_proj_weight, "bias": theirs.in_proj_bias}
    for kind, given_weight in state.items():
        assert given_weight is not None
        parts = (
            {"qkv": given_weight}
            if isinstance(mine, SelfAttention)
            else {"query": given_weight[:WIDTH], "kv": given_weight[WIDTH:]}
        )
        for name, part in parts.items():
            mine.get_parameter(f"{name}.{kind}").data.copy_(part)


def copy_block(mine: TransformerBlock, theirs: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer) -> None:
    copy_attention(mine.self, theirs.self_attn)
    copy(mine.feedforward.widen, theirs.linear1)
    copy(mine.feedforward.narrow, theirs.linear2)
    copy(mine.around_self.norm, theirs.norm1)
    last = theirs.norm2
    if isinstance(theirs, nn.TransformerDecoderLayer):
        assert mine.cross is not None
        assert mine.around_cross is not None
        copy_attention(mine.cross, theirs.multihead_attn)
        copy(mine.around_cross.norm, theirs.norm2)
        last = theirs.norm3
    copy(mine.around_feedforward.norm, last)


def hidden(layout: Layout) -> Tensor:
    """Return torch's padding mask, true at padding."""
    return torch.arange(layout.longest) >= layout.lengths_B[:, None]


def ahead(layout: Layout) -> Tensor:
    return torch.ones(layout.longest, layout.longest, dtype=torch.bool).triu(1)


@pytest.mark.parametrize("causal", [False, True])
@given(lengths)
@few_examples
def test_self_attention_and_its_weights_equal_multihead_attention(causal: bool, given_lengths: list[int]) -> None:
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    randomised(theirs)
    mine, layout = SelfAttention(WIDTH, HEADS).double(), Layout.from_lengths(given_lengths)
    copy_attention(mine, theirs)
    x = normal(layout.tokens, WIDTH)
    padded = layout.pad(x)
    mask = ahead(layout) if causal else None
    expected, weights = theirs(
        padded, padded, padded, key_padding_mask=hidden(layout), attn_mask=mask, average_attn_weights=False
    )
    plan = plan_attention(AttentionMask(causal=causal), layout, layout)
    torch.testing.assert_close(mine(x, plan), layout.unpad(expected))
    with recording(mine, "weights") as seen:
        mine(x, plan)
    torch.testing.assert_close(layout.unpad(seen["weights"][0].transpose(1, 2)), layout.unpad(weights.transpose(1, 2)))


@given(pairs)
@few_examples
def test_cross_attention_equals_multihead_attention(given_lengths: list[tuple[int, int]]) -> None:
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    randomised(theirs)
    mine = CrossAttention(WIDTH, HEADS).double()
    copy_attention(mine, theirs)
    queries, keys = (Layout.from_lengths(side) for side in zip(*given_lengths, strict=True))
    x, memory = normal(queries.tokens, WIDTH), normal(keys.tokens, WIDTH)
    padded = keys.pad(memory)
    expected, _ = theirs(queries.pad(x), padded, padded, key_padding_mask=hidden(keys))
    torch.testing.assert_close(mine(x, memory, plan_attention(AttentionMask(), queries, keys)), queries.unpad(expected))


@orders
@activations
@given(lengths)
@few_examples
def test_a_block_without_cross_attention_equals_an_encoder_layer(
    norm_first: bool, activation: Literal["relu", "gelu"], given_lengths: list[int]
) -> None:
    theirs = nn.TransformerEncoderLayer(
        WIDTH, HEADS, INNER, activation=activation, batch_first=True, norm_first=norm_first
    )
    randomised(theirs)
    settings = Transformer(width=WIDTH, inner=INNER, heads=HEADS, norm_first=norm_first, activation=activation)
    mine, layout = make_block(settings, cross=False).double().eval(), Layout.from_lengths(given_lengths)
    copy_block(mine, theirs)
    x = normal(layout.tokens, WIDTH)
    expected = theirs(layout.pad(x), src_key_padding_mask=hidden(layout))
    got, _ = mine(
        x, mine.around_self.sublayer_input(x), plan_attention(AttentionMask(), layout, layout), None, nn.Identity()
    )
    torch.testing.assert_close(got, layout.unpad(expected))


@orders
@given(pairs)
@few_examples
def test_a_block_with_cross_attention_equals_a_decoder_layer(
    norm_first: bool, given_lengths: list[tuple[int, int]]
) -> None:
    theirs = nn.TransformerDecoderLayer(WIDTH, HEADS, INNER, batch_first=True, norm_first=norm_first)
    randomised(theirs)
    settings = Transformer(width=WIDTH, inner=INNER, heads=HEADS, norm_first=norm_first)
    mine = make_block(settings, cross=True).double().eval()
    copy_block(mine, theirs)
    target, source = (Layout.from_lengths(side) for side in zip(*given_lengths, strict=True))
    x, memory = normal(target.tokens, WIDTH), normal(source.tokens, WIDTH)
    expected = theirs(target.pad(x), source.pad(memory), tgt_mask=ahead(target), memory_key_padding_mask=hidden(source))
    plan = plan_attention(AttentionMask(causal=True), target, target)
    cross = memory, plan_attention(AttentionMask(), target, source)
    got, _ = mine(x, mine.around_self.sublayer_input(x), plan, cross, nn.Identity())
    torch.testing.assert_close(got, target.unpad(expected))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@orders
@given(pairs)
@few_examples
def test_encoder_and_decoder_equal_their_transformer(norm_first: bool, given_lengths: list[tuple[int, int]]) -> None:
    theirs = nn.Transformer(
        WIDTH, HEADS, 2, 3, INNER, batch_first=True, norm_first=norm_first, activation="gelu", dropout=0.0
    )
    if not norm_first:  # theirs normalises once more at the end of a norm-last stack, which the paper does not
        theirs.encoder.norm = theirs.decoder.norm = None
    randomised(theirs)
    settings = Transformer(
        width=WIDTH,
        inner=INNER,
        heads=HEADS,
        encoder_layers=2,
        decoder_layers=3,
        norm_first=norm_first,
        activation="gelu",
        position="none",
    )
    model = build(settings, 50, 50).double().eval()
    for mine, other in ((model.encoder, theirs.encoder), (model.decoder, theirs.decoder)):
        assert isinstance(mine, Stack)
        copy_stack(mine, other)
    target, source = (
        Ragged(torch.randint(50, (sum(side),)), Layout.from_lengths(side)) for side in zip(*given_lengths, strict=True)
    )
    expected = theirs(
        source.layout.pad(model.get_submodule("encoder.embedding")(source)),
        target.layout.pad(model.get_submodule("decoder.embedding")(target)),
        tgt_mask=ahead(target.layout),
        src_key_padding_mask=hidden(source.layout),
        memory_key_padding_mask=hidden(source.layout),
    )
    memory = model.encode(source)
    assert isinstance(memory, Memory)
    torch.testing.assert_close(model.decoder(target, memory), target.layout.unpad(expected))


def copy_stack(mine: Stack, theirs: nn.TransformerEncoder | nn.TransformerDecoder) -> None:
    for block, layer in zip(mine.layers, theirs.layers, strict=True):
        assert isinstance(block, TransformerBlock)
        assert isinstance(layer, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer)
        copy_block(block, layer)
    if theirs.norm is not None:
        copy(mine.norm, theirs.norm)
