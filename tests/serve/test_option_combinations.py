"""No combination of decoding options, sent by many clients at a time, is an internal error."""

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.serve.client import Server

ODD = ("▁", "\u200b", "\U0001f600", "\n", "<2de>", "</s>", "\x00", "日本", "\u0301", "x" * 50)
REQUESTS = 120


def random_request(generator: random.Random, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Return a request with random options, some with phrases that the model knows."""
    target = generator.choice(pairs)[1].split()

    def phrases(maximum: int) -> list[str]:
        start = generator.randrange(len(target))
        known = [" ".join(target[start : start + 2]), generator.choice(target), generator.choice(target)[:2]]
        return [generator.choice([*known, generator.choice(ODD)]) for _ in range(generator.randint(0, maximum))]

    options = {
        "avoid": phrases(6),
        "constraints": phrases(3),
        "prefix": generator.choice([" ".join(target[:3]), generator.choice(ODD)]),
        "beam": generator.randint(1, 8),
        "nbest": generator.randint(1, 8),
        "sample": generator.random() < 0.5,
        "mbr": generator.randint(0, 8),
        "no_repeat": generator.randint(0, 3),
        "max_length": generator.choice([1, 4, 60]),
        "coverage_penalty": 0.2,
        "alignments": True,
    }
    source = [generator.choice(pairs)[0], generator.choice(ODD)][: generator.randint(1, 2)]
    return {"source": source, **{name: value for name, value in options.items() if generator.random() < 0.35}}


def test_no_combination_of_options_is_an_internal_error(server: Server, pairs: list[tuple[str, str]]) -> None:
    generator = random.Random(5)
    requests = [random_request(generator, pairs) for _ in range(REQUESTS)]
    faults = server.metric("regard_worker_faults_total")
    with ThreadPoolExecutor(12) as clients:
        responses = list(clients.map(lambda request: server.request("/translate", request), requests))
    statuses = [response.status for response in responses]
    assert [pair for pair in zip(statuses, requests, strict=True) if pair[0] not in (200, 422)] == []
    assert {200, 422} == set(statuses)
    assert server.metric("regard_worker_faults_total") == faults
