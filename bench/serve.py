"""Serving: 64 clients of `regard serve`, beside the same lines offline and a plain FastAPI + `generate` server.

    python bench/serve.py                                   # random weights of the base model, phrasebook lines
    python bench/serve.py --size small --requests 1024 --rounds 3
    python bench/serve.py --run runs/multi30k --source test.en
    python bench/serve.py --memory 10000                    # how much memory ten thousand requests leave behind

Everybody has the same weights and lines, and both cores. Clients are a second process on loopback, each with one line
a request, its next one sent when the last is answered. Contenders work in turns, round after round; each figure is the
median round, and the ratios are what to read. Who asks alone asks each line twice, of the server and of the translator
in this process, in alternating order; what the two differ by, line by line, is what serving costs. Random weights have
no use for an end, so translations there are as long as they may be: as many tokens as the source, and ten. The plain
server is what one writes first: a route that calls `generate` for its line, in a thread of the pool.
"""

import argparse
import json
import multiprocessing
import selectors
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from regard.bundle import load_bundle
from regard.data.phrasebook import phrases
from regard.files import read_lines
from regard.text.settings import END, PAD, START
from regard.translator import load
from serving import Server, make_run, percentile, served

SPARE = 10
WARM = 10  # lines asked of both before anybody measures what one alone waits


@dataclass(frozen=True)
class Load:
    """How a server was found: lines a second, and the milliseconds of requests."""

    pace: float
    milliseconds: list[float]
    server: float
    """Seconds of processor time a line took the server."""
    client: float
    """And the clients."""

    def percentile(self, share: float) -> float:
        """The time that this share of requests did not exceed."""
        return percentile(self.milliseconds, share)


# The clients: one process, one connection each, kept open. What they send is made beforehand, and of an answer they
# read no more than where it ends, because every cycle they take is one the server does not have.


class Client:
    """A connection that asks one thing after the other."""

    def __init__(self, port: int) -> None:
        """Connect."""
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.begin, self.heard, self.length = 0.0, b"", 0

    def ask(self, request: bytes) -> None:
        """Send a request."""
        self.heard, self.length = b"", 0
        self.begin = time.perf_counter()
        self.socket.sendall(request)

    def hear(self) -> bool:
        """Read what there is; whether the answer is complete."""
        self.heard += self.socket.recv(1 << 16)
        if not self.length and (end := self.heard.find(b"\r\n\r\n")) >= 0:
            if not self.heard.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"a request was answered with {self.heard[:200]!r}")
            told = next(each for each in self.heard[:end].lower().split(b"\r\n") if each.startswith(b"content-length"))
            self.length = end + 4 + int(told.partition(b":")[2])
        return 0 < self.length <= len(self.heard)


def load_server(server: Server, lines: Sequence[str], clients: int, told: dict[str, Any]) -> Load:
    """Lines a second, and milliseconds of each request, when so many clients ask."""
    requests = [_request(line, told) for line in reversed(lines)]
    selector, took = selectors.DefaultSelector(), list[float]()
    theirs, own, begin = server.processor(), time.process_time(), time.perf_counter()
    for _ in range(min(clients, len(requests))):
        client = Client(server.port)
        selector.register(client.socket, selectors.EVENT_READ, client)
        client.ask(requests.pop())
    while len(took) < len(lines):
        for key, _ in selector.select():
            client = key.data
            if client.hear():
                took.append(1000 * (time.perf_counter() - client.begin))
                if requests:
                    client.ask(requests.pop())
    wall, own = time.perf_counter() - begin, time.process_time() - own
    for key in list(selector.get_map().values()):
        key.data.socket.close()
    return Load(len(lines) / wall, took, (server.processor() - theirs) / len(lines), own / len(lines))


