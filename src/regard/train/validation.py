"""Validation during training, and the choice and final scores of the weights after it."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from regard.bundle import load_scores, save_model, save_scores
from regard.data.batching import in_order, longest_sequence
from regard.data.blocks import Blocks
from regard.data.store import Store
from regard.run_files import WEIGHTS
from regard.tasks import Predictions, Task
from regard.train.checkpoint import has_checkpoint
from regard.train.device import autocast, device_name
from regard.train.distributed import WorkerGroup
from regard.train.events import Finished, Validated
from regard.train.run_state import RunState
from regard.train.setup import TrainingSetup
from regard.weights import WeightsFile, load_weights, save_weights

MIN_PREDICTIONS = 64  # examples predicted at each validation, whatever they cost
TIME_FRACTION = 0.04  # of the time between two validations that predictions may take

FOLDER = "weights"
_STEP, _BEST = "step-{:08d}.safetensors", "best.safetensors"
# In the metadata of weights: the step that they are of, and for a model that of the run and how it was chosen.
_OF_STEP, _RUN_STEP, _CHOSEN = "step", "run_step", "chosen"
_TEMPORARY = "." + 8 * "[0-9a-f]"  # suffix of a file that `regard.files.atomic_write` is writing

_log = logging.getLogger("regard")


def measure(
    task: Task, model: nn.Module, store: Store | Blocks, tokens: int, group: WorkerGroup, precision: str
) -> dict[str, float]:
    """Return the teacher-forced metrics of a whole corpus; each process takes every n-th batch."""
    budget = max(tokens, longest_sequence(store, task))
    sums = torch.zeros(len(task.sums) + 1, dtype=torch.float64, device=group.device)
    for number, batch in enumerate(in_order(store, task, budget)):
        if number % group.world_size == group.rank:
            with autocast(group.device, precision):
                part = task.evaluate(model, batch.to(group.device))
            sums += torch.cat([part.double(), sums.new_tensor([batch.units])])
    *totals, units = group.all_reduce(sums).tolist()
    return task.quality(totals, int(units))


def validate(setup: TrainingSetup, model: nn.Module, state: RunState, now: float) -> Validated:
    """Measure the weights at the training time `now`, and record in the state whether they are the best so far."""
    assert setup.valid is not None
    assert setup.recipe.data.valid is not None
    settings = setup.recipe.train
    begin = time.perf_counter()
    metrics = measure(setup.task, model, setup.valid, state.budget, setup.group, setup.precision)
    loss = metrics.pop("loss")
    if not math.isfinite(loss):
        raise FloatingPointError(f"the loss is not finite on data.valid after step {state.step}")
    predictions = _predict(setup, model, setup.valid, state, now)
    end = time.perf_counter()
    score = -loss
    if settings.choose != "loss":
        score = predictions.criterion(setup.task.metrics.index(settings.choose))
    best = state.record_validation(score, loss, settings.shrink)
    perplexity, accuracy = metrics.pop("perplexity", None), metrics.pop("accuracy", None)
    scores, samples = predictions.scores, predictions.samples
    count = state.predicted if scores else 0
    return Validated(state.step, loss, perplexity, accuracy, scores, samples, end - begin, best, metrics, count)


def _predict(setup: TrainingSetup, model: nn.Module, store: Store | Blocks, state: RunState, now: float) -> Predictions:
    """Predict validation examples: the same ones at every validation of a run, so that scores can be compared.

    The first validation decides how many, by the time that a few of them take.
    """
    settings, corpus = setup.recipe.train, setup.recipe.data.valid
    assert corpus is not None

    def predict(count: int) -> Predictions:
        return setup.task.predict(model, setup.prepared.fields, store, corpus, count, setup.group)

    if settings.translate != "auto":
        state.predicted = min(settings.translate, len(store))
    elif settings.choose != "loss":
        state.predicted = len(store)
    elif not state.predicted:
        begin = time.perf_counter()
        predictions = predict(min(MIN_PREDICTIONS, len(store)))
        pace = (time.perf_counter() - begin) / min(MIN_PREDICTIONS, len(store))
        state.predicted = int(setup.group.broadcast(affordable_predictions(pace, now, len(store))))
        if state.predicted <= MIN_PREDICTIONS:
            return predictions
    return predict(state.predicted) if state.predicted else Predictions()


def affordable_predictions(pace: float, between: float, maximum: int) -> int:
    """Return how many examples to predict: a power of two that takes little of the time between validations.

    Args:
        pace: Seconds that one prediction takes.
        between: Seconds between two validations.
        maximum: Number of examples of the corpus.
    """
    number = MIN_PREDICTIONS
    while number < maximum and 2 * number * pace <= TIME_FRACTION * between:
        number *= 2
    return min(number, maximum)


def remove_stale_weights(run: Path) -> None:
    """Remove half-written weights of a killed process and, without a checkpoint to resume from, all saved weights."""
    folder = run / FOLDER
    temporary = [*run.glob(WEIGHTS + _TEMPORARY), *folder.glob(f"*.safetensors{_TEMPORARY}")]
    for path in temporary if has_checkpoint(run) else [*temporary, *_last_weights(run), folder / _BEST]:
        path.unlink(missing_ok=True)


def save_validated_weights(setup: TrainingSetup, model: nn.Module, state: RunState) -> None:
    """Save the weights if they are the best so far, and the last `train.average` weights to average in the end."""
    if not setup.group.is_main:
        return
    step = {_OF_STEP: str(state.step)}
    if state.best_step == state.step:
        save_weights(model, setup.run / FOLDER / _BEST, step)
    if setup.recipe.train.average > 1:
        save_weights(model, setup.run / FOLDER / _STEP.format(state.step), step)
        for old in _last_weights(setup.run)[setup.recipe.train.average :]:
            old.unlink()


def finish(
    setup: TrainingSetup, state: RunState, reason: Literal["steps", "patience", "stopped", "time"], trained: bool
) -> Finished:
    """Choose the final weights, save them with their scores, and return the last event of the run.

    Args:
        setup: The objects of the run.
        state: Its state.
        reason: Why training ended.
        trained: Whether any step was trained since the last call. If not, an intact model of this state is kept.
    """
    stopped = reason == "stopped"
    with setup.evaluation_model() as model:
        kept = None if trained else _finished_weights(setup, model, state)
        if kept is None:
            chosen, step = _choose_weights(setup, model, state, stopped)
        else:
            load_weights(model, setup.run / WEIGHTS)
            chosen = kept
        scores = _training_facts(setup, state, reason, chosen)
        setup.group.barrier()  # rank 0 replaces the model only when all processes have looked at it
        if setup.group.is_main:
            # The weights are saved first, so that they exist whatever happens while they are scored.
            if kept is None:
                about = {_CHOSEN: chosen, _RUN_STEP: str(state.step), **({} if step is None else {_OF_STEP: str(step)})}
                save_model(setup.run, setup.recipe, setup.prepared.fields, model, about)
            save_scores(setup.run, scores)
        if not stopped:
            scores |= _final_scores(setup, model, state)
            if setup.group.is_main:
                save_scores(setup.run, scores)
    setup.group.barrier()
    return Finished(state.step, reason, state.seconds, state.tokens, state.best_step, scores, setup.run)


def _finished_weights(setup: TrainingSetup, model: nn.Module, state: RunState) -> str | None:
    """Return a description of the run's model if it is intact and was chosen at this step of the training."""
    metadata = _intact_metadata(setup, model, setup.run / WEIGHTS)
    if metadata is None:
        return None
    if _RUN_STEP in metadata:
        return metadata.get(_CHOSEN, "") if metadata[_RUN_STEP] == str(state.step) else None
    try:  # weights of version 0.1 do not say how they were chosen
        scores = load_scores(setup.run)
        return str(scores["weights"]) if scores["training"]["steps"] == state.step else None
    except (ValueError, KeyError, TypeError):
        return None


