"""The state of a run between two updates, and how it is saved to and restored from checkpoints."""

import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from regard.data.batching import BEGINNING, StreamPosition
from regard.data.store import VERSION
from regard.train import checkpoint
from regard.train.setup import TrainingSetup


@dataclass
class RunState:
    """The progress of a run. With the recipe and the tensors of a checkpoint it determines everything that follows."""

    step: int = 0
    """Completed updates."""
    position: StreamPosition = field(default=BEGINNING)
    """Position in the stream of batches."""
    parts: int = 1
    """Micro-batches of a step over all processes, which `position` depends on."""
    budget: int = 0
    """Tokens of a micro-batch in each sequence attribute; 0 until it is chosen, if the recipe names no number."""
    tokens: int = 0
    """Units of the loss trained on."""
    seconds: float = 0.0
    """Training time."""
    shrunk: float = 1.0
    """Factor to which the `plateau` schedule has reduced the learning rate."""
    best: float | None = None
    """Best validation score; higher is better."""
    best_loss: float | None = None
    """Validation loss of the best weights."""
    best_step: int | None = None
    stale: int = 0
    """Validations since the best one."""
    predicted: int = 0
    """Examples that each validation predicts; 0 until the first one has decided."""
    planned: int = 0
    """Steps that fit into `planned_minutes`, for a recipe that names no steps; 0 until the speed is known."""
    planned_every: int = 0
    """Steps between two validations of that plan, for a recipe that does not name them; 0 is a tenth of the steps."""
    planned_minutes: float | None = None
    """The time limit `train.minutes` for which `planned` was decided."""
    provisional: bool = False
    """Whether the next validation revises the plan."""
    validation_due: bool = False
    """Whether the validation of this step is not complete: a checkpoint is saved before it."""

    def record_validation(self, score: float, loss: float, shrink: float) -> bool:
        """Record a validation, and return whether its weights are the best so far.

        Args:
            score: Score of the weights; higher is better.
            loss: Validation loss. It decides between equal scores, because BLEU is 0 for a long time at first.
            shrink: Factor for the learning rate of the `plateau` schedule if these weights are not the best.
        """
        best_loss = math.inf if self.best_loss is None else self.best_loss
        if self.best is None or (score, -loss) > (self.best, -best_loss):
            self.best, self.best_loss, self.best_step, self.stale = score, loss, self.step, 0
            return True
        self.stale += 1
        self.shrunk *= shrink
        return False

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "RunState":
        """Return the state that was written as `dataclasses.asdict(state)`."""
        renamed = {"translated": "predicted"}  # names in version 0.1
        named = {renamed.get(name, name): value for name, value in values.items()}
        known = {name: named[name] for name in named.keys() & cls.__dataclass_fields__.keys()}
        return cls(**{**known, "position": StreamPosition(**values["position"])})


def save_checkpoint(setup: TrainingSetup, state: RunState) -> Path:
    """Write a checkpoint of everything that the rest of the training depends on; earlier ones are kept."""
    model = setup.recipe.architecture
    metadata = {"state": asdict(state), "data": _data_identity(setup), "model": model}
    return checkpoint.write_checkpoint(
        setup.run, state.step, setup.tensors() | _rng_states(setup), metadata, setup.group
    )


def complete_checkpoint(setup: TrainingSetup, state: RunState) -> None:
    """Record the result of a validation in the checkpoint of its step, and remove earlier ones."""
    if setup.group.is_main:
        path = checkpoint.checkpoint_path(setup.run, state.step)
        checkpoint.update_metadata(path, {"state": asdict(state)})
        checkpoint.remove_old_checkpoints(setup.run, setup.recipe.train.keep)
    setup.group.barrier()


def restore_checkpoint(setup: TrainingSetup) -> tuple[RunState, list[str]]:
    """Load the last checkpoint of a run into its setup.

    Returns:
        The state of the run, which is new if there is no checkpoint, and messages for the user.
    """
    path, notices = _find_checkpoint(setup)
    if path is None:
        return _adapt_position(setup, RunState(), notices), notices
    metadata = checkpoint.read_metadata(path)
    _check_data(setup, metadata["data"])
    _check_model(setup, metadata.get("model", {}))
    state = RunState.from_json(metadata["state"] if "state" in metadata else metadata["standing"])  # version 0.1
    stored = checkpoint.tensor_names(path)
    rng_states = {name: tensor for name, tensor in _rng_states(setup).items() if name in stored}
    checkpoint.load_tensors(path, setup.tensors() | rng_states, setup.group)
    _set_rng_states(setup, rng_states, state.step)
    return _adapt_position(setup, state, notices), notices


