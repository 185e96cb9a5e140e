"""Steps as CUDA graphs give the same weights as eager steps.

The test on CUDA runs as a program of its own, because the type checks of the tests cannot be compiled.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from tests.train.conftest import TINY

from regard.data.batching import BEGINNING
from regard.data.prepare import prepare
from regard.recipe import Recipe, parse
from regard.tasks import make_task
from regard.train.cuda_graphs import WARMUP, GraphRunner, Launch
from regard.train.distributed import WorkerGroup
from regard.train.engine import TrainingEngine
from regard.train.events import Validated
from regard.train.loop import train
from regard.train.setup import TrainingSetup, build_setup
from regard.train.stream import StaticShape, stream

Make = Callable[..., Recipe]
CPU = WorkerGroup(torch.device("cpu"))


class Counter:
    """Replaces CUDA graphs on a CPU: runs the captured function again at each replay, and counts."""

    def __init__(self) -> None:
        self.captured = self.replayed = 0

    def capture(self, work: Launch) -> Launch:
        self.captured += 1
        work()

        def replay() -> None:
            self.replayed += 1
            work()

        return replay


def setup_of(recipe: Recipe) -> TrainingSetup:
    task = make_task(recipe)
    prepared = prepare(recipe, task, Path("unused"))
    return build_setup(recipe, task, Path("unused"), CPU, prepared)


def learnt(recipe: Recipe, counter: Counter | None, accumulated: int) -> list[torch.Tensor]:
    """Return the weights after five steps."""
    setup = setup_of(recipe)
    feed = setup.feed(512)
    graphs = None if counter is None else GraphRunner(setup.module, CPU.device, "float32", counter.capture)
    engine = TrainingEngine(setup.module, setup.optimisers, CPU, "float32", 1.0, graphs=graphs)
    with stream(feed, BEGINNING, StaticShape.from_feed(feed), pin=False) as steps:
        for _ in range(5):
            engine.update([load for step in islice(steps, accumulated) for load in step.batches])
    return [weight.detach().clone() for weight in setup.model.parameters()]


@pytest.mark.parametrize("settings", [(), ("train.rdrop=1.0", "train.optimiser=muon")], ids=["plain", "rdrop"])
@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_replayed_graph_gives_the_same_weights_as_eager_steps(
    accumulated: int, settings: tuple[str, ...], tiny: Make
) -> None:
    recipe, counter = tiny("model.dropout=0.0", *settings), Counter()
    plain, played = (learnt(recipe, graphs, accumulated) for graphs in (None, counter))
    assert all(torch.equal(*pair) for pair in zip(plain, played, strict=True))
    assert (counter.captured, counter.replayed) == (1, 5 * accumulated - WARMUP)


def test_a_batch_of_another_size_runs_eagerly(tiny: Make) -> None:
    setup, counter = setup_of(tiny("model.dropout=0.0")), Counter()
    feed = setup.feed(512)
    batches = [batch for step in islice(feed.epoch(0), 5) for batch in step]
    graphs = GraphRunner(setup.module, CPU.device, "float32", counter.capture)
    shape = StaticShape.from_feed(feed)
    for batch in batches[:3]:
        graphs.run(shape.fill(batch), 1.0)
    assert counter.replayed == 1
    larger = shape.fill(batches[3]), batches[4]
    losses = [float(graphs.run(batch, 1.0).loss) for batch in larger]
    assert counter.replayed == 2
    expected = [float(setup.module(batch).detach()) for batch in batches[3:]]
    assert losses == pytest.approx(expected)


def test_the_first_size_that_occurs_often_is_captured(tiny: Make) -> None:
    setup, counter = setup_of(tiny("model.dropout=0.0")), Counter()
    feed = setup.feed(512)
    shape = StaticShape.from_feed(feed)
    batches = [batch for step in islice(feed.epoch(0), 6) for batch in step]
    graphs = GraphRunner(setup.module, CPU.device, "float32", counter.capture)
    for batch in (batches[0], *(shape.fill(batch) for batch in batches[:WARMUP]), batches[3]):
        graphs.run(batch, 1.0)
    assert counter.captured == 0
    for batch in batches[4:]:
        graphs.run(shape.fill(batch), 1.0)
    assert (counter.captured, counter.replayed) == (1, len(batches) - 4)


def test_without_memory_for_a_graph_batches_run_eagerly(tiny: Make) -> None:
    setup, counter = setup_of(tiny("model.dropout=0.0")), Counter()
    graphs = GraphRunner(setup.module, CPU.device, "float32", counter.capture)
    graphs.fits = False
    batch = StaticShape.from_feed(setup.feed(512)).fill(next(setup.feed(512).epoch(0))[0])
    losses = {float(graphs.run(batch, 1.0).loss) for _ in range(WARMUP + 2)}
    assert len(losses) == 1
    assert counter.captured == 0


MODELS = {
    "transformer": (),
    "post-norm": ("model.norm_first=false", "model.norm=rms", "model.attention_dropout=0.1", "model.word_dropout=0.1"),
    "rotary": ("model.position=rotary", "model.activation=swiglu"),
    "alibi": ("model.position=alibi",),
    "additive": ("model.score=additive",),
    "learned": ("model.position=learned", "model.window=4"),
    "rdrop": ("train.rdrop=1.0", "train.accumulate=2"),
    "muon": ("train.optimiser=muon", "train.ema=0.9"),
    "convs2s": ("model.kind=convs2s",),
}
COMPILED = ("transformer", "rdrop")  # two are enough, because each takes a minute


def recipe_of(name: str, *settings: str) -> Recipe:
    """Return a tiny recipe of a model, wide enough for the CUDA kernels."""
    text = TINY.replace("inner = 32\nheads = 2\n", "") if name == "convs2s" else TINY
    always = ("model.width=32", "train.steps=12", "train.every=6")
    return parse(text, (*always, *MODELS[name], *settings), name=name)


def on_cuda(name: str, compiled: bool) -> list[float]:
    """Return the relative differences of losses with and without graphs, and with and without resuming."""

    def losses(folder: Path, *settings: str) -> list[float]:
        events = train(recipe_of(name, f"train.compile={str(compiled).lower()}", *settings), folder, "cuda")
        return [event.loss for event in events if isinstance(event, Validated)]

    with TemporaryDirectory() as there:
        runs = Path(there)
        alike = ("model.dropout=0.0", *(f"model.{kind}_dropout=0.0" for kind in ("attention", "word")))
        alike = alike[: 1 if name == "convs2s" else 3]
        plain = losses(runs / "plain", "train.record=false", *alike)
        played = losses(runs / "played", "train.record=true", *alike)
        whole = losses(runs / "whole", "train.record=true")
        parts = losses(runs / "parts", "train.record=true", "train.steps=6")
        parts += losses(runs / "parts", "train.record=true")
    return [
        max(abs(one - other) / one for one, other in zip(*pair, strict=True))
        for pair in ((plain, played), (whole, parts))
    ]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA")
def test_on_cuda_graphs_and_resuming_give_the_losses_of_eager_steps() -> None:
    program = [sys.executable, "-W", "ignore", "-m", "tests.train.test_cuda_graphs", *MODELS]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    differences = json.loads(done.stdout)
    assert max(max(values) for values in differences.values()) < 1e-3, differences


if __name__ == "__main__":
    cases = [(name, False) for name in sys.argv[1:]] + [(name, True) for name in sys.argv[1:] if name in COMPILED]
    print(json.dumps({f"{name}, {'compiled' if how else 'plain'}": on_cuda(name, how) for name, how in cases}))