def _choose_weights(setup: TrainingSetup, model: nn.Module, state: RunState, stopped: bool) -> tuple[str, int | None]:
    """Load the final weights into the model; return a description of them, and the step that they are of.

    They are the mean of the last weights if it is no worse on the validation data than the best weights.
    """
    saved = _last_weights(setup.run)[: setup.recipe.train.average]
    files = [file for file in saved if _intact_metadata(setup, model, file) is not None]
    best_file = _best_weights(setup, model, state)
    best = None if best_file is None else state.best
    if len(files) > 1 and not stopped:
        _load_mean_weights(model, files)
        if best is None or _validation_score(setup, model, state) >= best:
            return f"mean of the last {len(files)} checkpoints", None
    if best_file is not None:
        load_weights(model, best_file)
        return f"best on data.valid, step {state.best_step}", state.best_step
    if state.best_step is not None and setup.group.is_main:
        _log.warning("the best weights, of step %d, are lost; the last ones are used instead", state.best_step)
    return f"last, step {state.step}", state.step


def _best_weights(setup: TrainingSetup, model: nn.Module, state: RunState) -> Path | None:
    """Return an intact file with the best weights: that of the last validation, or a model that was made of it."""
    if state.best_step is None:
        return None
    of_step = str(state.best_step)
    for file in (setup.run / FOLDER / _BEST, setup.run / WEIGHTS):
        metadata = _intact_metadata(setup, model, file)
        # Files of version 0.1 do not name their step; then only the best weights are sure to be the best.
        if metadata is not None and metadata.get(_OF_STEP, of_step if file.name == _BEST else "") == of_step:
            return file
    return None


