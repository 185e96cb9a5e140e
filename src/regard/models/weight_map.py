"""Weight maps: which weight of our models is which weight of another library's, read in both directions.

Our merged projections are theirs, stacked by rows. `{n}` stands for the number of a layer.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class WeightRule:
    """A weight of ours, and the weights of theirs it consists of."""

    ours: str
    theirs: tuple[str, ...]
    skip: int = 0
    """Leading rows of theirs that have no counterpart."""
    transposed: bool = False
    """Whether theirs are stored as inputs by outputs, as GPT-2's are."""
    added: str = ""
    """A weight of theirs whose first row is part of each row of ours; an export leaves it out, as if it were zero."""


def _merged(ours: str, theirs: str, name: str, parts: str) -> list[WeightRule]:
    """Map a merged projection to its parts `q`, `k` and `v`, weight and bias."""
    return [
        WeightRule(f"{ours}.{name}.{w}", tuple(f"{theirs}.{p}_proj.{w}" for p in parts)) for w in ("weight", "bias")
    ]


def _same(ours: str, theirs: str) -> list[WeightRule]:
    """Map a layer that both have, weight and bias."""
    return [WeightRule(f"{ours}.{w}", (f"{theirs}.{w}",)) for w in ("weight", "bias")]


def _stack(side: str) -> list[WeightRule]:
    """Map what encoder and decoder of Marian have in common."""
    ours, theirs = f"{side}.layers.{{n}}", f"model.{side}.layers.{{n}}"
    return [
        WeightRule(f"{side}.embedding.weight", ("model.shared.weight",)),
        *_merged(f"{ours}.self", f"{theirs}.self_attn", "qkv", "qkv"),
        *_same(f"{ours}.self.out", f"{theirs}.self_attn.out_proj"),
        *_same(f"{ours}.around_self.norm", f"{theirs}.self_attn_layer_norm"),
        *_same(f"{ours}.feedforward.widen", f"{theirs}.fc1"),
        *_same(f"{ours}.feedforward.narrow", f"{theirs}.fc2"),
        *_same(f"{ours}.around_feedforward.norm", f"{theirs}.final_layer_norm"),
    ]


_LAYER, _MARIAN_CROSS, _GPT2_LAYER = "decoder.layers.{n}", "model.decoder.layers.{n}.encoder_attn", "transformer.h.{n}"

MARIAN = (
    *_stack("encoder"),
    *_stack("decoder"),
    *_merged(f"{_LAYER}.cross", _MARIAN_CROSS, "query", "q"),
    *_merged(f"{_LAYER}.cross", _MARIAN_CROSS, "kv", "kv"),
    *_same(f"{_LAYER}.cross.out", f"{_MARIAN_CROSS}.out_proj"),
    *_same(f"{_LAYER}.around_cross.norm", f"{_MARIAN_CROSS}_layer_norm"),
    WeightRule("output.weight", ("lm_head.weight",)),
    WeightRule("output.bias", ("final_logits_bias",)),
)
"""Hugging Face's MarianMTModel. Its positions have all sines before all cosines, and no weights."""

BART = (
    *MARIAN,
    *(
        rule
        for side in ("encoder", "decoder")
        for rule in (
            # Two of their rows are unused since fairseq, where positions were counted from the padding's id.
            WeightRule(f"{side}.embedding.position.weight", (f"model.{side}.embed_positions.weight",), skip=2),
            *_same(f"{side}.embedding.norm", f"model.{side}.layernorm_embedding"),
        )
    ),
)
"""Hugging Face's BartForConditionalGeneration."""

GPT2 = (
    WeightRule("decoder.embedding.weight", ("transformer.wte.weight",)),
    WeightRule("decoder.embedding.position.weight", ("transformer.wpe.weight",)),
    *_same(f"{_LAYER}.around_self.norm", f"{_GPT2_LAYER}.ln_1"),
    *_same(f"{_LAYER}.around_feedforward.norm", f"{_GPT2_LAYER}.ln_2"),
    *(
        replace(rule, transposed=rule.ours.endswith("weight"))
        for ours, theirs in (
            ("self.qkv", "attn.c_attn"),
            ("self.out", "attn.c_proj"),
            ("feedforward.widen", "mlp.c_fc"),
            ("feedforward.narrow", "mlp.c_proj"),
        )
        for rule in _same(f"{_LAYER}.{ours}", f"{_GPT2_LAYER}.{theirs}")
    ),
    *_same("decoder.norm", "transformer.ln_f"),
    WeightRule("output.weight", ("lm_head.weight",)),
)
"""Hugging Face's GPT2LMHeadModel, as a `LanguageModel`."""

