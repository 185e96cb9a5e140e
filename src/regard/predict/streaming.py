"""Text that is shown while it is generated: pieces that are final, and strings that end it."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence

from regard.text import Tokenizer

Emit = Callable[[str], None]
"""Called with each new piece of final text."""


def stream_pieces(generate: Callable[[Emit, threading.Event], object], name: str) -> Iterator[str]:
    """Run `generate` in a thread and yield the pieces that it emits; its exception is raised at the end.

    Args:
        generate: Called with a function that takes pieces, and an event that is set when nobody reads them any more.
        name: Name of the thread.
    """
    pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    failure: list[BaseException] = []
    stopped = threading.Event()

    def run() -> None:
        try:
            generate(pieces.put, stopped)
        except BaseException as error:
            failure.append(error)
        finally:
            pieces.put(None)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        while (piece := pieces.get()) is not None:
            yield piece
    finally:
        stopped.set()
        thread.join()
    if failure:
        raise failure[0]


class OutputMonitor:
    """Decodes the tokens of one hypothesis as they are generated: finds stop strings, and emits text that is final."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: tuple[str, ...],
        emit: Callable[[str], None] | None,
        stopped: threading.Event | None,
    ) -> None:
        """Watch one hypothesis.

        Args:
            tokenizer: The tokenizer of the output.
            stop: Strings that end the text.
            emit: Called with each new piece of final text.
            stopped: Set to end the generation early.
        """
        self.tokenizer, self.stop, self.emit, self.stopped = tokenizer, stop, emit, stopped
        self.emitted = ""

    @property
    def is_needed(self) -> bool:
        """Whether anything depends on single tokens."""
        return bool(self.stop) or self.emit is not None

    def is_complete(self, tokens: Sequence[int]) -> bool:
        """Emit what is final of these tokens; return whether the text ends at a stop string or was stopped."""
        if not self.is_needed:
            return False
        text = self.tokenizer.decode(list(tokens))
        if any(string in text for string in self.stop):
            return True
        self.emit_up_to(final_text(text, self.stop))
        return self.stopped is not None and self.stopped.is_set()

    def emit_up_to(self, text: str) -> None:
        """Emit the part of a text that was not emitted yet."""
        if self.emit is not None and len(text) > len(self.emitted) and text.startswith(self.emitted):
            self.emit(text[len(self.emitted) :])
            self.emitted = text


def text_before_stop(text: str, stop: Sequence[str]) -> str:
    """Return the text before the first stop string."""
    positions = [text.find(string) for string in stop if string in text]
    return text[: min(positions)] if positions else text


def final_text(text: str, stop: Sequence[str]) -> str:
    """Return the part of a text which is final when more tokens follow."""
    if (before := text_before_stop(text, stop)) != text:
        return before
    # The last bytes may be part of a character, and the last characters part of a stop string.
    complete = text.rstrip("\ufffd")
    return complete[: max(0, len(complete) - max(map(len, stop), default=1) + 1)]