def check_finite_weights(setup: TrainingSetup, state: RunState) -> None:
    """Raise a FloatingPointError if a weight is not finite. Every process must call this."""
    weights = [weight.detach() for weight in setup.model.parameters()]
    norms = [(weight.to_local() if isinstance(weight, DTensor) else weight).norm() for weight in weights]
    if not math.isfinite(setup.group.all_reduce(torch.stack(norms).sum()).item()):
        raise FloatingPointError(f"the weights are not finite after step {state.step}")


def _find_checkpoint(setup: TrainingSetup) -> tuple[Path | None, list[str]]:
    """Return the last undamaged checkpoint, as rank 0 finds it, and messages about damaged ones."""
    path, damages = checkpoint.find_latest(setup.run) if setup.group.is_main else (None, [])
    if damages and path is None:
        raise ValueError(
            f"every checkpoint of {setup.run} is damaged: {'; '.join(damages)}. Restore the folder from a copy, "
            "or start a new run in another folder with --run"
        )
    step = int(setup.group.broadcast(-1 if path is None else int(path.name.rpartition("-")[2])))
    if step < 0:
        return None, []
    return checkpoint.checkpoint_path(setup.run, step), [f"{damage}; resuming from step {step}" for damage in damages]


def _adapt_position(setup: TrainingSetup, state: RunState, notices: list[str]) -> RunState:
    """Adapt a state to the current size of batches and number of micro-batches per step."""
    settings = setup.recipe.train
    # A size that the recipe does not name is 0 until it is chosen.
    budget = settings.tokens if isinstance(settings.tokens, int) else state.budget
    parts = setup.group.world_size * settings.accumulate
    position = state.position
    if position != BEGINNING and budget != state.budget:
        position = StreamPosition(position.epoch, position.pool)
        notices.append(f"train.tokens was {state.budget} and is now {budget}: some recent examples are repeated")
    elif parts != state.parts:
        # The number of completed micro-batches stays about the same; a few examples may be repeated or left out.
        position = replace(position, step=position.step * state.parts // parts)
        if position != BEGINNING:
            notices.append(
                f"a step had {state.parts} batches and now has {parts}: resuming at about the same position in the data"
            )
    return replace(state, budget=budget, parts=parts, position=position)


def _data_identity(setup: TrainingSetup) -> dict[str, Any]:
    """Return what identifies the training data and vocabularies."""
    stores = [store.folder.name for store in setup.prepared.stores]
    return {"tokenizers": setup.prepared.fields.fingerprint, "version": VERSION, "stores": stores}


def _check_data(setup: TrainingSetup, before: dict[str, Any]) -> None:
    """Raise a ValueError if the data or the vocabularies are not those of the checkpoint."""
    current = _data_identity(setup)
    if "version" not in before:  # stores of version 1 have other names, so only the vocabularies can be compared
        before = {**current, "tokenizers": before["tokenizers"]}
    if before != current:
        raise ValueError(
            f"the training data or the vocabulary has changed since {setup.run} was started, so it cannot resume; "
            "restore the files, or train its model further on these data in another folder: "
            f"regard train RECIPE --run runs/NEW train.start={setup.run}"
        )


def _check_model(setup: TrainingSetup, before: dict[str, Any]) -> None:
    """Raise a ValueError if a setting of the model is not the one that the checkpoint was written with."""
    current = setup.recipe.architecture
    # Checkpoints of earlier versions name settings of the model without their section.
    named = {name if "." in name else f"model.{name}": value for name, value in before.items()}
    changed = [name for name, value in named.items() if name in current and current[name] != value]
    if changed:
        values = ", ".join(f"{name} is {current[name]!r} and was {named[name]!r}" for name in changed)
        raise ValueError(f"the recipe of {setup.run} was changed since its last checkpoint: {values}; restore it")


def _rng_states(setup: TrainingSetup) -> dict[str, Tensor]:
    """Return the states of this process's random generators, by their names in a checkpoint."""
    rank, device = setup.group.rank, setup.group.device
    states = {f"dice.{rank}.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states[f"dice.{rank}.cuda"] = torch.cuda.get_rng_state(device)
    return states


def _set_rng_states(setup: TrainingSetup, states: dict[str, Tensor], step: int) -> None:
    """Restore the random generators; a process without a stored state gets a new seed."""
    if len(states) != len(_rng_states(setup)):
        torch.manual_seed((setup.recipe.seed * 1_000_003 + setup.group.rank) * 1_000_003 + step)
        return
    for name, state in states.items():
        if name.endswith("cuda"):
            torch.cuda.set_rng_state(state, setup.group.device)
        else:
            torch.set_rng_state(state)
