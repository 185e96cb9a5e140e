"""The contenders of `bench/decode.py`: ours, Hugging Face's `generate` and CTranslate2, all with the same weights."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from regard import decode, engines
from regard.engines.parts import transformer_parts
from regard.models.build import build
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Stack
from regard.models.weight_map import MARIAN, WeightRule, export_weights
from regard.nn.position import SinusoidalPositions
from regard.nn.ragged import Ragged
from regard.recipe import Transformer
from regard.tasks import load_bundle
from regard.text import END, PAD, START

SIZES = {
    "small": Transformer(size="small", norm_first=False),
    "base": Transformer(size="base", norm_first=False),
    "big": Transformer(size="big", norm_first=False),
}
POSITIONS = 512  # rows of the position tables of the peers

Batch = list[list[int]]
Translate = Callable[[Sequence[Batch], int, bool], int]
"""Translates batches with a beam width, one sentence at a time or not; returns the number of generated tokens."""


@dataclass(frozen=True)
class Setting:
    """The model and the machine, the same for all contenders."""

    size: str
    vocabulary: int
    run: str | None
    device: str
    workers: int
    seed: int = 0

    @property
    def fixed(self) -> bool:
        """Whether the output is as long as the source."""
        return self.run is None

    def model(self) -> Seq2Seq:
        """Return the model, which is the same in every process."""
        if self.run is not None:
            model: Seq2Seq = load_bundle(Path(self.run)).model
            return model.eval().requires_grad_(False)
        torch.manual_seed(self.seed)
        sizes = SIZES[self.size]
        model = build(sizes, self.vocabulary, self.vocabulary)
        for stack in (model.encoder, model.decoder):  # Marian has all sines before all cosines
            assert isinstance(stack, Stack)
            stack.embedding.position = SinusoidalPositions(sizes.width, halves=True)
        model.output.bias = torch.nn.Parameter(torch.zeros(self.vocabulary))  # and a bias for each token
        return model.eval().requires_grad_(False)

    def most(self, batch: Batch) -> int:
        """Return the most output tokens of a batch, including the end."""
        longest = max(len(ids) for ids in batch)
        return longest if self.fixed else 2 * longest + 10


# Ours


def regard(setting: Setting, precision: engines.Precision) -> Translate:
    """Return a translator with an engine and workers of one thread each.

    A sentence is finished when as many hypotheses have ended as the beam is wide, as in CTranslate2. By default, ours
    continues until no hypothesis can still win, which takes more steps.
    """
    engine = engines.engine(setting.model(), setting.device, precision)
    torch.set_num_threads(setting.workers)

    def translate_batch(batch: Batch, beam: int) -> int:
        most = setting.most(batch) - 1
        limits = decode.LengthLimits(minimum=most if setting.fixed else 0, maximum=most)
        options = decode.SearchOptions(begin=START, end=END, beam=beam, stopping="full", limits=limits)
        with torch.inference_mode():
            state = engine.start(Ragged.from_list(batch).to(setting.device), beam)
            requests = [decode.SentenceOptions(source_length=len(ids)) for ids in batch]
            hypotheses = decode.search(engine, state, requests, options, setting.device)
        return sum(len(ranked[0].tokens) + 1 for ranked in hypotheses)

    def translate(batches: Sequence[Batch], beam: int, alone: bool) -> int:
        workers = 1 if setting.device != "cpu" else setting.workers
        return sum(engines.parallel(lambda batch: translate_batch(batch, beam), batches, workers))

    return translate


# Hugging Face


def hugging_face(setting: Setting, precision: str) -> Translate:
    """Return a translator with the weights in Marian (post-norm), or in mBART without its extra norms (pre-norm)."""
    model = hf_model(setting.model()).to(setting.device, getattr(torch, precision)).eval()
    torch.set_num_threads(setting.workers)

    def translate_batch(batch: Batch, beam: int) -> int:
        padded = Ragged.from_list(batch).to_padded(PAD).to(setting.device)
        most = setting.most(batch)
        least = {"min_new_tokens": most} if setting.fixed else {}
        with torch.inference_mode():
            output = model.generate(
                padded, attention_mask=padded != PAD, num_beams=beam, do_sample=False, max_new_tokens=most, **least
            )
        return int((output[:, 1:] != PAD).sum())

    return lambda batches, beam, alone: sum(translate_batch(batch, beam) for batch in batches)


def hf_model(model: Seq2Seq) -> Any:
    """Return a Hugging Face model with our weights."""
    import transformers

    parts = transformer_parts(model)
    assert parts is not None, "only Transformers of the usual kind have a counterpart"
    assert isinstance(parts.encoder, Stack), "the peers have an encoder of this kind"
    block, first = parts.decoder.blocks[0], parts.encoder.blocks[0].around_self.norm_first
    width, vocabulary = parts.output.weight.shape[1], parts.output.weight.shape[0]
    sizes: dict[str, Any] = {}
    for side, stack in (("encoder", parts.encoder), ("decoder", parts.decoder)):
        sizes |= {f"{side}_layers": len(stack.layers), f"{side}_attention_heads": block.self.heads}
        sizes[f"{side}_ffn_dim"] = block.feedforward.narrow.in_features
    names = {functional.relu: "relu", functional.gelu: "gelu", functional.silu: "silu"}
    ids = {"pad_token_id": PAD, "eos_token_id": END, "bos_token_id": START, "decoder_start_token_id": START}
    kind = "MBart" if first else "Marian"
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=vocabulary, d_model=width, max_position_embeddings=POSITIONS, scale_embedding=True,
        activation_function=names[block.feedforward.activation], forced_eos_token_id=None, **sizes, **ids,
    )  # fmt: skip
    theirs = getattr(transformers, "MBartForConditionalGeneration" if first else "MarianMTModel")(config)
    theirs.generation_config.bad_words_ids = None
    ends = [f"{side}.norm.{name}" for side in ("encoder", "decoder") for name in ("weight", "bias")]
    last = [WeightRule(end, (f"model.{end.replace('norm', 'layer_norm')}",)) for end in ends if first]
    weights = export_weights(model, (*MARIAN, *last))
    theirs.final_logits_bias.zero_()
    if parts.output.bias is not None:
        weights["final_logits_bias"] = weights["final_logits_bias"][None]
    theirs.load_state_dict(weights, strict=False)
    for side, stack in (("encoder", parts.encoder), ("decoder", parts.decoder)):
        their_side = getattr(theirs.model, side)
        if first:
            their_side.layernorm_embedding = torch.nn.Identity()
        position = stack.embedding.position
        assert position is not None, "the peers add positions to embeddings"
        table = position(torch.arange(POSITIONS), stack.embedding.weight)
        their_side.embed_positions.weight.data[-POSITIONS:] = table
    return theirs


# CTranslate2


def ctranslate2(setting: Setting, precision: str) -> Translate:
    """Return a translator with the weights converted; CTranslate2 merges projections in the same layout as ours."""
    import ctranslate2 as theirs

    model = setting.model()
    names = ct2_names(model.output.weight.shape[0])
    with tempfile.TemporaryDirectory() as folder:
        ct2_convert(model, folder, precision)
        shared: dict[str, Any] = {"device": setting.device, "compute_type": precision}
        many = theirs.Translator(folder, inter_threads=setting.workers, intra_threads=1, **shared)
        alone_threads = 1 if precision == "int8" else setting.workers
        single = theirs.Translator(folder, inter_threads=1, intra_threads=alone_threads, **shared)

    def translate(batches: Sequence[Batch], beam: int, alone: bool) -> int:
        pending = []
        for batch in batches:
            most = setting.most(batch)
            pending.append(
                (single if alone else many).translate_batch(
                    [[names[number] for number in ids] for ids in batch],
                    beam_size=beam,
                    max_decoding_length=most,
                    min_decoding_length=most if setting.fixed else 1,
                    asynchronous=True,
                    max_batch_size=len(batch),
                    return_end_token=True,
                )
            )
        return sum(len(result.result().hypotheses[0]) for results in pending for result in results)

    return translate


def ct2_names(vocabulary: int) -> list[str]:
    """Return the name of each id in CTranslate2."""
    return ["<blank>", "<unk>", "<s>", "</s>", *(str(i) for i in range(4, vocabulary))]


def ct2_convert(model: Seq2Seq, folder: str, precision: str) -> None:
    """Write a model in the format of CTranslate2."""
    from ctranslate2.specs import TransformerSpec, common_spec

    parts = transformer_parts(model)
    assert parts is not None, "only Transformers of the usual kind have a counterpart"
    assert isinstance(parts.encoder, Stack), "the peers have an encoder of this kind"
    block, first = parts.decoder.blocks[0], parts.encoder.blocks[0].around_self.norm_first
    kinds = {functional.relu: "RELU", functional.gelu: "GELU", functional.silu: "SWISH"}
    spec = TransformerSpec.from_config(
        (len(parts.encoder.layers), len(parts.decoder.layers)),
        block.self.heads,
        pre_norm=first,
        activation=getattr(common_spec.Activation, kinds[block.feedforward.activation]),
    )

    def fill(theirs: Any, ours: Any, names: tuple[str, str] = ("weight", "bias")) -> None:
        for name, weight in zip(names, (ours.weight, ours.bias), strict=True):
            if weight is not None:
                setattr(theirs, name, weight.detach().numpy())

    for side, stack in ((spec.encoder, parts.encoder), (spec.decoder, parts.decoder)):
        embedding = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        embedding.weight = stack.embedding.weight.detach().numpy()
        assert stack.embedding.position is not None, "the peers add positions to embeddings"
        table = stack.embedding.position(torch.arange(POSITIONS), stack.embedding.weight)
        side.position_encodings.encodings = table.detach().numpy()
        if first:
            fill(side.layer_norm, stack.norm, ("gamma", "beta"))
        for theirs, ours in zip(side.layer, stack.blocks, strict=True):
            attentions: list[tuple[Any, Any, tuple[torch.nn.Linear, ...]]] = [
                (theirs.self_attention, ours.around_self, (ours.self.qkv, ours.self.out))
            ]
            if ours.cross is not None:
                attentions.append(
                    (theirs.attention, ours.around_cross, (ours.cross.query, ours.cross.kv, ours.cross.out))
                )
            for attention, around, linears in attentions:
                fill(attention.layer_norm, around.norm, ("gamma", "beta"))
                for their_linear, our_linear in zip(attention.linear, linears, strict=True):
                    fill(their_linear, our_linear)
            fill(theirs.ffn.layer_norm, ours.around_feedforward.norm, ("gamma", "beta"))
            fill(theirs.ffn.linear_0, ours.feedforward.widen)
            fill(theirs.ffn.linear_1, ours.feedforward.narrow)
    fill(spec.decoder.projection, parts.output)
    names = ct2_names(parts.output.weight.shape[0])
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.add_source_eos = False  # our sources already have it
    spec.validate()
    spec.optimize(quantization=precision)
    spec.save(folder)
