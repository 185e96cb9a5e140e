"""A recorded batch's way teaches what the same batch does one kernel at a time.

On CUDA also a program of its own, because what checks types in tests cannot be compiled.
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
from regard.data.prepare import gather
from regard.recipe import Recipe, parse
from regard.train.engine import Engine
from regard.train.events import Validated
from regard.train.job import Job, assemble
from regard.train.loop import train
from regard.train.recording import WARM, Recorder, Work
from regard.train.stream import Shape, stream
from regard.train.workers import Workers

Make = Callable[..., Recipe]
CPU = Workers(torch.device("cpu"))


class Counter:
    """In place of a device's recording: does the work anew each time it is played, and counts."""

    def __init__(self) -> None:
        self.recorded = self.played = 0

    def record(self, work: Work) -> Work:
        self.recorded += 1
        work()

        def play() -> None:
            self.played += 1
            work()

        return play


def job_of(recipe: Recipe) -> Job:
    return assemble(recipe, Path("unused"), CPU, gather(recipe, Path("unused")))


def learnt(recipe: Recipe, counter: Counter | None, accumulated: int) -> list[torch.Tensor]:
    """The weights after five steps."""
    job = job_of(recipe)
    feed = job.feed(512)
    recorder = None if counter is None else Recorder(job.learner, CPU.device, "float32", counter.record)
    engine = Engine(job.learner, job.optimisers, CPU, "float32", 1.0, recorder=recorder)
    with stream(feed, BEGINNING, Shape.of(feed), pin=False) as steps:
        for _ in range(5):
            engine.update([load for step in islice(steps, accumulated) for load in step.loads])
    return [each.detach().clone() for each in job.model.parameters()]


@pytest.mark.parametrize("settings", [(), ("train.rdrop=1.0", "train.optimiser=muon")], ids=["plain", "rdrop"])
@pytest.mark.parametrize("accumulated", [1, 2])
def test_what_is_played_teaches_the_same(accumulated: int, settings: tuple[str, ...], tiny: Make) -> None:
    recipe, counter = tiny("model.dropout=0.0", *settings), Counter()
    plain, played = (learnt(recipe, each, accumulated) for each in (None, counter))
    assert all(torch.equal(*both) for both in zip(plain, played, strict=True))
    assert (counter.recorded, counter.played) == (1, 5 * accumulated - WARM)


def test_a_batch_of_another_size_is_not_played(tiny: Make) -> None:
    job, counter = job_of(tiny("model.dropout=0.0")), Counter()
    feed = job.feed(512)
    batches = [batch for step in islice(feed.epoch(0), 5) for batch in step]
    recorder = Recorder(job.learner, CPU.device, "float32", counter.record)
    shape = Shape.of(feed)
    for batch in batches[:3]:
        recorder.passes(shape.fill(batch), 1.0)
    assert counter.played == 1
    larger = shape.fill(batches[3]), batches[4]
    losses = [float(recorder.passes(each, 1.0).loss) for each in larger]
    assert counter.played == 2
    expected = [float(job.learner(each.source, each.target, each.labels_N).detach()) for each in batches[3:]]
    assert losses == pytest.approx(expected)


def test_what_is_recorded_is_the_first_size_that_comes_often(tiny: Make) -> None:
    job, counter = job_of(tiny("model.dropout=0.0")), Counter()
    feed = job.feed(512)
    shape = Shape.of(feed)
    batches = [batch for step in islice(feed.epoch(0), 6) for batch in step]
    recorder = Recorder(job.learner, CPU.device, "float32", counter.record)
    for batch in (batches[0], *(shape.fill(each) for each in batches[:WARM]), batches[3]):
        recorder.passes(batch, 1.0)
    assert counter.recorded == 0
    for batch in batches[4:]:
        recorder.passes(shape.fill(batch), 1.0)
    assert (counter.recorded, counter.played) == (1, len(batches) - 4)


def test_without_a_recording_batches_still_teach(tiny: Make) -> None:
    job, counter = job_of(tiny("model.dropout=0.0")), Counter()
    recorder = Recorder(job.learner, CPU.device, "float32", counter.record)
    recorder.fits = False
    batch = Shape.of(job.feed(512)).fill(next(job.feed(512).epoch(0))[0])
    losses = {float(recorder.passes(batch, 1.0).loss) for _ in range(WARM + 2)}
    assert len(losses) == 1
    assert counter.recorded == 0


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
COMPILED = ("transformer", "rdrop")  # one by one is enough where each takes a minute


def recipe_of(name: str, *settings: str) -> Recipe:
    """A tiny recipe of some model, wide enough for CUDA's kernels."""
    text = TINY.replace("inner = 32\nheads = 2\n", "") if name == "convs2s" else TINY
    always = ("model.width=32", "train.steps=12", "train.every=6")
    return parse(text, (*always, *MODELS[name], *settings), name=name)


def on_cuda(name: str, compiled: bool) -> list[float]:
    """How far a recorded run's losses are from those of one that was not, and from those of one in two parts."""

    def losses(folder: Path, *settings: str) -> list[float]:
        told = train(recipe_of(name, f"train.compile={str(compiled).lower()}", *settings), folder, "cuda")
        return [each.loss for each in told if isinstance(each, Validated)]

    with TemporaryDirectory() as there:
        runs = Path(there)
        alike = ("model.dropout=0.0", *(f"model.{each}_dropout=0.0" for each in ("attention", "word")))
        alike = alike[: 1 if name == "convs2s" else 3]
        plain = losses(runs / "plain", "train.record=false", *alike)
        played = losses(runs / "played", "train.record=true", *alike)
        whole = losses(runs / "whole", "train.record=true")
        parts = losses(runs / "parts", "train.record=true", "train.steps=6")
        parts += losses(runs / "parts", "train.record=true")
    return [
        max(abs(one - other) / one for one, other in zip(*both, strict=True))
        for both in ((plain, played), (whole, parts))
    ]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA")
def test_on_cuda_a_recorded_run_goes_on_to_the_losses_of_one_that_was_not() -> None:
    program = [sys.executable, "-W", "ignore", "-m", "tests.train.test_recording", *MODELS]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert max(max(each) for each in said.values()) < 1e-3, said


if __name__ == "__main__":
    cases = [(name, False) for name in sys.argv[1:]] + [(name, True) for name in sys.argv[1:] if name in COMPILED]
    print(json.dumps({f"{name}, {'compiled' if how else 'plain'}": on_cuda(name, how) for name, how in cases}))
