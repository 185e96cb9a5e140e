"""Which weight of ours is which of theirs: one table a foreign family, read in both directions.

Our merged projections are theirs laid one upon the other. `{n}` stands for the number of a layer.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Rule:
    """A weight of ours, and the weights of theirs that make it, row upon row."""

    ours: str
    theirs: tuple[str, ...]
    skip: int = 0
    """Rows of theirs that mean nothing to us."""


def _attention(ours: str, theirs: str, merged: str, parts: str) -> list[Rule]:
    """A merged projection and its parts, `q`, `k` and `v`, with weight and bias."""
    return [Rule(f"{ours}.{merged}.{w}", tuple(f"{theirs}.{p}_proj.{w}" for p in parts)) for w in ("weight", "bias")]


def _same(ours: str, theirs: str) -> list[Rule]:
    """A layer that is the same on both sides, with weight and bias."""
    return [Rule(f"{ours}.{w}", (f"{theirs}.{w}",)) for w in ("weight", "bias")]


def _side(side: str) -> list[Rule]:
    """What encoder and decoder have in common."""
    ours, theirs = f"{side}.layers.{{n}}", f"model.{side}.layers.{{n}}"
    return [
        Rule(f"{side}.embedding.weight", ("model.shared.weight",)),
        *_attention(f"{ours}.self", f"{theirs}.self_attn", "qkv", "qkv"),
        *_same(f"{ours}.self.out", f"{theirs}.self_attn.out_proj"),
        *_same(f"{ours}.around_self.norm", f"{theirs}.self_attn_layer_norm"),
        *_same(f"{ours}.feedforward.widen", f"{theirs}.fc1"),
        *_same(f"{ours}.feedforward.narrow", f"{theirs}.fc2"),
        *_same(f"{ours}.around_feedforward.norm", f"{theirs}.final_layer_norm"),
    ]


_CROSS, _THEIR_CROSS = "decoder.layers.{n}", "model.decoder.layers.{n}.encoder_attn"

MARIAN = (
    *_side("encoder"),
    *_side("decoder"),
    *_attention(f"{_CROSS}.cross", _THEIR_CROSS, "query", "q"),
    *_attention(f"{_CROSS}.cross", _THEIR_CROSS, "kv", "kv"),
    *_same(f"{_CROSS}.cross.out", f"{_THEIR_CROSS}.out_proj"),
    *_same(f"{_CROSS}.around_cross.norm", f"{_THEIR_CROSS}_layer_norm"),
    Rule("output.weight", ("lm_head.weight",)),
    Rule("output.bias", ("final_logits_bias",)),
)
"""Hugging Face's MarianMTModel; its positions are `sinusoidal-halves`, which have no weights."""

BART = (
    *MARIAN,
    *(
        rule
        for side in ("encoder", "decoder")
        for rule in (
            # Two rows of theirs are left from fairseq, where positions were counted from the padding's id.
            Rule(f"{side}.embedding.position.weight", (f"model.{side}.embed_positions.weight",), skip=2),
            *_same(f"{side}.embedding.norm", f"model.{side}.layernorm_embedding"),
        )
    ),
)
"""Hugging Face's BartForConditionalGeneration."""


def import_weights(model: nn.Module, rules: tuple[Rule, ...], theirs: Mapping[str, Tensor]) -> None:
    """Copy their weights into our model; every weight of ours must be found among theirs, in its shape."""
    ours = dict(model.named_parameters(remove_duplicate=False))
    found = _match(rules, ours)
    if missing := sorted(ours.keys() - found.keys()):
        raise ValueError(f"nothing of theirs makes {missing[:3]}; is the model outlined as theirs is?")
    with torch.no_grad():
        for name, rule in found.items():
            if absent := [each for each in rule.theirs if each not in theirs]:
                raise ValueError(f"'{name}' is made of {absent}, which their weights have not")
            made = torch.cat([theirs[each][rule.skip :].reshape(-1, *ours[name].shape[1:]) for each in rule.theirs])
            if made.shape != ours[name].shape:
                raise ValueError(f"'{name}' is {tuple(ours[name].shape)} here and {tuple(made.shape)} there")
            ours[name].copy_(made)


def export_weights(model: nn.Module, rules: tuple[Rule, ...]) -> dict[str, Tensor]:
    """Our weights under their names; rows of theirs that mean nothing to us come out as zero."""
    ours = dict(model.named_parameters(remove_duplicate=False))
    theirs = {}
    for name, rule in _match(rules, ours).items():
        for part, each in zip(ours[name].detach().chunk(len(rule.theirs)), rule.theirs, strict=True):
            theirs[each] = torch.cat([part.new_zeros(rule.skip, *part.shape[1:]), part])
    return theirs


def _match(rules: tuple[Rule, ...], ours: Mapping[str, Tensor]) -> dict[str, Rule]:
    """The rule for each weight of ours that has one, its layer's number filled in."""
    return {name: rule for each in rules for name, rule in _filled(each, ours)}


def _filled(rule: Rule, ours: Mapping[str, Tensor]) -> Iterator[tuple[str, Rule]]:
    """A rule for each layer it speaks of."""
    shape = re.compile(re.escape(rule.ours).replace(r"\{n\}", r"(\d+)"))
    for name in ours:
        if found := shape.fullmatch(name):
            number = found[1] if found.groups() else ""
            yield name, Rule(name, tuple(each.format(n=number) for each in rule.theirs), rule.skip)
