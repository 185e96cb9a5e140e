"""A model that is made while one watches: trained in a thread, and told of as it learns."""

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from regard.analysis.look import About, about
from regard.data.cache import cache_folder
from regard.recipe import Recipe, dump
from regard.train.events import Event, Finished, Progress, Started, Validated
from regard.train.journal import Journal
from regard.train.loop import train
from regard.translator import Translator, load

News = dict[str, Any]
"""How far it is, as a frame's message has it."""


def kept_at(recipe: Recipe) -> Path:
    """The folder in the cache where the model of a recipe is kept."""
    mark = hashlib.sha256(dump(recipe).encode()).hexdigest()[:12]
    return cache_folder() / "look" / f"{recipe.name}-{mark}"


class Making:
    """The model of a recipe, trained if it is not there yet."""

    def __init__(self, recipe: Recipe, folder: Path, device: str = "auto") -> None:
        """Make it in a folder, where a training that was broken off goes on."""
        self.recipe, self.folder, self.device = recipe, folder, device
        self.news: News = {"message": "a small model is being made", "done": None}
        self.over, self._stop = False, threading.Event()
        self._changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> tuple[Translator, About]:
        """Train, and open what was trained."""
        self._loop = asyncio.get_running_loop()
        try:
            return await asyncio.to_thread(self._make)
        finally:
            self.over = True
            self._tell({})

    def stop(self) -> None:
        """Let training end at the next word it says; what was saved stays."""
        self._stop.set()

    async def follow(self, tell: Callable[[News], Awaitable[None]]) -> None:
        """Tell the news as they come until all is over."""
        while not self.over:
            changed = self._changed
            await tell(self.news)
            await changed.wait()

    def _make(self) -> tuple[Translator, About]:
        if not (self.folder / "finished").is_file():
            self._train()
            (self.folder / "finished").touch()
        self._tell({"message": "the model is being opened", "done": 1.0})
        return load(self.folder, self.device), about(self.recipe, str(self.folder))

    def _train(self) -> None:
        events = train(self.recipe, self.folder, self.device, self._prepare)
        first = next(events)
        try:
            with Journal(self.folder) as journal:
                journal.write(first)
                self._hear(first)
                for event in events:
                    journal.write(event)
                    self._hear(event)
                    if self._stop.is_set() and not isinstance(event, Finished):
                        raise ValueError("the making of the model was stopped; it goes on from there the next time")
        finally:
            events.close()

    def _prepare(self, task: str, pairs: int) -> None:
        if self._stop.is_set():
            raise ValueError("the making of the model was stopped")
        self._tell({"message": task, "done": None})

    def _hear(self, event: Event) -> None:
        """What an event of training means to who watches."""
        news, steps = dict(self.news), self.recipe.train.steps
        match event:
            case Started() | Progress():
                news |= {"step": event.step, "steps": steps, "done": event.step / steps}
                news["message"] = f"training step {event.step} of {steps}"
                if isinstance(event, Progress):
                    news["loss"] = event.loss
            case Validated() if event.samples:
                sample = event.samples[0]
                news["sample"] = {
                    "source": sample.source,
                    "reference": sample.reference,
                    "translation": sample.translation,
                }
            case _:
                return
        self._tell(news)

    def _tell(self, news: News) -> None:
        """Let everybody who follows know, from any thread."""
        assert self._loop is not None, "news come from a making that runs"
        self._loop.call_soon_threadsafe(self._told, news or self.news)

    def _told(self, news: News) -> None:
        self.news, changed, self._changed = news, self._changed, asyncio.Event()
        changed.set()
