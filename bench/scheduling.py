"""Scheduling in `regard serve`: clients with different options, and short lines beside costly requests.

    python bench/scheduling.py                              # random weights of the small model, phrasebook lines
    python bench/scheduling.py --before ../main/src         # compared with another version of the package

64 clients send lines with equal options (beam 5), and then lines of which each has options of its own: beam widths,
penalties, numbers of results and sampling options, with five rows on average. Then two costly requests run (minimum
Bayes risk of 32 samples; beam 32 with 32 results and alignments), while one client sends short lines, one after the
other. All versions take turns, and each result is the median round; the ratios matter most.
"""

import argparse
import selectors
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import regard
from measure import percentile
from regard.data.phrasebook import phrases
from serve import Client, load_server, request_bytes, server_command
from server_process import Server, make_run, served

EQUAL: list[dict[str, Any]] = [{"beam": 5}]
MIXED: list[dict[str, Any]] = [
    {"beam": rows, "length_penalty": 0.5 + number / 64, "nbest": 1 + number % rows}
    if number % 2
    else {"sample": True, "nbest": rows, "temperature": 0.5 + number / 64, "top_k": 5 + number, "seed": number}
    for number in range(64)
    for rows in [2 + number // 2 % 7]
]
COSTLY: list[dict[str, Any]] = [{"mbr": 32}, {"beam": 32, "nbest": 32, "alignments": True}]
COSTLY_LINES = 20


@dataclass(frozen=True)
class Round:
    """What one round measured on one server."""

    equal: float
    """Lines per second of clients with equal options."""
    mixed: float
    """Lines per second of clients with different options."""
    alone: list[float]
    """Latencies of short lines on the idle server, in milliseconds."""
    beside: list[float]
    """Latencies of short lines beside two costly requests."""
    costly: list[float]
    """Latencies of the costly requests."""


def measure(server: Server, lines: Sequence[str], clients: int, short: int) -> Round:
    """Run one round."""
    equal, mixed = (load_server(server, bodies(lines, settings), clients).rate for settings in (EQUAL, MIXED))
    alone = load_server(server, bodies(lines[:short], EQUAL), 1).milliseconds
    costly = [request_bytes({"source": lines[:COSTLY_LINES], **settings}) for settings in COSTLY]
    return Round(equal, mixed, alone, *short_beside_costly(server, lines, costly))


def bodies(lines: Sequence[str], settings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a request for each line, with these settings in turn."""
    return [{"source": line, **some} for line, some in zip(lines, cycle(settings), strict=False)]


def short_beside_costly(
    server: Server, lines: Sequence[str], costly: Sequence[bytes]
) -> tuple[list[float], list[float]]:
    """Send short lines until the costly requests are answered; return the latencies of both."""
    selector, short, latencies = selectors.DefaultSelector(), Client(server.port), dict[Client, list[float]]()
    for request in costly:
        latencies[costly_client := Client(server.port)] = []
        selector.register(costly_client.socket, selectors.EVENT_READ, costly_client)
        costly_client.send(request)
    selector.register(short.socket, selectors.EVENT_READ, short)
    latencies[short] = []
    requests = _repeat(lines)
    short.send(next(requests))
    while not all(latencies.values()):
        for key, _ in selector.select():
            client: Client = key.data
            if client.receive():
                latencies[client].append(1000 * (time.perf_counter() - client.start))
                if client is short:
                    client.send(next(requests))
                else:
                    selector.unregister(client.socket)
    for client in latencies:
        client.socket.close()
    return latencies.pop(short), [milliseconds for (milliseconds,) in latencies.values()]


def _repeat(lines: Sequence[str]) -> Iterator[bytes]:
    while True:
        for line in lines:
            yield request_bytes({"source": line, **EQUAL[0]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", help="a folder with another version of the package, to compare with")
    parser.add_argument("--run", help="a run that all versions can read; default: random weights")
    parser.add_argument("--size", default="small", help="of the model with random weights")
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    lines = [phrase.source for phrase in phrases("de", "test", options.requests)]
    versions = {"now": str(Path(regard.__file__).parents[1])}
    if options.before:
        versions = {"before": options.before, **versions}
    rounds: dict[str, list[Round]] = {name: [] for name in versions}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        if options.run is None:
            make_run(Path(folder), options.size, beam=5, longest=1.0)
        command = [*server_command(options.run or folder), "--max-seconds", "300"]
        servers = {name: stack.enter_context(served(command, PYTHONPATH=source)) for name, source in versions.items()}
        for server in servers.values():
            load_server(server, bodies(lines[:64], EQUAL), options.clients)
        for _ in range(options.rounds):
            for name, server in servers.items():
                rounds[name].append(measure(server, lines, options.clients, short=10))
    print(
        "         equal, lines/s   mixed   mixed/equal   short line alone, p50 ms   beside costly p50, p95   costly, s"
    )
    for name, measured in rounds.items():
        alone, beside, costly = (
            [value for one in measured for value in getattr(one, part)] for part in ("alone", "beside", "costly")
        )
        equal, mixed = (statistics.median(getattr(one, part) for one in measured) for part in ("equal", "mixed"))
        ratio = statistics.median(one.mixed / one.equal for one in measured)
        print(
            f"{name:8} {equal:14.1f} {mixed:7.1f} {ratio:13.2f} {percentile(alone, 0.5):26.0f} "
            f"{percentile(beside, 0.5):17.0f} {percentile(beside, 0.95):6.0f} {statistics.mean(costly) / 1000:11.1f}"
        )
    if options.before:
        before, now = rounds.values()
        for part in ("equal", "mixed"):
            ratios = [getattr(b, part) / getattr(a, part) for a, b in zip(before, now, strict=True)]
            print(f"{part} options, now / before: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
