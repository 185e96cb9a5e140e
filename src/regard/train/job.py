"""Everything a run needs before its first update, put together from its recipe."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.optim import Optimizer

from regard.data.batching import Feed
from regard.data.build import build_store
from regard.data.cache import cache_folder
from regard.data.plan import Shard
from regard.data.pool import Sampling
from regard.data.prepare import Prepared
from regard.data.store import Store
from regard.models.build import build
from regard.models.seq2seq import Seq2Seq
from regard.nn.position import Learned
from regard.recipe import Corpus, Recipe
from regard.train.average import MovingAverage
from regard.train.cutting import Apart, Cutter, Here, Side
from regard.train.engine import spread, whole
from regard.train.loss import Learner
from regard.train.optimiser import build_optimisers, state_tensors
from regard.train.translating import Judge
from regard.train.workers import Workers


@dataclass(frozen=True, eq=False)
class Job:
    """A recipe's parts, ready to learn; which of them change is told by a `Standing`."""

    recipe: Recipe
    run: Path
    workers: Workers
    prepared: Prepared
    valid: Store | None
    test: Store | None
    model: Seq2Seq
    learner: nn.Module
    """The model with its loss, as the processes share it."""
    optimisers: tuple[Optimizer, ...]
    judge: Judge
    average: MovingAverage | None
    spare: Seq2Seq | None
    """A second model for weights that are not the learner's own: averaged ones, or those put together from parts."""
    cutter: Cutter
    """Who samples subwords, where that is wanted."""

    def feed(self, tokens: int) -> Feed:
        """The stream of batches, each with at most so many tokens of either side."""
        recipe = self.recipe
        sides = Side(self.cutter, "source"), Side(self.cutter, "target")
        amount, most = recipe.text.sampling, _positions(self.model)
        return Feed(
            self.prepared.stores,
            [corpus.weight for corpus in recipe.data.train],
            tokens,
            recipe.data.order,
            recipe.seed,
            Shard(self.workers.rank, self.workers.count, recipe.train.accumulate),
            Sampling(*sides, amount, most=most) if amount else None,
        )

    def tensors(self) -> dict[str, Tensor]:
        """All tensors that what comes next depends on, by name, as they are now."""
        named = {f"weights.{name}": each.detach() for name, each in self.model.named_parameters()}
        kept = state_tensors(self.model, self.optimisers)
        named |= {f"optimiser.{name}": each for name, each in kept.items()}
        if self.average is not None:
            named |= {f"average.{name}": each for name, each in self.average.tensors().items()}
        return named

    @contextmanager
    def judged(self) -> Iterator[Seq2Seq]:
        """The model to be validated and kept, with averaged weights where there are any; everybody must ask at once."""
        if self.spare is None:
            self.model.eval()
            yield self.model
            self.model.train()
            return
        weights = self.average.weights if self.average is not None else list(self.model.parameters())
        with torch.no_grad():
            for mine, theirs in zip(self.spare.parameters(), weights, strict=True):
                mine.copy_(whole(theirs))
        yield self.spare


def assemble(recipe: Recipe, run: Path, workers: Workers, prepared: Prepared, begun: Seq2Seq | None = None) -> Job:
    """Build a recipe's model, unless one is begun already, and everything around it."""
    settings = recipe.train
    model = (begun or new_model(recipe, prepared)).to(workers.device).train()
    learner = spread(Learner(model, settings.smoothing, settings.rdrop), workers, settings.sharding)
    average = MovingAverage(model, settings.ema) if settings.ema else None
    apart = average is not None or isinstance(learner, FSDPModule)
    spare = new_model(recipe, prepared).to(workers.device).eval() if apart else None
    valid, test = (_text_store(recipe, each, prepared) for each in (recipe.data.valid, recipe.data.test))
    for name, stores in {"train": prepared.stores, "valid": (valid,), "test": (test,)}.items():
        _check_positions(model, f"data.{name}", [each for each in stores if each is not None])
    # From here on each process throws its own dice.
    torch.manual_seed(recipe.seed * 1_000_003 + workers.rank)
    return Job(
        recipe,
        run,
        workers,
        prepared,
        valid,
        test,
        model,
        learner,
        build_optimisers(model, settings),
        Judge(recipe, prepared.tokenizers, workers),
        average,
        spare,
        Here(prepared.tokenizers) if workers.device.type == "cpu" else Apart(prepared.run),
    )


def new_model(recipe: Recipe, prepared: Prepared) -> Seq2Seq:
    """A recipe's model with its first weights, which depend on the seed alone."""
    torch.manual_seed(recipe.seed)
    both = prepared.tokenizers
    return build(recipe.model, len(both.source), len(both.target))


def _positions(model: Seq2Seq) -> int | None:
    """How many places in a sentence a model knows, where it learns them."""
    learned = [each for each in model.modules() if isinstance(each, Learned)]
    return min((each.limit for each in learned if each.limit is not None), default=None)


def _check_positions(model: Seq2Seq, name: str, stores: Sequence[Store]) -> None:
    """Refuse, before anything is learnt, a text with sentences that go beyond the positions a model learns."""
    known = _positions(model)
    longest = max((1 + each for store in stores for each in store.longest), default=0)  # with the end symbol
    if known is not None and longest > known:
        raise ValueError(
            f"{name} has a sentence of {longest} tokens with its end symbol, and the model learns {known} "
            f"positions: raise model.positions to {longest} or more, or leave long sentences out"
        )


def _text_store(recipe: Recipe, corpus: Corpus | None, prepared: Prepared) -> Store | None:
    """The store of a validation or test corpus, of which no pair is dropped."""
    if corpus is None:
        return None
    data = recipe.data.model_copy(update={"drop": ()})
    both = prepared.tokenizers
    return build_store(corpus, data, both, cache=cache_folder(), keep_text=True, seed=recipe.seed)
