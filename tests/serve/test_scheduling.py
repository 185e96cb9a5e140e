"""Clients share a model by what their lines cost: a short line passes costly requests, and no request starves."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from select import select
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.serve.client import running_server, serve_command
from tests.serve.test_queue import ImmediateLoop

from regard.predict import TranslationOptions, TranslationRequest, Translator
from regard.serve.fair_queue import FairQueue
from regard.serve.metrics import Metrics
from regard.serve.queue import JobQueue, PendingResponse, TranslationJob
from regard.serve.scheduling import MAX_ROWS, MIN_STEP_ROWS, StepShares
from regard.serve.service import PATIENCE
from regard.serve.translator_service import TranslatorService
from regard.serve.worker import Worker

HEAVY = [
    TranslationOptions(mbr=32, sample=True, min_length=60),
    TranslationOptions(beam=32, nbest=32, alignments=True, min_length=60),
]
SHORT = TranslationOptions()


@dataclass(frozen=True, eq=False)
class Waiting:
    """An item of a response."""

    response: PendingResponse
    cost: float
    number: int


def open_response(client: str = "") -> PendingResponse:
    return PendingResponse(ImmediateLoop(), lambda index, result: None, client=client)


def push(queue: FairQueue[Waiting], response: PendingResponse, costs: Sequence[float]) -> list[Waiting]:
    items = [Waiting(response, cost, number) for number, cost in enumerate(costs)]
    for item in items:
        queue.push(item)
    return items


costs = st.lists(st.integers(1, 50).map(float), min_size=1, max_size=8)


@given(st.lists(st.tuples(st.sampled_from("abc"), costs), min_size=1, max_size=6))
def test_every_item_is_popped_once_and_in_the_order_of_its_request(requests: list[tuple[str, list[float]]]) -> None:
    queue = FairQueue[Waiting]()
    items = [item for client, costs in requests for item in push(queue, open_response(client), costs)]
    popped = [queue.pop() for _ in items]
    assert queue.pop() is None
    assert len(queue) == 0
    assert {id(item) for item in popped} == {id(item) for item in items}
    of_request = defaultdict(list)
    for item in popped:
        assert item is not None
        of_request[item.response].append(item.number)
    assert all(numbers == sorted(numbers) for numbers in of_request.values())


@given(st.lists(st.lists(st.integers(1, 50).map(float), min_size=8, max_size=8), min_size=2, max_size=5), st.booleans())
def test_requests_that_wait_are_served_at_equal_cost(requests: list[list[float]], same_client: bool) -> None:
    """While all wait, what two of them were given differs by at most the cost of an item of each."""
    queue = FairQueue[Waiting]()
    responses = [open_response("" if same_client else str(number)) for number in range(len(requests))]
    for response, costs in zip(responses, requests, strict=True):
        push(queue, response, costs)
    served = dict.fromkeys(responses, 0.0)
    left = dict.fromkeys(responses, 8)
    while all(left.values()):
        item = queue.pop()
        assert item is not None
        served[item.response] += item.cost
        left[item.response] -= 1
        assert max(served.values()) - min(served.values()) <= 2 * max(max(costs) for costs in requests)


@given(st.integers(1, 6), st.integers(1, 40))
def test_a_client_gains_nothing_by_sending_many_requests(requests: int, lines: int) -> None:
    queue, single = FairQueue[Waiting](), open_response("single")
    for _ in range(requests):
        push(queue, open_response("many"), [1.0] * 10)
    push(queue, single, [1.0] * lines)
    first = [item for _ in range(2 * min(lines, 10 * requests)) if (item := queue.pop()) is not None]
    assert abs(sum(item.response is single for item in first) - len(first) / 2) <= 1


def test_a_new_request_is_next_however_much_is_waiting() -> None:
    queue, short = FairQueue[Waiting](), open_response()
    push(queue, open_response(), [500.0] * 100)
    push(queue, open_response(), [500.0] * 100)
    for _ in range(7):
        queue.pop()
    (item,) = push(queue, short, [1.0])
    assert item in [queue.pop() for _ in range(3)]


def test_items_of_a_closed_response_are_dropped() -> None:
    queue, closed, open_ = FairQueue[Waiting](), open_response(), open_response()
    push(queue, closed, [1.0] * 5)
    (item,) = push(queue, open_, [1.0])
    closed.closed = True
    assert queue.pop() is item
    assert len(queue) == 0


@given(st.integers(1, MAX_ROWS[0]), st.integers(1, MAX_ROWS[1]))
def test_narrow_and_wide_lines_get_equal_row_steps(narrow: int, wide: int) -> None:
    """Unless there are fewer wide rows: they make one step for each step of the narrow lines, and not more."""
    shares, steps = StepShares(), 200
    turns = sum(shares.is_turn_of_wide(narrow, wide) for _ in range(steps))
    narrow, wide = max(narrow, MIN_STEP_ROWS), max(wide, MIN_STEP_ROWS)
    assert turns == steps if narrow >= wide else 0 <= steps * narrow - turns * wide < wide


def test_wide_lines_make_every_step_while_there_are_no_narrow_ones() -> None:
    shares = StepShares()
    assert all(shares.is_turn_of_wide(0, 320) for _ in range(5))


class Client:
    """Puts requests into the queue of a worker that is advanced step by step, in this thread."""

    def __init__(self, translator: Translator) -> None:
        self.service = TranslatorService("model", translator, JobQueue(2048, 1), Metrics())
        self.worker = Worker(self.service, 0)

    def send(self, lines: Sequence[str], options: TranslationOptions, client: str = "") -> dict[int, Any]:
        """Send a request, and return where its results arrive."""
        results = dict[int, Any]()
        response = PendingResponse(ImmediateLoop(), results.__setitem__, client=client)
        self.service.queue.put(
            [TranslationJob(response, at, TranslationRequest(line), options) for at, line in enumerate(lines)]
        )
        return results

    def steps_until(self, results: dict[int, Any], count: int) -> int:
        """Advance until a request has this many results; return the number of steps."""
        steps = 0
        while len(results) < count:
            assert self.worker._step()
            steps += 1
        return steps


def test_a_short_line_takes_as_many_steps_beside_costly_requests_as_alone(
    translator: Translator, lines: list[str]
) -> None:
    alone = Client(translator)
    steps = alone.steps_until(alone.send(lines[:1], SHORT), 1)
    client = Client(translator)
    heavy = [client.send(lines, options) for options in HEAVY]
    for _ in range(3):
        client.worker._step()
    short = client.send(lines[:1], SHORT)
    assert client.steps_until(short, 1) <= steps + PATIENCE
    assert [len(results) for results in heavy] == [0, 0]
    assert short[0].text == translator.translate(lines[:1])[0].text
    for results in heavy:
        client.steps_until(results, len(lines))


def test_a_short_line_enters_beside_a_request_of_many_lines_of_its_own_width(
    translator: Translator, lines: list[str]
) -> None:
    alone = Client(translator)
    steps = alone.steps_until(alone.send(lines[:1], SHORT), 1)
    client = Client(translator)
    many = client.send(lines * 12, TranslationOptions(min_length=60))
    for _ in range(3):
        client.worker._step()
    assert client.steps_until(client.send(lines[:1], SHORT), 1) <= steps + PATIENCE
    client.steps_until(many, 12 * len(lines))


def test_a_costly_request_goes_on_while_short_lines_keep_coming(translator: Translator, lines: list[str]) -> None:
    client = Client(translator)
    heavy = client.send(lines[:3], HEAVY[1])
    for _ in range(4000):
        if len(heavy) == 3:
            break
        if not client.worker.narrow.has_work:
            client.send(lines[:1], SHORT, client="another")
        client.worker._step()
    assert len(heavy) == 3


def test_one_request_leaves_memory_for_others(translator: Translator, lines: list[str]) -> None:
    client = Client(translator)
    client.send(lines * 12, TranslationOptions(min_length=60))
    client.worker._step()
    assert MAX_ROWS[0] // 4 <= client.worker.narrow.rows <= MAX_ROWS[0] // 2


def test_a_server_answers_a_short_line_while_two_costly_requests_run(memorised: Path, lines: list[str]) -> None:
    costly: list[dict[str, Any]] = [{"mbr": 32}, {"beam": 32, "nbest": 32, "alignments": True}]
    with running_server(serve_command(str(memorised))) as server:
        running = [server.send({"source": lines * 3, "min_length": 60, **options}) for options in costly]
        server.wait_for("regard_batch_sentences_count", 5)
        assert server.request("/translate", {"source": lines[0]}).status == 200
        assert select(running, [], [], 0)[0] == []
        for connection in running:
            connection.close()


def test_lines_with_different_options_share_a_batch_and_get_what_they_get_alone(
    translator: Translator, lines: list[str]
) -> None:
    different: list[dict[str, Any]] = [
        {"beam": 1},
        {"beam": 4, "nbest": 3, "length_penalty": 0.5},
        {"beam": 5, "no_repeat": 3},
        {"beam": 4, "groups": 2, "nbest": 2},
        {"beam": 3, "constraints": ("die",)},
        {"beam": 2, "max_length": 4},
        {"sample": True, "nbest": 3, "temperature": 0.5, "top_k": 4, "seed": 3},
        {"sample": True, "nbest": 2, "top_p": 0.9},
    ]
    client = Client(translator)
    chosen = [translator.options.override(**options) for options in different]
    requests = [client.send([line], options) for line, options in zip(lines, chosen, strict=False)]
    client.worker._step()
    assert len(client.worker.narrow.batches) == 1
    for results, line, options in zip(requests, lines, chosen, strict=False):
        client.steps_until(results, 1)
        (expected,) = translator.stream([line], options)
        assert [one.text for one in results[0].nbest] == [one.text for one in expected.nbest]
