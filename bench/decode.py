"""Translating: ours beside Hugging Face's `generate` and CTranslate2, on the same weights and sentences, in one run.

    python bench/decode.py                                       # random weights, output as long as the source
    python bench/decode.py --source test.en --sentences 1000 --rounds 5
    python bench/decode.py --run runs/mine --source test.en      # a trained model: text of mixed length, real endings
    python bench/decode.py --device cuda                         # 32,000 tokens, 30 to read and exactly 30 to write

Everybody is a process of its own, so that nobody's memory or threads are another's; they work in turns, round after
round, and the best round counts, since a busy machine only ever takes time. CTranslate2 is measured as it comes and
with AVX512 forced. Random weights have no use for an end, so output lengths are fixed there and sentences are grouped
by exact length; a trained model ends where it ends.
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from regard import decode
from regard.bundle import load_bundle
from regard.data.phrasebook import phrases
from regard.files import read_lines
from regard.models import fast
from regard.models.fast.parts import blocks_of, stacks_of
from regard.models.outline import Outline
from regard.models.seq2seq import Seq2Seq
from regard.models.weight_map import MARIAN, Rule, export_weights
from regard.nn.ragged import Ragged
from regard.text.settings import END, PAD, START

SIZES = {"small": Outline(256, 1024, 4, 3, 3), "base": Outline(), "big": Outline(1024, 4096, 16)}
CPU = "regard-float32,regard-bfloat16,regard-int8,hf-float32,hf-bfloat16,ct2-float32,ct2-int8,ct2x-float32,ct2x-int8"
CUDA = "regard-bfloat16,hf-bfloat16"
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
    """An engine, its search, and workers of one thread each."""
    engine = fast.engine(setting.model(), setting.device, precision)
    torch.set_num_threads(setting.workers)

    def one(batch: Batch, beam: int) -> int:
        most = setting.most(batch) - 1
        limits = decode.Limits(least=most if setting.fixed else 0, most=most)
        options = decode.Options(START, END, beam=beam, limits=limits)
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


# A process for each, in turns.


def serve(connection: Connection, name: str, setting: Setting) -> None:
    """Do what is asked until nothing more is: batches, beam and whether alone in; seconds and tokens out."""
    who, precision = name.split("-")
    if who == "ct2x":
        os.environ["CT2_FORCE_CPU_ISA"] = "AVX512"
    makers: dict[str, Callable[..., Translate]] = {"regard": regard, "hf": hugging_face, "ct2": ctranslate2}
    try:
        translate = makers[who.rstrip("x")](setting, precision)
        connection.send(None)
        while (asked := connection.recv()) is not None:
            batches, beam, alone = asked
            seconds, busy, tokens = [], time.process_time(), 0
            for each in [[batch] for batch in batches] if alone else [batches]:
                begin = time.perf_counter()
                tokens += translate(each, beam, alone)
                seconds.append(time.perf_counter() - begin)
            connection.send((seconds, time.process_time() - busy, tokens, peak(setting.device)))
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")


def peak(device: str) -> float:
    """The most memory this process ever had, in GB."""
    if device != "cpu":
        return torch.cuda.max_memory_allocated() / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


class Contender:
    """A process that translates, and what it took."""

    def __init__(self, name: str, setting: Setting) -> None:
        """Start it, and wait until its model is ready."""
        self.name, self.rounds = name, defaultdict[str, list[tuple[list[float], float, int]]](list)
        self.memory = 0.0
        context = multiprocessing.get_context("spawn")
        self.connection, there = context.Pipe()
        self.process = context.Process(target=serve, args=(there, name, setting), daemon=True)
        self.process.start()
        there.close()
        self.failure: str | None = self._receive()

    def work(self, task: str, batches: Sequence[Batch], beam: int, alone: bool) -> None:
        """Translate, and note what it took; an empty task is warming up."""
        if self.failure is not None:
            return
        self.connection.send((batches, beam, alone))
        answer = self._receive()
        if isinstance(answer, str):
            self.failure = answer
            return
        seconds, busy, tokens, self.memory = answer
        if task:
            self.rounds[task].append((seconds, busy, tokens))

    def _receive(self) -> Any:
        try:
            return self.connection.recv()
        except EOFError:
            return "its process died"

    def end(self) -> None:
        """Let the process go."""
        if self.failure is None:
            with suppress(OSError):  # who presses Ctrl-C stops everybody at once
                self.connection.send(None)
        self.process.join(10)

    def result(self, sentences: int) -> dict[str, Any]:
        """The best round of each task, as rates; latencies over all rounds."""
        if self.failure is not None:
            return {"failure": self.failure}
        found: dict[str, Any] = {"memory_gb": round(self.memory, 2)}
        for task, rounds in self.rounds.items():
            if task.startswith("latency"):
                every = sorted(1e3 * each for seconds, _, _ in rounds for each in seconds)
                found[task] = {"p50_ms": statistics.median(every), "p95_ms": every[round(0.95 * (len(every) - 1))]}
            else:
                seconds, _, tokens = min(rounds, key=lambda one: one[0][0])
                found[task] = {
                    "sentences_per_second": sentences / seconds[0],
                    "tokens_per_second": tokens / seconds[0],
                    "sentences_per_processor_second": sentences / min(one[1] for one in rounds),
                }
        return found


# What is translated.


def sentences(arguments: argparse.Namespace) -> list[list[int]]:
    """Ids of the sentences: a trained model's own, or random ones, as many as a line has words and one for the end."""
    if arguments.length is not None:
        shape = arguments.sentences, arguments.length
        drawn = np.random.default_rng(2).integers(4, arguments.vocabulary, shape).tolist()
        return [[*ids[:-1], END] for ids in drawn]
    if arguments.source is None:
        dice = random.Random(1)
        lines = [phrase.source for phrase in phrases("de", "train", arguments.sentences, seed=dice.randrange(99))]
    else:
        every = (line for block in read_lines(Path(arguments.source)) for line in block)
        lines = list(islice(every, arguments.sentences))
    if arguments.run is not None:
        tokenizer = load_bundle(Path(arguments.run)).tokenizers.source
        return [[*ids, END] for ids in map(tokenizer.encode, lines) if ids]
    numbers = np.random.default_rng(2)
    return [numbers.integers(4, arguments.vocabulary, len(line.split()) + 1).tolist() for line in lines if line.split()]


