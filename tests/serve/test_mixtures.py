"""Whatever is asked for together, by many at a time, is given or refused: no mixture of options is a fault here."""

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.serve.talk import Server

ODD = ("▁", "\u200b", "\U0001f600", "\n", "<2de>", "</s>", "\x00", "日本", "\u0301", "x" * 50)
REQUESTS = 120


def mixture(draw: random.Random, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Options as they come, phrases from what the model knows among them."""
    target = draw.choice(pairs)[1].split()

    def phrases(most: int) -> list[str]:
        begin = draw.randrange(len(target))
        known = [" ".join(target[begin : begin + 2]), draw.choice(target), draw.choice(target)[:2]]
        return [draw.choice([*known, draw.choice(ODD)]) for _ in range(draw.randint(0, most))]

    every = {
        "avoid": phrases(6),
        "constraints": phrases(3),
        "prefix": draw.choice([" ".join(target[:3]), draw.choice(ODD)]),
        "beam": draw.randint(1, 8),
        "nbest": draw.randint(1, 8),
        "sample": draw.random() < 0.5,
        "mbr": draw.randint(0, 8),
        "no_repeat": draw.randint(0, 3),
        "max_length": draw.choice([1, 4, 60]),
        "coverage_penalty": 0.2,
        "alignments": True,
    }
    source = [draw.choice(pairs)[0], draw.choice(ODD)][: draw.randint(1, 2)]
    return {"source": source, **{name: value for name, value in every.items() if draw.random() < 0.35}}


def test_no_mixture_of_options_is_a_fault_of_the_server(server: Server, pairs: list[tuple[str, str]]) -> None:
    draw = random.Random(5)
    asked = [mixture(draw, pairs) for _ in range(REQUESTS)]
    faults = server.figure("regard_worker_faults_total")
    with ThreadPoolExecutor(12) as clients:
        said = list(clients.map(lambda each: server.ask("/translate", each), asked))
    assert [(one.status, each) for one, each in zip(said, asked, strict=True) if one.status not in (200, 422)] == []
    assert {200, 422} == {one.status for one in said}
    assert server.figure("regard_worker_faults_total") == faults
