"""Tasks: one module each. A task defines fields, batches, model, loss, validation and predictor of a kind of run.

    task = make_task(recipe)                  # the task that a recipe names
    translator = load("runs/multi30k")        # what a trained run becomes: a Translator, a TextGenerator, …

A task of your own implements `Task` and is passed to `regard.train.loop.train(recipe, run, task=…)` and
`load_bundle(run, task=…)`; a built-in one is a module here, a case of `make_task` and a line of
`regard.recipe.TASK_FIELDS`.
"""

from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch

from regard.bundle import Bundle, check_folder, find_device, load_bundle_recipe, read_bundle
from regard.predict import (
    BM25Retriever,
    Captioner,
    Chatbot,
    DualEncoderRetriever,
    Forecaster,
    FusedRetriever,
    ImageClassifier,
    KnowledgeBase,
    MaskFiller,
    ReplyRanker,
    Retriever,
    TextClassifier,
    TextGenerator,
    Translator,
    WordTagger,
)
from regard.recipe import TASK_FIELDS, Recipe
from regard.run_files import WEIGHTS
from regard.run_path import find_run
from regard.tasks.captioning import CaptioningTask
from regard.tasks.chat import ChatTask
from regard.tasks.classification import ClassificationTask
from regard.tasks.forecasting import ForecastingTask
from regard.tasks.image_classification import ImageClassificationTask
from regard.tasks.language_model import LanguageModelTask
from regard.tasks.masked_language_model import MaskedLanguageModelTask
from regard.tasks.retrieval import RetrievalTask
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
    "load_forecaster",
    "load_generator",
    "load_image_classifier",
    "load_mask_filler",
    "load_reply_ranker",
    "load_retriever",
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
        case "image_classification":
            return ImageClassificationTask(recipe)
        case "tagging":
            return TaggingTask(recipe)
        case "chat":
            return RetrievalTask(recipe) if recipe.is_retrieval else ChatTask(recipe)
        case "captioning":
            return CaptioningTask(recipe)
        case "forecasting":
            return ForecastingTask(recipe)
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


def load_image_classifier(path: str | Path, device: str = "auto", precision: str = "auto") -> ImageClassifier:
    """Open a trained run as a classifier of pictures; a run of another task raises a ValueError."""
    return _load_as(ImageClassifier, "task = 'image_classification'", path, device, precision)


def load_chatbot(path: str | Path, device: str = "auto", precision: str = "auto") -> Chatbot:
    """Open a trained run as a chatbot that writes replies; a run of another task raises a ValueError."""
    return _load_as(Chatbot, "task = 'chat' and chat.objective = 'generate'", path, device, precision)


def load_reply_ranker(path: str | Path, device: str = "auto", precision: str = "auto") -> ReplyRanker:
    """Open a trained run as a ranker of replies; a run of another task raises a ValueError."""
    return _load_as(ReplyRanker, "task = 'chat' and chat.objective = 'retrieve'", path, device, precision)


def load_retriever(
    knowledge: str | Path | KnowledgeBase,
    run: str | Path | None = None,
    method: Literal["bm25", "dual", "both"] | None = None,
    device: str = "auto",
    precision: str = "auto",
) -> Retriever:
    """Open a knowledge base to retrieve replies from.

    Args:
        knowledge: The knowledge base, or its file; see `KnowledgeBase.read`.
        run: A dual encoder: a run of task = 'chat' with chat.objective = 'retrieve'.
        method: `bm25` compares the words of history and question, `dual` the vectors of history and reply, `both`
            combines them. Default: `both` with a run, `bm25` without.
        device: Where the dual encoder runs; `auto` takes a GPU if there is one.
        precision: Precision of the dual encoder: `auto`, `float32` or `bfloat16`.

    Raises:
        ValueError: The knowledge base has no pairs; the run is no dual encoder; or the method needs a run.
    """
    method = method or ("bm25" if run is None else "both")
    if method not in ("bm25", "dual", "both"):
        raise ValueError(f"there is no method '{method}' of retrieval; choose bm25, dual or both")
    if method != "bm25" and run is None:
        raise ValueError(
            f"method = '{method}' needs a dual encoder: give a run of task = 'chat' and chat.objective = 'retrieve', "
            "or use method = 'bm25'"
        )
    # The run is opened first: reading a large knowledge base takes longer than finding a wrong path.
    ranker = None if method == "bm25" or run is None else load_reply_ranker(run, device, precision)
    base = knowledge if isinstance(knowledge, KnowledgeBase) else KnowledgeBase.read(knowledge)
    if ranker is None:
        return BM25Retriever(base)
    dual = DualEncoderRetriever(ranker, base)
    return dual if method == "dual" else FusedRetriever(BM25Retriever(base), dual)


def load_forecaster(path: str | Path, device: str = "auto", precision: str = "auto") -> Forecaster:
    """Open a trained run as a forecaster; a run of another task raises a ValueError."""
    return _load_as(Forecaster, "task = 'forecasting'", path, device, precision)


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
    if recipe.task == "chat":
        trained += f" and chat.objective = '{recipe.chat.objective}'"
        hint = "; `regard chat` uses such a run"
    return ValueError(f"{path} was trained with {trained}, but this needs a run with {needed}{hint}")
