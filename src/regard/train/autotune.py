"""Choices that are made by trying some batches before training: batch size, CUDA graphs and compilation.

With `train.tokens = "auto"` the batch size is the largest that fits the memory of the device. On CUDA, `train.record`
and `train.compile` are chosen by timing: capturing a CUDA graph takes a second, compiling about a minute, and both make
every later step faster.
"""

import math
import os
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from regard.data.batch import Batch
from regard.data.batching import longest_sequence
from regard.data.rows import Rows, offsets_of
from regard.models.build import has_dynamic_shapes
from regard.nn.embedding import Embedding, OutputProjection
from regard.train.cuda_graphs import WARMUP, GraphRunner, PassResult
from regard.train.device import autocast
from regard.train.distributed import unwrap
from regard.train.optimiser import state_tensors
from regard.train.run_state import RunState
from regard.train.schedule import MIN_STEPS_PER_EPOCH
from regard.train.setup import TrainingSetup
from regard.train.speed import SpeedTrial
from regard.train.stream import StaticShape

MIN_TOKENS, MAX_CPU_TOKENS = 1024, 4096  # larger batches do not make training on a CPU faster
SAFETY = 0.9  # fraction of the largest batch that fits: later batches use memory a little differently
_ROUNDING = 128

TIMED = 5  # batches that are timed
OPTIONS: dict[str, str | int | bool | Callable[..., Any]] = {"comprehensive_padding": False}
"""For the compiler: logits stay contiguous, as the kernel of the loss needs them, and are not copied twice a step."""
WORTHWHILE, WORTHWHILE_WITH_GRAPHS = 100.0, 150.0
"""Seconds of remaining training from which compiling saves time. On an H200 it takes 50 seconds, and saves more than
half of the rest, or a third with CUDA graphs."""


