"""Tasks: one module each. A task defines fields, batches, model, loss, validation and predictor of a kind of run.

    task = make_task(recipe)                  # the task that a recipe names
    translator = load("runs/multi30k")        # what a trained run becomes: a Translator, a TextGenerator, …

A task of your own implements `Task` and is passed to `regard.train.loop.train(recipe, run, task=…)` and
`load_bundle(run, task=…)`; a built-in one is a module here, a case of `make_task` and a line of
`regard.recipe.TASK_FIELDS`.
"""

from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import torch

from regard.bundle import Bundle, check_folder, find_device, load_bundle_recipe, read_bundle
from regard.predict import Captioner, Chatbot, MaskFiller, TextClassifier, TextGenerator, Translator, WordTagger
from regard.recipe import TASK_FIELDS, Recipe
from regard.run_files import WEIGHTS
from regard.run_path import find_run
from regard.tasks.captioning import CaptioningTask
from regard.tasks.chat import ChatTask
from regard.tasks.classification import ClassificationTask
from regard.tasks.language_model import LanguageModelTask
from regard.tasks.masked_language_model import MaskedLanguageModelTask
from regard.tasks.tagging import TaggingTask
from regard.tasks.task import AttentionMap, Predictions, ProcessGroup, Sample, Task
from regard.tasks.translation import TranslationTask

__all__ = [
    "AttentionMap",
    "Predictions",
    "ProcessGroup",
    "Sample",
    "Task",
    "load",
    "load_bundle",
    "load_captioner",
    "load_chatbot",
    "load_classifier",
    "load_generator",
    "load_mask_filler",
    "load_tagger",
    "load_translator",
    "make_task",
]


Predictor = TypeVar("Predictor")


def make_task(recipe: Recipe) -> Task:
    """Return the task that a recipe names."""
    match recipe.task:
        case "translation":
            return TranslationTask(recipe)
        case "language_model":
            return MaskedLanguageModelTask(recipe) if recipe.is_masked else LanguageModelTask(recipe)
        case "classification":
            return ClassificationTask(recipe)
        case "tagging":
            return TaggingTask(recipe)
        case "chat":
            return ChatTask(recipe)
        case "captioning":
            return CaptioningTask(recipe)
        case unknown:
            similar = get_close_matches(unknown, TASK_FIELDS, n=1)
            hint = f"did you mean '{similar[0]}'?" if similar else f"the tasks are {', '.join(TASK_FIELDS)}"
            raise ValueError(f"task = '{unknown}': there is no such task; {hint}")


def load_bundle(folder: str | Path, device: str | torch.device = "cpu", task: Task | None = None) -> Bundle:
    """Open a trained run: recipe, vocabularies, model and scores; the model is in evaluation mode on the device.

    Args:
        folder: The folder of the run; or other weights of it: a file such as `weights/best.safetensors`, or a
            checkpoint, such as `checkpoints/step-00000400`.
        device: `cpu`, `cuda`, `cuda:1`, …, or `auto`.
        task: The task of the run, if it is not one of the built-in ones.
    """
    run = find_run(folder)
    if run.weights == run.folder / WEIGHTS:
        check_folder(run.folder)
    recipe = load_bundle_recipe(run.folder)
    return read_bundle(run.folder, recipe, task or make_task(recipe), find_device(device), run.weights)


def load(path: str | Path, device: str = "auto", precision: str = "auto", task: Task | None = None) -> Any:
    """Open a trained run as what it was trained for: a `Translator`, a `TextGenerator`, …

    Args:
        path: The folder of the run; or other weights of it, as for `load_bundle`.
        device: `auto` takes a GPU if there is one.
        precision: `auto`, `float32`, `bfloat16` or `int8`.
        task: The task of the run, if it is not one of the built-in ones.
    """
    bundle = load_bundle(path, device, task)
    return (task or make_task(bundle.recipe)).predictor(bundle, precision)


def load_translator(path: str | Path, device: str = "auto", precision: str = "auto") -> Translator:
    """Open a trained run as a translator; a run of another task raises a ValueError."""
    return _load_as(Translator, "task = 'translation'", path, device, precision)


def load_generator(path: str | Path, device: str = "auto", precision: str = "auto") -> TextGenerator:
    """Open a trained run as a text generator; a run of another task raises a ValueError."""
    return _load_as(
        TextGenerator, "task = 'language_model' and language_model.objective = 'next'", path, device, precision
    )


def load_mask_filler(path: str | Path, device: str = "auto", precision: str = "auto") -> MaskFiller:
    """Open a trained run as a mask filler; a run of another task raises a ValueError."""
    return _load_as(
        MaskFiller, "task = 'language_model' and language_model.objective = 'masked'", path, device, precision
    )


def load_classifier(path: str | Path, device: str = "auto", precision: str = "auto") -> TextClassifier:
    """Open a trained run as a text classifier; a run of another task raises a ValueError."""
    return _load_as(TextClassifier, "task = 'classification'", path, device, precision)


def load_chatbot(path: str | Path, device: str = "auto", precision: str = "auto") -> Chatbot:
    """Open a trained run as a chatbot that writes replies; a run of another task raises a ValueError."""
    return _load_as(Chatbot, "task = 'chat' and chat.objective = 'generate'", path, device, precision)


def load_captioner(path: str | Path, device: str = "auto", precision: str = "auto") -> Captioner:
    """Open a trained run as a captioner of pictures; a run of another task raises a ValueError."""
    return _load_as(Captioner, "task = 'captioning'", path, device, precision)


def load_tagger(path: str | Path, device: str = "auto", precision: str = "auto") -> WordTagger:
    """Open a trained run as a tagger of words; a run of another task raises a ValueError."""
    return _load_as(WordTagger, "task = 'tagging'", path, device, precision)


def _load_as(kind: type[Predictor], needed: str, path: str | Path, device: str, precision: str) -> Predictor:
    """Open a trained run whose predictor must be of a kind; `needed` are the settings of such runs, for the error."""
    predictor = load(path, device, precision)
    if not isinstance(predictor, kind):
        raise _wrong_task(path, needed)
    return predictor


def _wrong_task(path: str | Path, needed: str) -> ValueError:
    """Return the error for a run that was trained for something else."""
    recipe = load_bundle_recipe(find_run(path).folder)
    trained, hint = f"task = '{recipe.task}'", ""
    if recipe.task == "language_model":
        trained += f" and language_model.objective = '{recipe.language_model.objective}'"
        hint = f"; `regard {'fill' if recipe.is_masked else 'generate'}` uses such a run"
    return ValueError(f"{path} was trained with {trained}, but this needs a run with {needed}{hint}")
