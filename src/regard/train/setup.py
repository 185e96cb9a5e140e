"""Build everything that a run trains with from its recipe: data, model, optimisers, moving average."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.optim import Optimizer

from regard.bundle import check_memory
from regard.data.batching import Feed, longest_sequence
from regard.data.blocks import Blocks
from regard.data.fields import TextField
from regard.data.plan import Shard
from regard.data.pool import SubwordSampling
from regard.data.prepare import Prepared
from regard.data.store import Store
from regard.nn.embedding import Embedding
from regard.recipe import Recipe
from regard.tasks import Task
from regard.train.device import choose_precision
from regard.train.distributed import LossModule, WorkerGroup, full_tensor, wrap_distributed
from regard.train.optimiser import MovingAverage, build_optimisers, state_tensors
from regard.train.schedule import MAX_STEPS, default_steps, default_tokens, resolve
from regard.train.subword_sampling import BlockSampler, FieldSampler, LocalSampler, SubprocessSampler


@dataclass(frozen=True, eq=False)
class TrainingSetup:
    """The objects of a run. Its progress is in a `RunState`."""

    recipe: Recipe
    task: Task
    run: Path
    """Folder of the run."""
    group: WorkerGroup
    prepared: Prepared
    valid: Store | Blocks | None
    test: Store | Blocks | None
    model: nn.Module
    module: nn.Module
    """The model with its loss, wrapped with DDP or FSDP if there are several processes."""
    optimisers: tuple[Optimizer, ...]
    average: MovingAverage | None
    evaluation_copy: nn.Module | None
    """A second model, for validation with weights that differ from `model`: averaged, or gathered from shards."""
    sampler: BlockSampler
    """Samples subwords, if the recipe asks for it."""

    @property
    def precision(self) -> str:
        """Precision of matrix products: bfloat16 or float32."""
        return choose_precision(self.recipe.train.precision, self.group.device)

    @property
    def tokens_per_epoch(self) -> int:
        """Tokens in a pass over the data, by the weights of the corpora."""
        pairs = zip(self.recipe.data.train, self.prepared.stores, strict=True)
        return sum(round(corpus.weight * self.task.tokens(store.lengths)) for corpus, store in pairs)

    @property
    def default_tokens(self) -> int:
        """Tokens of a batch, if the recipe does not name them."""
        longest = max(longest_sequence(store, self.task) for store in self.prepared.stores)
        return default_tokens(self.group.device.type, self.tokens_per_epoch, longest)

    def tokens_per_step(self, tokens: int) -> int:
        """Return the tokens of a step over all its batches of `tokens` tokens."""
        return tokens * self.group.world_size * self.recipe.train.accumulate

    def default_steps(self, tokens: int) -> int:
        """Return the steps of a recipe that names neither steps nor minutes, with batches of `tokens` tokens."""
        return default_steps(self.tokens_per_epoch, self.tokens_per_step(tokens))

    def feed(self, tokens: int) -> Feed:
        """Return the stream of batches with at most `tokens` tokens in each sequence attribute."""
        recipe, amount = self.recipe, self.recipe.text.sampling
        fields = self.prepared.fields
        samplers = {
            name: FieldSampler(self.sampler, name, field)
            for name, field in fields.items()
            if isinstance(field, TextField)
        }
        return Feed(
            self.prepared.stores,
            [corpus.weight for corpus in recipe.data.train],
            tokens,
            self.task,
            recipe.data.order,
            recipe.seed,
            Shard(self.group.rank, self.group.world_size, recipe.train.accumulate),
            SubwordSampling(samplers, amount, max_tokens=_learned_positions(self.model)) if amount else None,
        )

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors that a checkpoint holds, by name: weights, optimiser state and moving average."""
        tensors = {f"weights.{name}": weight.detach() for name, weight in self.model.named_parameters()}
        state = state_tensors(self.model, self.optimisers)
        tensors |= {f"optimiser.{name}": tensor for name, tensor in state.items()}
        if self.average is not None:
            tensors |= {f"average.{name}": weight for name, weight in self.average.tensors().items()}
        return tensors

    @contextmanager
    def evaluation_model(self) -> Iterator[nn.Module]:
        """Yield the model to validate and save, in evaluation mode, with averaged weights if the recipe has EMA.

        Every process must enter this, because sharded weights are gathered.
        """
        if self.evaluation_copy is None:
            self.model.eval()
            yield self.model
            self.model.train()
            return
        weights = self.average.weights if self.average is not None else list(self.model.parameters())
        with torch.no_grad():
            for copy, weight in zip(self.evaluation_copy.parameters(), weights, strict=True):
                copy.copy_(full_tensor(weight))
        yield self.evaluation_copy


def build_setup(
    recipe: Recipe, task: Task, run: Path, group: WorkerGroup, prepared: Prepared, model: nn.Module | None = None
) -> TrainingSetup:
    """Build the objects of a run; `model` replaces the newly initialised one."""
    settings = recipe.train
    model = (model or new_model(recipe, task, prepared)).to(group.device).train()
    module = wrap_distributed(LossModule(model, task), group, settings.sharding)
    average = MovingAverage(model, settings.ema) if settings.ema else None
    needs_copy = average is not None or isinstance(module, FSDPModule)
    task.observe(model, prepared.stores)
    evaluation_copy = new_model(recipe, task, prepared).to(group.device).eval() if needs_copy else None
    valid, test = (None if data is None else data.store for data in (prepared.valid, prepared.test))
    for name, stores in {"train": prepared.stores, "valid": (valid,), "test": (test,)}.items():
        _check_positions(model, task, f"data.{name}", [store for store in stores if store is not None])
    # All processes initialise the same weights. From here on each draws its own random numbers.
    torch.manual_seed(recipe.seed * 1_000_003 + group.rank)
    texts = [name for name, field in prepared.fields.items() if isinstance(field, TextField)]
    if group.device.type == "cpu" or not texts:
        sampler: BlockSampler = LocalSampler(prepared.fields.tokenizers if texts else {})
    else:
        sampler = SubprocessSampler(prepared.run, texts)
    optimisers = build_optimisers(model, resolve(recipe, settings.steps or MAX_STEPS))
    return TrainingSetup(
        recipe, task, run, group, prepared, valid, test, model, module, optimisers, average, evaluation_copy, sampler
    )


def new_model(recipe: Recipe, task: Task, prepared: Prepared) -> nn.Module:
    """Build a recipe's model with its initial weights, which depend on the seed alone.

    Raises:
        ValueError: If its weights need more than all memory of this machine.
    """
    check_memory(task, prepared.fields.sizes)
    torch.manual_seed(recipe.seed)
    return task.build(prepared.fields.sizes)


def _learned_positions(model: nn.Module) -> int | None:
    """Return the number of learned positions of a model, or None if it has none."""
    limits = [module.max_positions for module in model.modules() if isinstance(module, Embedding)]
    return min((limit for limit in limits if limit is not None), default=None)


def _check_positions(model: nn.Module, task: Task, name: str, stores: Sequence[Store | Blocks]) -> None:
    """Raise a ValueError if the data have sequences that are longer than the learned positions of the model."""
    positions = _learned_positions(model)
    longest = max((longest_sequence(store, task) for store in stores), default=0)
    if positions is not None and longest > positions:
        raise ValueError(
            f"{name} has a sequence of {longest} tokens with its symbols, but the model learns {positions} "
            f"positions: raise model.positions to {longest} or more, or drop long sequences"
        )