def find_batch_size(setup: TrainingSetup) -> int:
    """Return the token budget of a batch for `train.tokens = "auto"`; the same in all processes."""
    group, settings = setup.group, setup.recipe.train
    if group.world_size > 1 and settings.sharding == "fsdp":
        raise ValueError(
            "train.tokens = 'auto' does not work with train.sharding = 'fsdp'; use a number, such as train.tokens=8192"
        )
    stores, task = setup.prepared.stores, setup.task
    smallest = max(MIN_TOKENS, *(longest_sequence(store, task) for store in stores))
    epoch = sum(task.tokens(store.lengths) for store in stores)
    largest = max(smallest, epoch // (MIN_STEPS_PER_EPOCH * group.world_size * settings.accumulate))
    if group.device.type == "cpu":
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        fitting = max(smallest, free // 4 // activation_bytes(setup.model, "float32"))
        tokens = min(largest, MAX_CPU_TOKENS, fitting)
    else:
        tokens = _search_batch_size(setup, smallest, largest)
    return group.minimum(max(smallest, tokens // _ROUNDING * _ROUNDING))


def _search_batch_size(setup: TrainingSetup, smallest: int, largest: int) -> int:
    """Double the batch size until a batch does not fit, then bisect."""
    state_tensors(setup.model, setup.optimisers)  # allocates the state of the optimisers, which needs memory too
    fitting, too_large = 0, largest + 1
    tokens = smallest
    with torch.random.fork_rng([setup.group.device]):
        while fitting < too_large - max(_ROUNDING, fitting // 16):
            if _fits(setup, tokens):
                fitting = tokens
            else:
                too_large = tokens
            tokens = min(2 * fitting, largest) if too_large > largest else (fitting + too_large) // 2
            if fitting == largest:
                return largest
            if too_large <= smallest:
                raise ValueError(
                    f"a batch of {smallest} tokens does not fit into the memory of {setup.group.device}; "
                    "lower data.longest, or use a smaller model"
                )
    return int(SAFETY * fitting)


def _fits(setup: TrainingSetup, tokens: int) -> bool:
    """Return whether forward and backward of a batch of the longest sequences fit into memory."""
    device = setup.group.device
    try:
        batch = _worst_case_batch(setup, tokens).to(device)
        with autocast(device, setup.precision):
            loss = unwrap(setup.module)(batch)
        loss.backward()
        torch.cuda.synchronize(device)
    except torch.OutOfMemoryError:
        return False
    finally:
        setup.model.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
    return True


def _worst_case_batch(setup: TrainingSetup, tokens: int) -> Batch:
    """Return a batch of sequences as long as the longest, for which kernels that pad need most memory."""
    stores, task = setup.prepared.stores, setup.task
    count = max(1, tokens // max(longest_sequence(store, task) for store in stores))
    rows = {}
    for name in setup.prepared.fields:
        lengths = np.full(count, max(store.longest[name] for store in stores))
        rows[name] = Rows(np.zeros(lengths.sum(), np.int32), offsets_of(lengths))
    return task.collate(rows, np.arange(count))


def activation_bytes(model: nn.Module, precision: str) -> int:
    """Estimate the bytes of activations that one token leaves for the backward pass.

    Counted are the input and output of every matrix, and the logits once. Rows of embeddings are not counted.
    """
    size = 2 if precision == "bfloat16" else 4
    vocabularies = {id(layer.weight) for layer in model.modules() if isinstance(layer, Embedding | OutputProjection)}
    states = sum(
        sum(weight.shape) for weight in model.parameters() if weight.ndim == 2 and id(weight) not in vocabularies
    )
    logits = sum(layer.weight.shape[0] for layer in model.modules() if isinstance(layer, OutputProjection))
    return size * (states + logits)


class ExecutionMode(NamedTuple):
    """Whether batches run compiled, and whether as CUDA graphs."""

    compiled: bool = False
    captured: bool = False
    """Whether batches run as CUDA graphs."""
    reason: str = ""
    """A message for the user; empty if there is nothing to say."""

    @property
    def static(self) -> bool:
        """Whether all batches must have one size."""
        return self.compiled or self.captured


def choose_execution_mode(setup: TrainingSetup, state: RunState) -> ExecutionMode:
    """Resolve `train.compile` and `train.record`; on CUDA some batches are timed if one of them is `auto`."""
    settings, group = setup.recipe.train, setup.group
    cuda, dynamic = group.device.type == "cuda", has_dynamic_shapes(setup.model)
    capturable = bool(settings.record) and cuda and group.world_size == 1 and not dynamic
    if settings.compile is True or not cuda:
        return ExecutionMode(settings.compile is True, capturable)
    if settings.compile is False and not (capturable and settings.record == "auto"):
        return ExecutionMode(captured=capturable)
    if dynamic:
        return ExecutionMode(
            reason="not compiled: batches differ in the number of steps of recurrent layers, or of turns"
        )
    if group.world_size > 1 and settings.sharding == "fsdp":
        return ExecutionMode(reason="not compiled: the model is sharded (train.compile=true compiles it anyway)")
    eager = _time_batch(setup, state.budget, captured=False)
    replay = _time_batch(setup, state.budget, captured=True) if capturable else math.inf
    captured = capturable and (settings.record is True or replay < eager)
    if settings.compile is False:
        return ExecutionMode(captured=captured)
    trial = SpeedTrial.of(setup, state)
    batches = settings.accumulate * max(trial.steps - state.step, 0) if trial.decided else math.inf
    seconds = group.broadcast(min(batches * (replay if captured else eager), trial.limit - state.seconds))
    compiled, reason = is_compiling_worthwhile(seconds, WORTHWHILE_WITH_GRAPHS if captured else WORTHWHILE)
    return ExecutionMode(compiled, captured or (compiled and capturable), reason)


def is_compiling_worthwhile(seconds: float, threshold: float = WORTHWHILE) -> tuple[bool, str]:
    """Return whether to compile when training would take `seconds` without it, and a message for the user."""
    if seconds < threshold:
        return False, f"not compiled: compiling takes longer than it saves in {seconds:.0f} s of training"
    return True, f"compiling takes about a minute; training would take {seconds / 60:.0f} minutes without it"


def compile_in_place(module: nn.Module) -> None:
    """Compile the model with its loss for batches of one size; the model alone stays eager, for validation."""
    # DDP's optimiser splits the graph to overlap communication, which fails at the kernels of attention.
    torch._dynamo.config.optimize_ddp = False
    unwrap(module).compile(dynamic=False, options=OPTIONS)


def _time_batch(setup: TrainingSetup, tokens: int, captured: bool) -> float:
    """Return the seconds of forward and backward of a batch; changes neither weights nor random generators."""
    feed = setup.feed(tokens)
    examples = [batch for step in islice(feed.epoch(0), WARMUP + 1 + TIMED) for batch in step]
    shape = StaticShape.from_feed(feed)
    batches = cycle([shape.fill(batch) for batch in examples] if captured else examples)
    runner = GraphRunner(unwrap(setup.module), setup.group.device, setup.precision)
    run = runner.run if captured else runner.run_eagerly
    with torch.random.fork_rng([setup.group.device]):
        try:
            _time(run, islice(batches, WARMUP + 1))
            return _time(run, islice(batches, TIMED)) / TIMED
        except torch.OutOfMemoryError:
            if not captured:
                raise
            return math.inf  # filled batches need more memory in the attention of some models


def _time(run: Callable[[Batch, float], PassResult], batches: Iterator[Batch]) -> float:
    """Run batches, and return the seconds that it took."""
    begin = time.perf_counter()
    for batch in batches:
        result = run(batch, 1.0)
    result.loss.item()  # synchronises with the device
    return time.perf_counter() - begin
