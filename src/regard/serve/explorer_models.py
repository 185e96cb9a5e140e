"""The models of the explorer: loaded before it starts, or trained in the background while the page shows progress."""

import asyncio
import hashlib
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from regard.data.cache import cache_folder
from regard.explore import ExploredPredictor, Explorer, ModelInfo, model_info
from regard.predict import Translator
from regard.recipe import Recipe, dump
from regard.serve.app import make_app
from regard.serve.errors import send_error
from regard.serve.health import Health
from regard.serve.languages import LanguagePair
from regard.serve.origins import POLICY_VIOLATION
from regard.serve.server import log_line
from regard.serve.settings import ServerSettings
from regard.serve.translator_service import TranslatorService
from regard.tasks import load_translator
from regard.train.events import Event, Finished, Progress, Started, Validated
from regard.train.loop import train
from regard.train.report.log import LogWriter

log = logging.getLogger(__name__)

LoadedModels = dict[str, tuple[ExploredPredictor, ModelInfo]]
"""Models by name, each with the description of its text."""
TrainingStatus = dict[str, Any]
"""Progress of a training, as the fields of a message to the page."""


def training_folder(recipe: Recipe) -> Path:
    """Return the folder in the cache for the model that a recipe trains."""
    digest = hashlib.sha256(dump(recipe).encode()).hexdigest()[:12]
    return cache_folder() / "look" / f"{recipe.name}-{digest}"


class BackgroundTraining:
    """Trains the model of a recipe in a thread, unless its folder has it already, and reports progress."""

    def __init__(self, recipe: Recipe, folder: Path, device: str = "auto") -> None:
        """Train in `folder`, where an interrupted training is resumed."""
        self.recipe, self.folder, self.device = recipe, folder, device
        self.status: TrainingStatus = {"message": "a small model is being trained", "done": None}
        self.finished, self._stop = False, threading.Event()
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> tuple[Translator, ModelInfo]:
        """Train the model if needed, and load it."""
        self._loop = asyncio.get_running_loop()
        try:
            return await asyncio.to_thread(self._train_and_load)
        finally:
            self.finished = True
            self._publish(self.status)

    def stop(self) -> None:
        """Stop the training at its next event. The last checkpoint is kept."""
        self._stop.set()

    async def follow(self, on_status: Callable[[TrainingStatus], Awaitable[None]]) -> None:
        """Report the status whenever it changes, until the training is finished."""
        while not self.finished:
            changed = self._changed
            await on_status(self.status)
            await changed.wait()

    def _train_and_load(self) -> tuple[Translator, ModelInfo]:
        if not (self.folder / "finished").is_file():
            self._train()
            (self.folder / "finished").touch()
        self._publish({"message": "the model is being loaded", "done": 1.0})
        return load_translator(self.folder, self.device), model_info(self.recipe, str(self.folder))

    def _train(self) -> None:
        events = train(self.recipe, self.folder, self.device, self._on_preparation)
        first = next(events)
        try:
            with LogWriter(self.folder) as log:
                log.write(first)
                self._on_event(first)
                for event in events:
                    log.write(event)
                    self._on_event(event)
                    if self._stop.is_set() and not isinstance(event, Finished):
                        raise ValueError("the training was stopped; the next start resumes it")
        finally:
            events.close()

    def _on_preparation(self, task: str, pairs: int) -> None:
        if self._stop.is_set():
            raise ValueError("the training was stopped")
        self._publish({"message": task, "done": None})

    def _on_event(self, event: Event) -> None:
        """Update the status after an event of the training loop."""
        status = dict(self.status)
        match event:
            case Started() | Progress():
                steps = event.steps or None  # unknown at first if the time is limited
                status |= {"step": event.step, "steps": steps, "done": event.step / steps if steps else None}
                status["message"] = f"training step {event.step}" + (f" of {steps}" if steps else "")
                if isinstance(event, Progress):
                    status["loss"] = event.loss
            case Validated() if event.samples:
                sample = event.samples[0]
                status["sample"] = {
                    "source": sample.input,
                    "reference": sample.reference,
                    "translation": sample.output,
                }
            case _:
                return
        self._publish(status)

    def _publish(self, status: TrainingStatus) -> None:
        """Set the status, from any thread."""
        assert self._loop is not None, "a status is published only while the training runs"
        self._loop.call_soon_threadsafe(self._set_status, status)

    def _set_status(self, status: TrainingStatus) -> None:
        self.status, changed, self._changed = status, self._changed, asyncio.Event()
        changed.set()


class ExplorerModels:
    """The models that the explorer shows, and the HTTP API that serves them, once they are available."""

    def __init__(self, settings: ServerSettings, training: BackgroundTraining | None) -> None:
        """Start without models."""
        self.settings, self.training = settings, training
        self.explorer, self.api = Explorer({}), FastAPI()
        self.services: dict[str, TranslatorService] = {}
        self.locks: dict[str, asyncio.Lock] = {}
        """Held while a question about a model is answered, so that each model answers one at a time."""
        self.thread_locks: dict[str, threading.Lock] = {}
        """Held by the thread that uses the taps of a model, which may go on after the client has disconnected."""
        self.error: str | None = None
        self._available, self._running = asyncio.Event(), AsyncExitStack()

    async def open(self, models: LoadedModels) -> None:
        """Make models available, and start the workers of those that the HTTP API serves."""
        predictors = {name: predictor for name, (predictor, _) in models.items()}
        translators = {name: model for name, model in predictors.items() if isinstance(model, Translator)}
        languages = {
            name: [LanguagePair(info.source_language, info.target_language)]
            for name, (_, info) in models.items()
            if info.source_language and info.target_language
        }
        api = make_app(translators, self.settings, languages)
        await self._running.enter_async_context(api.router.lifespan_context(api))
        self.locks = {name: asyncio.Lock() for name in models}
        self.explorer = Explorer(predictors, {name: info for name, (_, info) in models.items()})
        self.api, self.services = api, api.state.models
        self.thread_locks = {
            name: self.services[name].model_lock if name in self.services else threading.Lock() for name in models
        }

    async def train(self) -> None:
        """Train the model and make it available; keep the error if that fails."""
        assert self.training is not None, "called only with a training"
        try:
            model = await self.training.run()
            await self.open({self.training.recipe.name: model})
        except (ValueError, OSError) as error:
            self.error = str(error)
            log_line(f"error: {error}")
        except Exception as error:
            self.error = f"the model could not be trained: {type(error).__name__}"
            log.exception("the model could not be trained")
        finally:
            self._available.set()

    async def wait(self, on_status: Callable[[TrainingStatus], Awaitable[None]]) -> None:
        """Wait until models are available, and report the progress of their training meanwhile.

        Raises:
            ValueError: The training has failed.
        """
        if self.training is not None:
            await self.training.follow(on_status)
            await self._available.wait()
        if self.error is not None:
            raise ValueError(self.error)

    async def close(self) -> None:
        """Stop a training, and the workers once they have finished their jobs."""
        if self.training is not None:
            self.training.stop()
        await self._running.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the HTTP API; answer 503 before there are models, and 404 if it serves none of them."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": "connect to /look"})
            return
        if self.services:
            await self.api(scope, receive, send)
            return
        if scope["path"] == "/live":
            response = await Health().live()
            await response(scope, receive, send)
            return
        if self.explorer.models:
            message = "the HTTP API serves translation models, and there are none here; open / for the explorer"
            await send_error(send, 404, message)
            return
        message = self.error or "the model is still being trained; retry later"
        await send_error(send, 503, message, (b"retry-after", b"5"))