@torch.no_grad()
def _load_mean_weights(model: nn.Module, files: Sequence[Path]) -> None:
    """Load the mean of the weights in several files into a model (Vaswani et al. 2017, §6.1)."""
    sums = [torch.zeros_like(weight, dtype=torch.float64) for weight in model.parameters()]
    for file in files:
        load_weights(model, file)
        for total, weight in zip(sums, model.parameters(), strict=True):
            total += weight
    for total, weight in zip(sums, model.parameters(), strict=True):
        weight.copy_(total / len(files))


def _intact_metadata(setup: TrainingSetup, model: nn.Module, file: Path) -> Mapping[str, str] | None:
    """Return what a file states about its weights; None if there is no such file or, with a warning, it is damaged."""
    try:
        weights = WeightsFile.open(file)
        weights.check_shapes(model)
        weights.verify()
    except FileNotFoundError:
        return None
    except ValueError as error:
        if setup.group.is_main:
            _log.warning("%s; it is ignored", error)
        return None
    return weights.metadata


def _validation_score(setup: TrainingSetup, model: nn.Module, state: RunState) -> float:
    """Return the score that validation gives to the model, as for the best weights; higher is better."""
    corpus = setup.recipe.data.valid
    assert setup.valid is not None
    assert corpus is not None
    if setup.recipe.train.choose == "loss":
        return -measure(setup.task, model, setup.valid, state.budget, setup.group, setup.precision)["loss"]
    fields = setup.prepared.fields
    predictions = setup.task.predict(model, fields, setup.valid, corpus, state.predicted, setup.group)
    return predictions.criterion(setup.task.metrics.index(setup.recipe.train.choose))


def _final_scores(setup: TrainingSetup, model: nn.Module, state: RunState) -> dict[str, Any]:
    """Return the metrics of the final weights on the validation and test data, decoded as the recipe says."""
    results: dict[str, Any] = {}
    data = setup.recipe.data
    for name, corpus, store in (("valid", data.valid, setup.valid), ("test", data.test, setup.test)):
        if store is None or corpus is None:
            continue
        metrics = measure(setup.task, model, store, state.budget, setup.group, setup.precision)
        begin = time.perf_counter()
        scores = setup.task.final_scores(model, setup.prepared.fields, store, corpus, setup.group)
        results[name] = {
            "examples": len(store),
            **metrics,
            "scores": [asdict(score) for score in scores],
            "seconds": round(time.perf_counter() - begin, 1),
        }
    return results | setup.task.after_training(model, setup.prepared.fields)


def _training_facts(setup: TrainingSetup, state: RunState, reason: str, chosen: str) -> dict[str, Any]:
    """Return the entries of `scores.json` about the training."""
    return {
        "weights": chosen,
        "training": {
            "finished": reason,
            "steps": state.step,
            "best_step": state.best_step,
            "tokens": state.tokens,
            "seconds": round(state.seconds, 1),
            "batch_tokens": state.budget,
            "processes": setup.group.world_size,
            "device": device_name(setup.group.device),
            "torch": torch.__version__,
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
        },
    }


def _last_weights(run: Path) -> list[Path]:
    """Return the weights saved for averaging, the last first."""
    return sorted((run / FOLDER).glob("step-*.safetensors"), reverse=True)
