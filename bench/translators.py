"""Who translates in `bench/decode.py`: ours, Hugging Face's `generate` and CTranslate2, all with the same weights."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from regard import decode
from regard.bundle import load_bundle
from regard.models import fast
from regard.models.fast.parts import blocks_of, stacks_of
from regard.models.outline import Outline
from regard.models.seq2seq import Seq2Seq
from regard.models.weight_map import MARIAN, Rule, export_weights
from regard.nn.ragged import Ragged
from regard.text.settings import END, PAD, START

SIZES = {"small": Outline(256, 1024, 4, 3, 3), "base": Outline(), "big": Outline(1024, 4096, 16)}
POSITIONS = 512  # of tables that others keep

Batch = list[list[int]]
Translate = Callable[[Sequence[Batch], int, bool], int]
"""Batches, the beam, and whether one sentence comes at a time; says how many tokens it wrote."""


@dataclass(frozen=True)
class Setting:
    """What everybody must know."""

    size: str
    vocabulary: int
    run: str | None
    device: str
    workers: int
    seed: int = 0

    @property
    def fixed(self) -> bool:
        """Whether output is as long as the source."""
        return self.run is None

    def model(self) -> Seq2Seq:
        """The model everybody has, the same in every process."""
        if self.run is not None:
            return load_bundle(Path(self.run)).model.eval().requires_grad_(False)
        torch.manual_seed(self.seed)
        told = asdict(SIZES[self.size]) | {"norm_first": False, "position": "sinusoidal-halves", "output_bias": True}
        return Outline(**told).seq2seq(self.vocabulary, self.vocabulary).eval().requires_grad_(False)

    def most(self, batch: Batch) -> int:
        """Tokens of output at most, the end among them."""
        longest = max(len(ids) for ids in batch)
        return longest if self.fixed else 2 * longest + 10


# Ours.


def regard(setting: Setting, precision: fast.Precision) -> Translate:
    """An engine, its search, and workers of one thread each.

    A sentence is done when as many hypotheses have ended as the beam is wide, which is CTranslate2's rule too. Unless
    told, ours goes on until none can still win, which takes more steps.
    """
    engine = fast.engine(setting.model(), setting.device, precision)
    torch.set_num_threads(setting.workers)

    def one(batch: Batch, beam: int) -> int:
        most = setting.most(batch) - 1
        limits = decode.Limits(least=most if setting.fixed else 0, most=most)
        options = decode.Options(START, END, beam=beam, stopping="full", limits=limits)
        with torch.inference_mode():
            state = engine.start(Ragged.from_list(batch).to(setting.device), beam)
            wishes = [decode.Wish(source=len(ids)) for ids in batch]
            hypotheses = decode.search(engine, state, wishes, options, setting.device)
        return sum(len(each[0].tokens) + 1 for each in hypotheses)

    def translate(batches: Sequence[Batch], beam: int, alone: bool) -> int:
        workers = 1 if setting.device != "cpu" else setting.workers
        return sum(fast.parallel(lambda batch: one(batch, beam), batches, workers))

    return translate


# Hugging Face's.


def hugging_face(setting: Setting, precision: str) -> Translate:
    """The same weights in Marian, which normalises after, or in mBART without its extra norms, which does before."""
    model = hf_model(setting.model()).to(setting.device, getattr(torch, precision)).eval()
    torch.set_num_threads(setting.workers)

    def one(batch: Batch, beam: int) -> int:
        padded = Ragged.from_list(batch).to_padded(PAD).to(setting.device)
        most = setting.most(batch)
        least = {"min_new_tokens": most} if setting.fixed else {}
        with torch.inference_mode():
            said = model.generate(
                padded, attention_mask=padded != PAD, num_beams=beam, do_sample=False, max_new_tokens=most, **least
            )
        return int((said[:, 1:] != PAD).sum())

    return lambda batches, beam, alone: sum(one(batch, beam) for batch in batches)


def hf_model(model: Seq2Seq) -> Any:
    """Their model with our weights."""
    import transformers

    stacks = stacks_of(model)
    assert stacks is not None, "only Transformers of the usual kind have a counterpart there"
    block, first = blocks_of(stacks.decoder)[0], blocks_of(stacks.encoder)[0].around_self.norm_first
    width, vocabulary = stacks.output.weight.shape[1], stacks.output.weight.shape[0]
    sizes: dict[str, Any] = {}
    for side, stack in (("encoder", stacks.encoder), ("decoder", stacks.decoder)):
        sizes |= {f"{side}_layers": len(stack.layers), f"{side}_attention_heads": block.self.heads}
        sizes[f"{side}_ffn_dim"] = block.feedforward.narrow.in_features
    names = {functional.relu: "relu", functional.gelu: "gelu", functional.silu: "silu"}
    ids = {"pad_token_id": PAD, "eos_token_id": END, "bos_token_id": START, "decoder_start_token_id": START}
    kind = "MBart" if first else "Marian"
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=vocabulary, d_model=width, max_position_embeddings=POSITIONS, scale_embedding=True,
        activation_function=names[block.feedforward.bend], forced_eos_token_id=None, **sizes, **ids,
    )  # fmt: skip
    theirs = getattr(transformers, "MBartForConditionalGeneration" if first else "MarianMTModel")(config)
    theirs.generation_config.bad_words_ids = None
    ends = [f"{side}.norm.{name}" for side in ("encoder", "decoder") for name in ("weight", "bias")]
    last = [Rule(end, (f"model.{end.replace('norm', 'layer_norm')}",)) for end in ends if first]
    weights = export_weights(model, (*MARIAN, *last))
    theirs.final_logits_bias.zero_()
    if stacks.output.bias is not None:
        weights["final_logits_bias"] = weights["final_logits_bias"][None]
    theirs.load_state_dict(weights, strict=False)
    for side, stack in (("encoder", stacks.encoder), ("decoder", stacks.decoder)):
        their_side = getattr(theirs.model, side)
        if first:
            their_side.layernorm_embedding = torch.nn.Identity()
        position = stack.embedding.position
        assert position is not None, "their models add positions"
        table = position(torch.arange(POSITIONS), stack.embedding.weight)
        their_side.embed_positions.weight.data[-POSITIONS:] = table
    return theirs


# CTranslate2's.


def ctranslate2(setting: Setting, precision: str) -> Translate:
    """The same weights in their format, by their own merged projections, which are laid out as ours are."""
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
        waiting = []
        for batch in batches:
            most = setting.most(batch)
            waiting.append(
                (single if alone else many).translate_batch(
                    [[names[each] for each in ids] for ids in batch],
                    beam_size=beam,
                    max_decoding_length=most,
                    min_decoding_length=most if setting.fixed else 1,
                    asynchronous=True,
                    max_batch_size=len(batch),
                    return_end_token=True,
                )
            )
        return sum(len(each.result().hypotheses[0]) for results in waiting for each in results)

    return translate


def ct2_names(vocabulary: int) -> list[str]:
    """What ids are called there."""
    return ["<blank>", "<unk>", "<s>", "</s>", *(str(i) for i in range(4, vocabulary))]


def ct2_convert(model: Seq2Seq, folder: str, precision: str) -> None:
    """Write a model as CTranslate2 reads it."""
    from ctranslate2.specs import TransformerSpec, common_spec

    stacks = stacks_of(model)
    assert stacks is not None, "only Transformers of the usual kind have a counterpart there"
    block, first = blocks_of(stacks.decoder)[0], blocks_of(stacks.encoder)[0].around_self.norm_first
    kinds = {functional.relu: "RELU", functional.gelu: "GELU", functional.silu: "SWISH"}
    spec = TransformerSpec.from_config(
        (len(stacks.encoder.layers), len(stacks.decoder.layers)),
        block.self.heads,
        pre_norm=first,
        activation=getattr(common_spec.Activation, kinds[block.feedforward.bend]),
    )

    def fill(theirs: Any, ours: Any, names: tuple[str, str] = ("weight", "bias")) -> None:
        for name, weight in zip(names, (ours.weight, ours.bias), strict=True):
            if weight is not None:
                setattr(theirs, name, weight.detach().numpy())

    for side, stack in ((spec.encoder, stacks.encoder), (spec.decoder, stacks.decoder)):
        embedding = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        embedding.weight = stack.embedding.weight.detach().numpy()
        assert stack.embedding.position is not None, "their models add positions"
        table = stack.embedding.position(torch.arange(POSITIONS), stack.embedding.weight)
        side.position_encodings.encodings = table.detach().numpy()
        if first:
            fill(side.layer_norm, stack.norm, ("gamma", "beta"))
        for theirs, ours in zip(side.layer, blocks_of(stack), strict=True):
            parts: list[tuple[Any, Any, tuple[torch.nn.Linear, ...]]] = [
                (theirs.self_attention, ours.around_self, (ours.self.qkv, ours.self.out))
            ]
            if ours.cross is not None:
                parts.append((theirs.attention, ours.around_cross, (ours.cross.query, ours.cross.kv, ours.cross.out)))
            for attention, around, linears in parts:
                fill(attention.layer_norm, around.norm, ("gamma", "beta"))
                for one, other in zip(attention.linear, linears, strict=True):
                    fill(one, other)
            fill(theirs.ffn.layer_norm, ours.around_feedforward.norm, ("gamma", "beta"))
            fill(theirs.ffn.linear_0, ours.feedforward.widen)
            fill(theirs.ffn.linear_1, ours.feedforward.narrow)
    fill(spec.decoder.projection, stacks.output)
    names = ct2_names(stacks.output.weight.shape[0])
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.add_source_eos = False  # our sources have theirs
    spec.validate()
    spec.optimize(quantization=precision)
    spec.save(folder)