def batched(every: list[list[int]], most: int, fixed: bool) -> Iterator[Batch]:
    """Batches of like length, the longest first; of exactly one length where that is what the output gets."""
    batch: Batch = []
    for ids in sorted(every, key=len, reverse=True):
        if batch and (len(batch) == most or (fixed and len(ids) != len(batch[0]))):
            yield batch
            batch = []
        batch.append(ids)
    if batch:
        yield batch


def parse() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--size", default="base", choices=SIZES)
    parser.add_argument("--vocabulary", type=int, help="tokens; 10,000 unless told, 32,000 on CUDA")
    parser.add_argument("--run", help="a trained bundle, for text of mixed length with real endings")
    parser.add_argument("--source", help="a file of sentences; the phrasebook's unless told")
    parser.add_argument("--length", type=int, help="random sentences of so many tokens; on CUDA 30 unless told")
    parser.add_argument("--sentences", type=int, help="200 unless told, 1,024 on CUDA")
    parser.add_argument("--latencies", type=int, default=20, help="sentences translated one by one")
    parser.add_argument("--batch", help="sentences side by side at most, a list; 32 unless told, 1024,256 on CUDA")
    parser.add_argument("--beams", default="1,5")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help=f"contenders, of {CPU}")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    on_cuda = asked.device == "cuda"
    defaults = {"batch": ("32", "1024,256"), "vocabulary": (10_000, 32_000), "sentences": (200, 1024)}
    for name, pair in defaults.items():
        if getattr(asked, name) is None:
            setattr(asked, name, pair[on_cuda])
    if on_cuda and asked.length is None and asked.run is None and asked.source is None:
        asked.length = 30
    return asked


Work = dict[str, tuple[list[Batch], int]]
"""What there is to do: batches and a beam under the name of a task."""


def planned(asked: argparse.Namespace, every: list[list[int]], fixed: bool) -> Work:
    """Every batch size with every beam, and sentences one by one."""
    plan: Work = {}
    for beam in map(int, asked.beams.split(",")):
        for most in map(int, asked.batch.split(",")):
            plan[f"beam {beam} batch {most}"] = list(batched(every, most, fixed)), beam
        plan[f"latency {beam}"] = [[ids] for ids in every[: asked.latencies]], beam
    return plan


def take_turns(contenders: list[Contender], number: int, asked: argparse.Namespace, plan: Work) -> None:
    """One round; the first, number 0, only warms up."""
    few = number == 0 and asked.device == "cpu"
    for task, (batches, beam) in plan.items():
        for each in contenders:
            print(f"\rround {number} of {asked.rounds}, {task}: {each.name:<16}", end="", file=sys.stderr)
            alone = task.startswith("latency")
            each.work(task if number else "", batches[:2] if few else batches, beam, alone)


def main() -> None:
    """Everybody in turns, round after round, and a table."""
    asked = parse()
    setting = Setting(asked.size, asked.vocabulary, asked.run, asked.device, asked.workers)
    every = sentences(asked)
    plan = planned(asked, every, setting.fixed)
    names = (asked.only or (CPU if asked.device == "cpu" else CUDA)).split(",")
    contenders = [Contender(name, setting) for name in names]
    try:
        for number in range(asked.rounds + 1):
            take_turns(contenders, number, asked, plan)
    except KeyboardInterrupt:
        print("\nstopped; what whole rounds found:", file=sys.stderr)
    print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
    found = {each.name: each.result(len(every)) for each in contenders}
    for each in contenders:
        each.end()
    tokens = sum(len(ids) for ids in every)
    facts = {"sentences": len(every), "source_tokens": tokens, **vars(asked)}
    print(json.dumps(facts | {"found": found}) if asked.json else table(found, plan, facts))


def table(found: dict[str, Any], plan: Work, facts: dict[str, Any]) -> str:
    """A table for each task, a line for each contender."""
    lines = [f"{facts['sentences']} sentences, {facts['source_tokens']} source tokens, {facts['device']}"]
    for task in plan:
        columns = ("p50 ms", "p95 ms") if task.startswith("latency") else ("sent/s", "tok/s", "sent/cpu-s")
        lines.append(f"\n{task:<18}" + "".join(f"{column:>12}" for column in columns))
        for name, each in found.items():
            if task in each:
                lines.append(f"{name:<18}" + "".join(f"{value:12.1f}" for value in each[task].values()))
    lines.append("\nmemory, GB: " + ", ".join(f"{name} {each.get('memory_gb', '–')}" for name, each in found.items()))
    return "\n".join([*lines, *(f"{name}: {each['failure']}" for name, each in found.items() if "failure" in each)])


if __name__ == "__main__":
    main()