_ENCODER_LAYER, _BERT_LAYER, _BERT_HEAD = (
    "encoder.layers.{n}",
    "bert.encoder.layer.{n}",
    "cls.predictions",
)

BERT = (
    WeightRule("encoder.embedding.weight", ("bert.embeddings.word_embeddings.weight",)),
    WeightRule(
        "encoder.embedding.position.weight",
        ("bert.embeddings.position_embeddings.weight",),
        # A text of one segment has type 0 everywhere, whose vector is added to every position.
        added="bert.embeddings.token_type_embeddings.weight",
    ),
    *_same("encoder.embedding.norm", "bert.embeddings.LayerNorm"),
    *(
        WeightRule(
            f"{_ENCODER_LAYER}.self.qkv.{w}",
            tuple(f"{_BERT_LAYER}.attention.self.{part}.{w}" for part in ("query", "key", "value")),
        )
        for w in ("weight", "bias")
    ),
    *_same(f"{_ENCODER_LAYER}.self.out", f"{_BERT_LAYER}.attention.output.dense"),
    *_same(f"{_ENCODER_LAYER}.around_self.norm", f"{_BERT_LAYER}.attention.output.LayerNorm"),
    *_same(f"{_ENCODER_LAYER}.feedforward.widen", f"{_BERT_LAYER}.intermediate.dense"),
    *_same(f"{_ENCODER_LAYER}.feedforward.narrow", f"{_BERT_LAYER}.output.dense"),
    *_same(f"{_ENCODER_LAYER}.around_feedforward.norm", f"{_BERT_LAYER}.output.LayerNorm"),
    *_same("head.dense", f"{_BERT_HEAD}.transform.dense"),
    *_same("head.norm", f"{_BERT_HEAD}.transform.LayerNorm"),
    WeightRule("output.weight", (f"{_BERT_HEAD}.decoder.weight",)),
    WeightRule("output.bias", (f"{_BERT_HEAD}.bias",)),
)
"""Hugging Face's BertForMaskedLM, as a `MaskedLanguageModel` whose embedding has a norm."""


_OUR_LAYER, _BERT_LAYER = "encoder.layers.{n}", "bert.encoder.layer.{n}"

BERT_CLASSIFIER = (
    WeightRule("encoder.embedding.weight", ("bert.embeddings.word_embeddings.weight",)),
    WeightRule("encoder.embedding.position.weight", ("bert.embeddings.position_embeddings.weight",)),
    *_same("encoder.embedding.norm", "bert.embeddings.LayerNorm"),
    *(
        WeightRule(
            f"{_OUR_LAYER}.self.qkv.{weight}",
            tuple(f"{_BERT_LAYER}.attention.self.{part}.{weight}" for part in ("query", "key", "value")),
        )
        for weight in ("weight", "bias")
    ),
    *_same(f"{_OUR_LAYER}.self.out", f"{_BERT_LAYER}.attention.output.dense"),
    *_same(f"{_OUR_LAYER}.around_self.norm", f"{_BERT_LAYER}.attention.output.LayerNorm"),
    *_same(f"{_OUR_LAYER}.feedforward.widen", f"{_BERT_LAYER}.intermediate.dense"),
    *_same(f"{_OUR_LAYER}.feedforward.narrow", f"{_BERT_LAYER}.output.dense"),
    *_same(f"{_OUR_LAYER}.around_feedforward.norm", f"{_BERT_LAYER}.output.LayerNorm"),
    *_same("pooling.dense", "bert.pooler.dense"),
    *_same("output", "classifier"),
)
"""Hugging Face's BertForSequenceClassification, as a `Classifier` of single texts: see `fold_token_types`."""


_VIT_LAYER = "vit.layers.{n}"

