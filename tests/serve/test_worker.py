"""A worker by itself: who may have more than its one thread."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from tests.serve.test_queue import AtOnce

from regard.serve import worker
from regard.serve.meter import Meter
from regard.serve.queue import Line, Order, Queue
from regard.serve.served import Served
from regard.translator import Translation, Translator
from regard.translator.options import Options, Request


@pytest.mark.parametrize(("count", "threads"), [(1, 3), (2, 1)])
def test_only_the_steps_of_a_lone_line_may_be_shared(
    count: int, threads: int, translator: Translator, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed, found = list[int](), dict[int, Any]()

    @contextmanager
    def alone(threads: int) -> Iterator[None]:
        allowed.append(threads)
        yield

    monkeypatch.setattr(worker, "alone", alone)
    served = Served("model", translator, Queue(8, 1), Meter())
    order = Order(AtOnce(), found.__setitem__)
    served.queue.put([Line(order, at, Request(line), Options()) for at, line in enumerate(lines[:count])])
    served.queue.close()
    one = worker.Worker(served, 0, threads=3)
    one.start()
    one.join()
    assert set(_first(allowed, found)) == {threads}
    expected = translator.translate(lines[:count])
    assert [found[at].text for at in range(count)] == [each.text for each in expected]


def _first(allowed: Sequence[int], found: dict[int, Translation]) -> Sequence[int]:
    """The steps before anybody was done."""
    return allowed[: min(len(each.tokens) for each in found.values())]