def _request(line: str, told: dict[str, Any]) -> bytes:
    """A request as it goes over the wire."""
    body = json.dumps({"source": line, **told}).encode()
    head = (
        f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    return f"{head}\r\n\r\n".encode() + body


# The servers.


def plain(run: str, fixed: bool) -> None:
    """A server as one writes it first: FastAPI, and `generate` for each request."""
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    import decode as peers

    bundle = load_bundle(run)
    model = peers.hf_model(bundle.model).eval()
    torch.set_num_threads(1)  # many requests run at a time; with more threads each, all were slower
    app = FastAPI()

    class Asked(BaseModel):
        source: str

    @app.post("/translate")
    def translate(asked: Asked) -> dict[str, str]:
        ids = [*bundle.tokenizers.source.encode(asked.source), END]
        most = len(ids) - 1 + SPARE if fixed else 2 * len(ids) + SPARE
        told: dict[str, Any] = {"max_new_tokens": most + 1}
        if fixed:
            told["min_new_tokens"] = most + 1
        with torch.inference_mode():
            said = model.generate(
                torch.tensor([ids]), num_beams=bundle.recipe.decode.beam, do_sample=False, pad_token_id=PAD, **told
            )
        kept = [each for each in said[0].tolist() if each not in (START, END, PAD)]
        return {"text": bundle.tokenizers.target.decode(kept)}

    config = uvicorn.Config(app, port=0, log_level="info", access_log=False)
    uvicorn.Server(config).run()


# What is measured.


def offline(run: str, lines: Sequence[str]) -> Callable[[], tuple[float, float]]:
    """Lines a second as `regard translate` has them, and seconds of processor time a line."""
    translator = load(run, "cpu")
    translator.translate(lines[:32])

    def once() -> tuple[float, float]:
        begin, busy = time.perf_counter(), time.process_time()
        translator.translate(lines)
        return len(lines) / (time.perf_counter() - begin), (time.process_time() - busy) / len(lines)

    return once


@dataclass(frozen=True)
class Lone:
    """What a line costs that is asked alone, in milliseconds: of the clock, and of the processor."""

    there: list[tuple[float, float]]
    """Asked of the server."""
    here: list[tuple[float, float]]
    """Asked of the translator in this process."""

    def table(self) -> dict[str, float]:
        """The median of each, and that of what they differ by, line by line."""
        pairs = [(one - other, busy - less) for (one, busy), (other, less) in zip(self.there, self.here, strict=True)]
        found = dict[str, float]()
        for name, each in (("there", self.there), ("here", self.here), ("apart", pairs)):
            wall, busy = zip(*each, strict=True)
            found |= {name: statistics.median(wall), f"{name}_processor": statistics.median(busy)}
        return found


def alone(run: str, server: Server, lines: Sequence[str]) -> Lone:
    """Ask one line at a time, each of both, over one connection that stays open.

    Both have the same engine, whose steps all threads share for a lone line while nobody else computes, and each waits
    while the other works. Who is first changes from line to line.
    """
    translator, client = load(run, "cpu"), Client(server.port)

    def here(line: str) -> tuple[float, float]:
        busy, begin = time.process_time(), time.perf_counter()
        translator.translate([line])
        return 1000 * (time.perf_counter() - begin), 1000 * (time.process_time() - busy)

    def there(line: str) -> tuple[float, float]:
        busy = server.processor()
        client.ask(_request(line, {}))
        while not client.hear():
            pass
        return 1000 * (time.perf_counter() - client.begin), 1000 * (server.processor() - busy)

    for line in lines[:WARM]:
        here(line), there(line)
    found = Lone([], [])
    for number, line in enumerate(lines):
        first, second = (found.there, there), (found.here, here)
        for times, ask in (first, second) if number % 2 else (second, first):
            times.append(ask(line))
    client.socket.close()
    return found


def memory(run: str, lines: Sequence[str], requests: int) -> None:
    """How memory goes over many requests; the first tenth is what a server needs to warm up."""
    told, part = {"beam": 2, "max_length": 4}, max(1, requests // 10)
    with served(ours(run)) as server:
        for number in range(10):
            some = [lines[at % len(lines)] for at in range(number * part, (number + 1) * part)]
            pace = load_server(server, some, 64, told).pace
            print(f"  after {(number + 1) * part:>6,} requests  {server.memory():7.1f} MiB  {pace:7.1f} a second")


def ours(run: str) -> list[str]:
    """The command that serves a run."""
    return [sys.executable, "-m", "regard", "serve", run, "--port", "0", "--device", "cpu"]


def compare(told: argparse.Namespace, run: str, lines: Sequence[str]) -> dict[str, Any]:
    """All contenders in turns."""
    theirs = [sys.executable, __file__, "--plain", run, *(["--fixed"] if told.run is None else [])]
    context = multiprocessing.get_context("spawn")
    with served(ours(run)) as mine, served(theirs) as other, ProcessPoolExecutor(1, context) as clients:

        def ask(server: Server, some: Sequence[str], many: int) -> Load:
            return clients.submit(load_server, server, some, many, {}).result()

        once = offline(run, lines)
        ask(mine, lines[:64], told.clients)
        ask(other, lines[:8], 8)
        paces, found, peers = list[tuple[float, float]](), list[Load](), list[Load]()
        for _ in range(told.rounds):
            paces.append(once())
            found.append(ask(mine, lines, told.clients))
            peers.append(ask(other, lines[: told.plainly], told.clients))
        plain_lone = statistics.median(ask(other, lines[: told.alone], 1).milliseconds)
    # One process may have its weights where memory is quicker, by as much as is measured here: several are asked.
    lone = Lone([], [])
    for _ in range(told.starts):
        with served(ours(run)) as mine:
            each = alone(run, mine, lines[: told.alone])
            lone.there.extend(each.there)
            lone.here.extend(each.here)
    pairs = list(zip(found, paces, strict=True))
    ours_pace, their_pace = (statistics.median(each.pace for each in every) for every in (found, peers))
    return {
        "offline": statistics.median(pace for pace, _ in paces),
        "served": ours_pace,
        "plain": their_pace,
        "of_offline": statistics.median(one.pace / pace for one, (pace, _) in pairs),
        "of_offline_processor": statistics.median(busy / one.server for one, (_, busy) in pairs),
        "client_processor": statistics.median(one.client / (one.client + one.server) for one in found),
        "of_plain": ours_pace / their_pace,
        "percentiles": [[each.percentile(share) for share in (0.5, 0.95, 0.99)] for each in (found[-1], peers[-1])],
        "alone": {**lone.table(), "plain": plain_lone},
    }


def show(found: dict[str, Any]) -> None:
    """What was found, for a reader."""
    ours, theirs = ("  ".join(f"{each:8.0f}" for each in line) for line in found["percentiles"])
    lone = found["alone"]
    print("                          lines/s   p50 ms    p95 ms    p99 ms   one at a time, p50 ms")
    print(f"offline                  {found['offline']:8.1f}  {'':30}{lone['here']:8.1f}")
    print(f"regard serve             {found['served']:8.1f}  {ours}  {lone['there']:8.1f}")
    print(f"FastAPI + HF generate    {found['plain']:8.1f}  {theirs}  {lone['plain']:8.1f}")
    busy = found["of_offline_processor"]
    print(f"served / offline {found['of_offline']:.2f} ({busy:.2f} by processor time of the server alone)")
    print(f"the clients took {found['client_processor']:.1%} of the processor time of both")
    print(f"served / plain {found['of_plain']:.2f}")
    print(
        f"a lone request takes {lone['apart']:+.1f} ms beside the call in this process, the median of pairs; of the "
        f"processor {lone['there_processor']:.1f} beside {lone['here_processor']:.1f}, {lone['apart_processor']:+.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", help="a trained run; random weights if not told")
    parser.add_argument("--source", help="lines to translate; phrasebook lines if not told")
    parser.add_argument("--size", default="base", help="of random weights")
    parser.add_argument("--beam", type=int, default=5, help="of random weights")
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", type=int, default=40, help="lines asked one at a time")
    parser.add_argument("--starts", type=int, default=3, help="servers and translators started to be asked so")
    parser.add_argument("--plainly", type=int, default=64, help="lines a plain server is asked in a round")
    parser.add_argument("--memory", type=int, default=0, help="requests over which memory is watched, and nothing else")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plain", help=argparse.SUPPRESS)
    parser.add_argument("--fixed", action="store_true", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.plain:
        plain(told.plain, told.fixed)
        return
    source = (line for part in read_lines(Path(told.source)) for line in part) if told.source else None
    lines = list(islice(source or (each.source for each in phrases("de", "test", told.requests)), told.requests))
    with tempfile.TemporaryDirectory() as folder:
        if told.run is None:
            make_run(Path(folder), told.size, told.beam, longest=1.0)
        if told.memory:
            memory(told.run or folder, lines, told.memory)
            return
        found = compare(told, told.run or folder, lines)
    print(json.dumps(found)) if told.json else show(found)


if __name__ == "__main__":
    main()
