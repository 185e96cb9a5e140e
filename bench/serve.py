"""Serving: 64 clients of `regard serve`, beside offline translation and a plain FastAPI + `generate` server.

    python bench/serve.py                                   # random weights of the base model, phrasebook lines
    python bench/serve.py --size small --requests 1024 --rounds 3
    python bench/serve.py --run runs/multi30k --source test.en
    python bench/serve.py --memory 10000                    # memory over ten thousand requests
    python bench/serve.py --size tiny --memory 30000 --workers 16

All contenders have the same weights, lines and cores. The clients are in a second process on loopback; each sends one
line per request, and the next one when the last is answered. The contenders take turns, and each result is the median
round; the ratios matter most. For the latency of a single client, each line is sent to the server and translated in
this process, in alternating order; the difference is the overhead of serving. Random weights never generate the end
symbol, so translations have the maximum length: the length of the source, and ten more. The plain server has a route
that calls `generate` for its line in a thread of the pool.
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
from random import Random
from typing import Any

import torch

from measure import percentile
from regard.data.phrasebook import phrases
from regard.files import read_lines
from regard.serve.server import IDLE_SECONDS
from regard.tasks import load_bundle, load_translator
from regard.text import END, PAD, START
from server_process import Server, make_run, served

# Requests for the measurement of memory: batches of all shapes
MIXED_LENGTHS = (1, 1, 1, 1, 2, 3, 6)  # phrases in a line
MIXED_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"beam": 1},
    {"beam": 2},
    {"beam": 4, "nbest": 4},
    {"beam": 12, "nbest": 2},
    {"sample": True, "nbest": 4, "seed": 1},
    {"alignments": True},
    {"no_repeat": 2},
)
EXTRA = 10  # tokens that a translation may be longer than its source
WARM_UP = 10  # lines before single requests are measured


@dataclass(frozen=True)
class Load:
    """The measurements of a server under load.

    Attributes:
        rate: Lines per second.
        milliseconds: The latency of each request.
        server_cpu: Seconds of CPU time per line of the server.
        client_cpu: Seconds of CPU time per line of the clients.
    """

    rate: float
    milliseconds: list[float]
    server_cpu: float
    client_cpu: float


# The clients are one process with an open connection each. Their requests are prepared in advance, and of a response
# they parse only its length, because every CPU cycle of the clients is taken from the server.


class Client:
    """A connection that sends one request after another."""

    def __init__(self, port: int) -> None:
        """Connect to a port on loopback."""
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.start, self.received, self.length = 0.0, b"", 0

    def send(self, request: bytes) -> None:
        """Send a request."""
        self.received, self.length = b"", 0
        self.start = time.perf_counter()
        self.socket.sendall(request)

    def receive(self) -> bool:
        """Read what has arrived, and return whether the response is complete."""
        self.received += self.socket.recv(1 << 16)
        if not self.length and (end := self.received.find(b"\r\n\r\n")) >= 0:
            if not self.received.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"the server responded with {self.received[:200]!r}")
            headers = self.received[:end].lower().split(b"\r\n")
            length = next(header for header in headers if header.startswith(b"content-length"))
            self.length = end + 4 + int(length.partition(b":")[2])
        return 0 < self.length <= len(self.received)


def load_server(server: Server, bodies: Sequence[dict[str, Any]], clients: int) -> Load:
    """Measure a server while several clients send requests."""
    requests = [request_bytes(body) for body in reversed(bodies)]
    selector, latencies = selectors.DefaultSelector(), list[float]()
    server_cpu, client_cpu, start = server.cpu_seconds(), time.process_time(), time.perf_counter()
    for _ in range(min(clients, len(requests))):
        client = Client(server.port)
        selector.register(client.socket, selectors.EVENT_READ, client)
        client.send(requests.pop())
    while len(latencies) < len(bodies):
        for key, _ in selector.select():
            client = key.data
            if client.receive():
                latencies.append(1000 * (time.perf_counter() - client.start))
                if requests:
                    client.send(requests.pop())
    wall, client_cpu = time.perf_counter() - start, time.process_time() - client_cpu
    for key in list(selector.get_map().values()):
        key.data.socket.close()
    server_cpu = server.cpu_seconds() - server_cpu
    return Load(len(bodies) / wall, latencies, server_cpu / len(bodies), client_cpu / len(bodies))


def request_bytes(fields: dict[str, Any]) -> bytes:
    """Return the bytes of a request."""
    body = json.dumps(fields).encode()
    head = (
        f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    return f"{head}\r\n\r\n".encode() + body


# The servers


def serve_plainly(run: str, fixed: bool) -> None:
    """Serve with FastAPI and one call of `generate` per request."""
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    from translation_contenders import hf_model

    bundle = load_bundle(run)
    model = hf_model(bundle.model).eval()
    torch.set_num_threads(1)  # requests run in parallel; with more threads each, all were slower
    app = FastAPI()

    class Request(BaseModel):
        source: str

    @app.post("/translate")
    def translate(request: Request) -> dict[str, str]:
        ids = [*bundle.tokenizers["source"].encode(request.source), END]
        most = len(ids) - 1 + EXTRA if fixed else 2 * len(ids) + EXTRA
        limits: dict[str, Any] = {"max_new_tokens": most + 1}
        if fixed:
            limits["min_new_tokens"] = most + 1
        with torch.inference_mode():
            output = model.generate(
                torch.tensor([ids]), num_beams=bundle.recipe.decode.beam, do_sample=False, pad_token_id=PAD, **limits
            )
        kept = [number for number in output[0].tolist() if number not in (START, END, PAD)]
        return {"text": bundle.tokenizers["target"].decode(kept)}

    config = uvicorn.Config(app, port=0, log_level="info", access_log=False)
    uvicorn.Server(config).run()


# Measurements


def offline(run: str, lines: Sequence[str]) -> Callable[[], tuple[float, float]]:
    """Return a function that translates all lines in this process: lines per second, and CPU seconds per line."""
    translator = load_translator(run, "cpu")
    translator.translate(lines[:32])

    def translate() -> tuple[float, float]:
        start, cpu = time.perf_counter(), time.process_time()
        translator.translate(lines)
        return len(lines) / (time.perf_counter() - start), (time.process_time() - cpu) / len(lines)

    return translate


@dataclass(frozen=True)
class SingleRequests:
    """The wall and CPU milliseconds of each line that is translated alone, by the server and in this process."""

    served: list[tuple[float, float]]
    local: list[tuple[float, float]]

    def medians(self) -> dict[str, float]:
        """Return the medians of both, and of their difference line by line."""
        pairs = zip(self.served, self.local, strict=True)
        overhead = [(served[0] - local[0], served[1] - local[1]) for served, local in pairs]
        medians = dict[str, float]()
        for name, times in (("served", self.served), ("local", self.local), ("overhead", overhead)):
            wall, cpu = zip(*times, strict=True)
            medians |= {name: statistics.median(wall), f"{name}_cpu": statistics.median(cpu)}
        return medians


def single_requests(run: str, server: Server, lines: Sequence[str]) -> SingleRequests:
    """Translate one line at a time, by the server over an open connection and in this process.

    Both have the same engine, in which all threads share the steps of a single line while the cores are idle, and each
    waits while the other works. Their order alternates from line to line.
    """
    translator, client = load_translator(run, "cpu"), Client(server.port)

    def local(line: str) -> tuple[float, float]:
        cpu, start = time.process_time(), time.perf_counter()
        translator.translate([line])
        return 1000 * (time.perf_counter() - start), 1000 * (time.process_time() - cpu)

    def served(line: str) -> tuple[float, float]:
        cpu = server.cpu_seconds()
        client.send(request_bytes({"source": line}))
        while not client.receive():
            pass
        return 1000 * (time.perf_counter() - client.start), 1000 * (server.cpu_seconds() - cpu)

    for line in lines[:WARM_UP]:
        local(line), served(line)
    requests = SingleRequests([], [])
    for number, line in enumerate(lines):
        first, second = (requests.served, served), (requests.local, local)
        for times, translate in (first, second) if number % 2 else (second, first):
            times.append(translate(line))
    client.socket.close()
    return requests


def watch_memory(run: str, lines: Sequence[str], requests: int, *arguments: str) -> None:
    """Print the memory of a server over many mixed requests; the first tenth is its warm-up.

    After each tenth the server is left idle until it has returned free memory to the kernel. The memory of a server
    under load depends also on what it computes at the moment.
    """
    part, random, memory = max(1, requests // 10), Random(1), list[float]()
    with served([*server_command(run), *arguments]) as server:
        for number in range(10):
            bodies = [
                {
                    "source": " ".join(random.choices(lines, k=random.choice(MIXED_LENGTHS))),
                    "max_length": random.choice((4, 4, 4, 8, 40)),
                    **random.choice(MIXED_OPTIONS),
                }
                for _ in range(part)
            ]
            rate = load_server(server, bodies, 64).rate
            loaded = server.memory()
            time.sleep(IDLE_SECONDS + 2)
            memory.append(server.memory())
            done = (number + 1) * part
            print(
                f"  after {done:>6,} requests  {memory[-1]:7.1f} MiB (under load {loaded:7.1f})  "
                f"{rate:7.1f} requests/s",
                flush=True,
            )
    print(f"  growth after the first tenth: {max(memory[1:]) / memory[0] - 1:+.1%}")


def server_command(run: str) -> list[str]:
    """Return the command that serves a run."""
    return [sys.executable, "-m", "regard", "serve", run, "--port", "0", "--device", "cpu"]


def compare(options: argparse.Namespace, run: str, lines: Sequence[str]) -> dict[str, Any]:
    """Measure all contenders in turns."""
    plain_command = [sys.executable, __file__, "--plain", run, *(["--fixed"] if options.run is None else [])]
    context = multiprocessing.get_context("spawn")
    with (
        served(server_command(run)) as server,
        served(plain_command) as plain_server,
        ProcessPoolExecutor(1, context) as clients,
    ):

        def load(server: Server, some: Sequence[str], count: int) -> Load:
            return clients.submit(load_server, server, [{"source": line} for line in some], count).result()

        translate = offline(run, lines)
        load(server, lines[:64], options.clients)
        load(plain_server, lines[:8], 8)
        local, loads, plain_loads = list[tuple[float, float]](), list[Load](), list[Load]()
        for _ in range(options.rounds):
            local.append(translate())
            loads.append(load(server, lines, options.clients))
            plain_loads.append(load(plain_server, lines[: options.plainly], options.clients))
        plain_single = statistics.median(load(plain_server, lines[: options.alone], 1).milliseconds)
    # The placement of the weights in memory changes the speed of a process by about as much as is measured here, so
    # several processes are started.
    single = SingleRequests([], [])
    for _ in range(options.starts):
        with served(server_command(run)) as server:
            requests = single_requests(run, server, lines[: options.alone])
            single.served.extend(requests.served)
            single.local.extend(requests.local)
    pairs = list(zip(loads, local, strict=True))
    rate, plain_rate = (statistics.median(load.rate for load in every) for every in (loads, plain_loads))
    return {
        "offline": statistics.median(offline_rate for offline_rate, _ in local),
        "served": rate,
        "plain": plain_rate,
        "of_offline": statistics.median(load.rate / offline_rate for load, (offline_rate, _) in pairs),
        "of_offline_cpu": statistics.median(cpu / load.server_cpu for load, (_, cpu) in pairs),
        "client_cpu": statistics.median(load.client_cpu / (load.client_cpu + load.server_cpu) for load in loads),
        "of_plain": rate / plain_rate,
        "percentiles": [
            [percentile(load.milliseconds, share) for share in (0.5, 0.95, 0.99)]
            for load in (loads[-1], plain_loads[-1])
        ],
        "single": {**single.medians(), "plain": plain_single},
    }


def print_results(results: dict[str, Any]) -> None:
    """Print the results as a table."""
    ours, plain = ("  ".join(f"{latency:8.0f}" for latency in row) for row in results["percentiles"])
    single = results["single"]
    print("                          lines/s   p50 ms    p95 ms    p99 ms   single, p50 ms")
    print(f"offline                  {results['offline']:8.1f}  {'':30}{single['local']:8.1f}")
    print(f"regard serve             {results['served']:8.1f}  {ours}  {single['served']:8.1f}")
    print(f"FastAPI + HF generate    {results['plain']:8.1f}  {plain}  {single['plain']:8.1f}")
    cpu = results["of_offline_cpu"]
    print(f"served / offline {results['of_offline']:.2f} ({cpu:.2f} by the CPU time of the server alone)")
    print(f"the clients used {results['client_cpu']:.1%} of the CPU time of server and clients")
    print(f"served / plain {results['of_plain']:.2f}")
    print(
        f"a single request takes {single['overhead']:+.1f} ms more than the call in this process (median of pairs); "
        f"CPU time {single['served_cpu']:.1f} ms against {single['local_cpu']:.1f} ms, {single['overhead_cpu']:+.1f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", help="a trained run; default: random weights")
    parser.add_argument("--source", help="a file of lines; default: the phrasebook")
    parser.add_argument("--size", default="base", help="for random weights")
    parser.add_argument("--beam", type=int, default=5, help="for random weights")
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", type=int, default=40, help="number of single requests")
    parser.add_argument("--starts", type=int, default=3, help="number of servers started for single requests")
    parser.add_argument("--plainly", type=int, default=64, help="lines per round for the plain server")
    parser.add_argument("--memory", type=int, default=0, help="only print the memory over this number of requests")
    parser.add_argument("--workers", help="workers of the server whose memory is printed; default: one per core")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plain", help=argparse.SUPPRESS)
    parser.add_argument("--fixed", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plain:
        serve_plainly(options.plain, options.fixed)
        return
    source = (line for part in read_lines(Path(options.source)) for line in part) if options.source else None
    lines = list(
        islice(source or (phrase.source for phrase in phrases("de", "test", options.requests)), options.requests)
    )
    with tempfile.TemporaryDirectory() as folder:
        if options.run is None:
            make_run(Path(folder), options.size, options.beam, longest=1.0)
        if options.memory:
            watch_memory(
                options.run or folder,
                lines,
                options.memory,
                *(["--workers", options.workers] if options.workers else []),
            )
            return
        results = compare(options, options.run or folder, lines)
    print(json.dumps(results)) if options.json else print_results(results)


if __name__ == "__main__":
    main()
