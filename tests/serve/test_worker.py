"""A worker by itself: when its steps may use more than one thread."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from tests.serve.test_queue import ImmediateLoop

from regard.predict import Translation, TranslationOptions, TranslationRequest, Translator
from regard.serve import worker
from regard.serve.metrics import Metrics
from regard.serve.queue import JobQueue, PendingResponse, TranslationJob
from regard.serve.translator_service import TranslatorService


@pytest.mark.parametrize(("count", "threads"), [(1, 3), (2, 1)])
def test_only_the_steps_of_a_single_line_use_several_threads(
    count: int, threads: int, translator: Translator, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed, results = list[int](), dict[int, Any]()

    @contextmanager
    def single_threaded(threads: int) -> Iterator[None]:
        allowed.append(threads)
        yield

    monkeypatch.setattr(worker, "single_threaded", single_threaded)
    service = TranslatorService("model", translator, JobQueue(8, 1), Metrics())
    response = PendingResponse(ImmediateLoop(), results.__setitem__)
    options = TranslationOptions()
    service.queue.put(
        [TranslationJob(response, at, TranslationRequest(line), options) for at, line in enumerate(lines[:count])]
    )
    service.queue.close()
    thread = worker.Worker(service, 0, threads=3)
    thread.start()
    thread.join()
    assert set(_first_steps(allowed, results)) == {threads}
    expected = translator.translate(lines[:count])
    assert [results[index].text for index in range(count)] == [translation.text for translation in expected]


def _first_steps(allowed: Sequence[int], results: dict[int, Translation]) -> Sequence[int]:
    """Return the thread counts of the steps before any line was finished."""
    return allowed[: min(len(translation.tokens) for translation in results.values())]
