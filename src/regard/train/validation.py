"""Validation during training, and the choice and final scores of the weights after it."""

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from regard.bundle import load_weights, save_scores, save_weights
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

MIN_PREDICTIONS = 16  # examples predicted at each validation, whatever they cost
TIME_FRACTION = 0.04  # of the time between two validations that predictions may take

FOLDER = "weights"
_STEP, _BEST = "step-{:08d}.safetensors", "best.safetensors"
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


def affordable_predictions(pace: float, between: float, most: int) -> int:
    """Return how many examples to predict: a power of two that takes little of the time between validations.

    Args:
        pace: Seconds that one prediction takes.
        between: Seconds between two validations.
        most: Examples of the corpus.
    """
    number = MIN_PREDICTIONS
    while number < most and 2 * number * pace <= TIME_FRACTION * between:
        number *= 2
    return min(number, most)


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
    if state.best_step == state.step:
        save_weights(model, setup.run / FOLDER / _BEST)
    if setup.recipe.train.average > 1:
        save_weights(model, setup.run / FOLDER / _STEP.format(state.step))
        for old in _last_weights(setup.run)[setup.recipe.train.average :]:
            old.unlink()


def finish(setup: TrainingSetup, state: RunState, reason: Literal["steps", "patience", "stopped", "time"]) -> Finished:
    """Choose the final weights, save them with their scores, and return the last event of the run."""
    stopped = reason == "stopped"
    with setup.evaluation_model() as model:
        chosen = _choose_weights(setup, model, state, stopped)
        scores = _training_facts(setup, state, reason, chosen)
        if setup.group.is_main:
            # The weights are saved first, so that they exist whatever happens while they are scored.
            save_weights(model, setup.run / WEIGHTS)
            save_scores(setup.run, scores)
        if not stopped:
            scores |= _final_scores(setup, model, state)
            if setup.group.is_main:
                save_scores(setup.run, scores)
    setup.group.barrier()
    return Finished(state.step, reason, state.seconds, state.tokens, state.best_step, scores, setup.run)


def _choose_weights(setup: TrainingSetup, model: nn.Module, state: RunState, stopped: bool) -> str:
    """Load the final weights into the model, and return a description of them.

    They are the mean of the last weights if it is no worse on the validation data than the best weights.
    """
    files = [file for file in _last_weights(setup.run)[: setup.recipe.train.average] if _is_readable(setup, file)]
    best_file = setup.run / FOLDER / _BEST
    has_best = state.best_step is not None and best_file.is_file() and _is_readable(setup, best_file)
    best = state.best if has_best else None
    if len(files) > 1 and not stopped:
        load_mean_weights(model, files)
        if best is None or _validation_score(setup, model, state) >= best:
            return f"mean of the last {len(files)} checkpoints"
    if best is not None:
        load_weights(model, best_file)
        return f"best on data.valid, step {state.best_step}"
    return f"last, step {state.step}"


@torch.no_grad()
def load_mean_weights(model: nn.Module, files: Sequence[Path]) -> None:
    """Load the mean of the weights in several files into a model (Vaswani et al. 2017, §6.1)."""
    sums = [torch.zeros_like(weight, dtype=torch.float64) for weight in model.parameters()]
    for file in files:
        load_weights(model, file)
        for total, weight in zip(sums, model.parameters(), strict=True):
            total += weight
    for total, weight in zip(sums, model.parameters(), strict=True):
        weight.copy_(total / len(files))


def _is_readable(setup: TrainingSetup, file: Path) -> bool:
    """Return whether a file of weights is intact; warn if it is not."""
    try:
        with safe_open(file, "pt"):
            return True
    except SafetensorError as error:
        if setup.group.is_main:
            _log.warning("%s is damaged (%s) and is ignored", file, error)
        return False


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
