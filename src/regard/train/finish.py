"""From the last update to a model others can use: which weights to keep, and what is known of them."""

import time
from pathlib import Path
from typing import Any, Literal

import torch

from regard.bundle import WEIGHTS, load_weights, save_scores, save_weights
from regard.models.seq2seq import Seq2Seq
from regard.train.average import load_mean
from regard.train.events import Finished
from regard.train.job import Job
from regard.train.standing import Standing
from regard.train.validation import measure

FOLDER = "weights"
_STEP, _BEST = "step-{:08d}.safetensors", "best.safetensors"


def keep_weights(job: Job, model: Seq2Seq, standing: Standing) -> None:
    """Keep the weights just judged if they are the best, and as many of the last as are to be averaged."""
    if not job.workers.first:
        return
    if standing.best_step == standing.step:
        save_weights(model, job.run / FOLDER / _BEST)
    if job.recipe.train.average > 1:
        save_weights(model, job.run / FOLDER / _STEP.format(standing.step))
        for old in _last(job.run)[job.recipe.train.average :]:
            old.unlink()


def finish(job: Job, standing: Standing, reason: Literal["steps", "patience", "stopped", "time"]) -> Finished:
    """Put the chosen weights where a model is loaded from, with what is known of them."""
    with job.judged() as model:
        chosen = _choose(job, model, standing, stopped=reason == "stopped")
        scores = _facts(job, standing, reason, chosen)
        if job.workers.first:
            save_weights(model, job.run / WEIGHTS)
            save_scores(job.run, scores)
    return Finished(standing.step, reason, standing.seconds, standing.tokens, standing.best_step, scores, job.run)


def _choose(job: Job, model: Seq2Seq, standing: Standing, stopped: bool) -> str:
    """Give the model the weights to keep: the best, or the mean of the last if validation finds it no worse."""
    files = _last(job.run)[: job.recipe.train.average]
    best = job.run / FOLDER / _BEST
    if len(files) > 1 and not stopped:
        load_mean(model, files)
        if job.valid is None or standing.best is None:
            return f"mean of the last {len(files)} checkpoints"
        quality = measure(model, job.valid, standing.budget, job.workers, job.recipe.train.precision)
        if -quality.loss >= standing.best:
            return f"mean of the last {len(files)} checkpoints"
    if standing.best_step is not None and best.is_file():
        load_weights(model, best)
        return f"best on data.valid, step {standing.best_step}"
    return f"last, step {standing.step}"


def _facts(job: Job, standing: Standing, reason: str, chosen: str) -> dict[str, Any]:
    """What `scores.json` says of a training."""
    workers = job.workers
    cuda = workers.device.type == "cuda"
    return {
        "weights": chosen,
        "training": {
            "finished": reason,
            "steps": standing.step,
            "best_step": standing.best_step,
            "target_tokens": standing.tokens,
            "seconds": round(standing.seconds, 1),
            "batch_tokens": standing.budget,
            "processes": workers.count,
            "device": torch.cuda.get_device_name(workers.device) if cuda else "CPU",
            "torch": torch.__version__,
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
        },
    }


def _last(run: Path) -> list[Path]:
    """Weights kept to be averaged, the last first."""
    return sorted((run / FOLDER).glob("step-*.safetensors"), reverse=True)