VIT_CLASSIFIER = (
    WeightRule("encoder.embedding.class_token", ("vit.embeddings.cls_token",)),
    WeightRule("encoder.embedding.position.weight", ("vit.embeddings.position_embeddings",)),
    *_same("encoder.embedding.projection", "vit.embeddings.patch_embeddings.projection"),
    *_merged(f"{_OUR_LAYER}.self", f"{_VIT_LAYER}.attention", "qkv", "qkv"),
    *_same(f"{_OUR_LAYER}.self.out", f"{_VIT_LAYER}.attention.o_proj"),
    *_same(f"{_OUR_LAYER}.around_self.norm", f"{_VIT_LAYER}.layernorm_before"),
    *_same(f"{_OUR_LAYER}.feedforward.widen", f"{_VIT_LAYER}.mlp.fc1"),
    *_same(f"{_OUR_LAYER}.feedforward.narrow", f"{_VIT_LAYER}.mlp.fc2"),
    *_same(f"{_OUR_LAYER}.around_feedforward.norm", f"{_VIT_LAYER}.layernorm_after"),
    *_same("encoder.norm", "vit.layernorm"),
    *_same("output", "classifier"),
)
"""Hugging Face's ViTForImageClassification, as a `VisionTransformer` with a class token and learned positions. Its
convolution over patches is our linear layer; exported weights are to be given the shapes of theirs."""


def fold_token_types(theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return BERT's weights with the vector of token type 0, which all tokens of a single text have, in its positions.

    BERT adds the vectors of a token, its position and its type, so the sum stays the same.
    """
    position, types = (f"bert.embeddings.{name}_embeddings.weight" for name in ("position", "token_type"))
    return {**theirs, position: theirs[position] + theirs[types][0], types: torch.zeros_like(theirs[types])}


def import_weights(model: nn.Module, rules: tuple[WeightRule, ...], theirs: Mapping[str, Tensor]) -> None:
    """Copy their weights into our model.

    Raises:
        ValueError: A weight of ours has no counterpart, or one of another shape.
    """
    ours = dict(model.named_parameters(remove_duplicate=False))
    matched = _match(rules, ours)
    if missing := sorted(ours.keys() - matched.keys()):
        raise ValueError(f"no weights of theirs correspond to {missing[:3]}; build the model with their settings")
    with torch.no_grad():
        for name, rule in matched.items():
            if absent := [part for part in (*rule.theirs, *filter(None, [rule.added])) if part not in theirs]:
                raise ValueError(f"'{name}' consists of {absent}, which are missing from their weights")
            parts = [theirs[part].t() if rule.transposed else theirs[part] for part in rule.theirs]
            weight = torch.cat([part[rule.skip :].reshape(-1, *ours[name].shape[1:]) for part in parts])
            if rule.added:
                weight = weight + theirs[rule.added][0]
            if weight.shape != ours[name].shape:
                raise ValueError(
                    f"'{name}' has shape {tuple(ours[name].shape)} in our model and {tuple(weight.shape)} in theirs; "
                    "build the model with their settings"
                )
            ours[name].copy_(weight)


def export_weights(model: nn.Module, rules: tuple[WeightRule, ...]) -> dict[str, Tensor]:
    """Return our weights under their names; rows of theirs without a counterpart are zero."""
    ours = dict(model.named_parameters(remove_duplicate=False))
    theirs = {}
    for name, rule in _match(rules, ours).items():
        for part, weight in zip(rule.theirs, ours[name].detach().chunk(len(rule.theirs)), strict=True):
            padded = torch.cat([weight.new_zeros(rule.skip, *weight.shape[1:]), weight])
            theirs[part] = padded.t().contiguous() if rule.transposed else padded
    return theirs


def _match(rules: tuple[WeightRule, ...], ours: Mapping[str, Tensor]) -> dict[str, WeightRule]:
    """Return the rule for each weight of ours that has one, with the number of its layer filled in."""
    matched = {}
    for rule in rules:
        pattern = re.compile(re.escape(rule.ours).replace(r"\{n\}", r"(?P<n>\d+)"))
        for name in ours:
            if match := pattern.fullmatch(name):
                matched[name] = replace(
                    rule, ours=name, theirs=tuple(part.format(**match.groupdict()) for part in rule.theirs)
                )
    return matched
