"""From the last update to a model others can use: which weights to keep, and what is known of them."""

import logging
import time
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open

from regard.bundle import load_weights, save_scores, save_weights
from regard.models.seq2seq import Seq2Seq
from regard.names import WEIGHTS
from regard.train.average import load_mean
from regard.train.checkpoint import exists
from regard.train.cost import device_name
from regard.train.events import Finished
from regard.train.job import Job
from regard.train.standing import Standing
from regard.train.translating import as_json, some_text
from regard.train.validation import measure
from regard.translator import Translator
from regard.translator.given import choose_look_for

FOLDER = "weights"
_STEP, _BEST = "step-{:08d}.safetensors", "best.safetensors"
_SCRATCH = "." + 8 * "[0-9a-f]"  # what `regard.files.writing_whole` adds to a name while it writes

_log = logging.getLogger("regard")


def tidy_weights(run: Path) -> None:
    """Remove what a killed process left half-written and, where there is no checkpoint to go on from, kept weights."""
    kept = run / FOLDER
    left = [*run.glob(WEIGHTS + _SCRATCH), *kept.glob(f"*.safetensors{_SCRATCH}")]
    for each in left if exists(run) else [*left, *_last(run), kept / _BEST]:
        each.unlink(missing_ok=True)


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
    stopped = reason == "stopped"
    with job.judged() as model:
        chosen = _choose(job, model, standing, stopped)
        facts = _facts(job, standing, reason, chosen)
        if job.workers.first:
            # The weights first: whatever happens while they are scored, they are there.
            save_weights(model, job.run / WEIGHTS)
            save_scores(job.run, facts)
        if not stopped:
            facts |= _scores(job, model, standing)
            if job.workers.first:
                save_scores(job.run, facts)
    job.workers.wait()
    return Finished(standing.step, reason, standing.seconds, standing.tokens, standing.best_step, facts, job.run)


def _choose(job: Job, model: Seq2Seq, standing: Standing, stopped: bool) -> str:
    """Give the model the weights to keep: the best, or the mean of the last if validation finds it no worse."""
    files = [each for each in _last(job.run)[: job.recipe.train.average] if _whole(job, each)]
    file = job.run / FOLDER / _BEST
    best = standing.best if standing.best_step is not None and file.is_file() and _whole(job, file) else None
    if len(files) > 1 and not stopped:
        load_mean(model, files)
        if best is None or _score(job, model, standing) >= best:
            return f"mean of the last {len(files)} checkpoints"
    if best is not None:
        load_weights(model, file)
        return f"best on data.valid, step {standing.best_step}"
    return f"last, step {standing.step}"


def _whole(job: Job, file: Path) -> bool:
    """Whether weights can be read; those that something has damaged since must not keep the others from use."""
    try:
        with safe_open(file, "pt"):
            return True
    except SafetensorError as error:
        if job.workers.first:
            _log.warning("%s is damaged (%s), and done without", file, error)
        return False


def _score(job: Job, model: Seq2Seq, standing: Standing) -> float:
    """What validation says of weights, as it said of those before; higher is better."""
    corpus = job.recipe.data.valid
    assert job.valid is not None
    assert corpus is not None
    if job.recipe.train.choose == "loss":
        return -measure(model, job.valid, standing.budget, job.workers, job.recipe.train.precision).loss
    source, target = some_text(job.valid, corpus, standing.translated)
    return job.judge.scores(job.judge.translate(model, source, beam=1), target)[0].value


def _scores(job: Job, model: Seq2Seq, standing: Standing) -> dict[str, Any]:
    """How good the chosen weights are, searched as the recipe says, on the texts it names."""
    found: dict[str, Any] = {}
    data, settings = job.recipe.data, job.recipe.train
    for name, corpus, store in (("valid", data.valid, job.valid), ("test", data.test, job.test)):
        if store is None or corpus is None:
            continue
        quality = measure(model, store, standing.budget, job.workers, settings.precision)
        source, target = some_text(store, corpus, len(store))
        begin = time.perf_counter()
        translated = job.judge.translate(model, source, job.recipe.decode.beam)
        found[name] = {
            "sentences": len(store),
            "loss": quality.loss,
            "perplexity": quality.perplexity,
            "accuracy": quality.accuracy,
            "scores": as_json(job.judge.all_scores(translated, target)),
            "seconds": round(time.perf_counter() - begin, 1),
        }
    look = choose_look_for(Translator(model, job.prepared.tokenizers, job.recipe.decode), job.recipe)
    return found if look is None else {**found, "alignment": look.to_scores()}


def _facts(job: Job, standing: Standing, reason: str, chosen: str) -> dict[str, Any]:
    """What `scores.json` says of a training."""
    workers = job.workers
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
            "device": device_name(workers.device),
            "torch": torch.__version__,
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
        },
    }


def _last(run: Path) -> list[Path]:
    """Weights kept to be averaged, the last first."""
    return sorted((run / FOLDER).glob("step-*.safetensors"), reverse=True)
