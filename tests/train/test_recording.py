"""A recorded batch's way teaches what the same batch does one kernel at a time."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
import torch
from tests.train.conftest import TINY, weights

from regard.data.batching import BEGINNING
from regard.data.prepare import gather
from regard.recipe import Recipe, parse
from regard.train.engine import Engine
from regard.train.events import Progress
from regard.train.job import Job, assemble
from regard.train.loop import train
from regard.train.recording import WARM, Recorder, Work
from regard.train.stream import Shape, stream
from regard.train.workers import Workers

Make = Callable[..., Recipe]
CPU = Workers(torch.device("cpu"))
HAVE_CUDA = torch.cuda.is_available()


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


def learnt(recipe: Recipe, shape: Shape | None, counter: Counter | None, accumulated: int = 1) -> list[torch.Tensor]:
    """The weights after five steps."""
    job = job_of(recipe)
    feed = job.feed(512)
    recorder = None if counter is None else Recorder(job.learner, CPU.device, "float32", counter.record)
    engine = Engine(job.learner, job.optimisers, CPU, "float32", 1.0, recorder=recorder)
    with stream(feed, BEGINNING, shape or Shape.of(feed), pin=False) as steps:
        for _ in range(5):
            engine.update([load for step in islice(steps, accumulated) for load in step.loads])
    return [each.detach().clone() for each in job.model.parameters()]


@pytest.mark.parametrize("settings", [(), ("train.rdrop=1.0", "train.optimiser=muon")], ids=["plain", "rdrop"])
@pytest.mark.parametrize("accumulated", [1, 2])
def test_what_is_played_teaches_the_same(accumulated: int, settings: tuple[str, ...], tiny: Make) -> None:
    recipe, counter = tiny("model.dropout=0.0", *settings), Counter()
    plain, played = (learnt(recipe, None, each, accumulated) for each in (None, counter))
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


def test_without_a_recording_batches_still_teach(tiny: Make) -> None:
    job, counter = job_of(tiny("model.dropout=0.0")), Counter()
    recorder = Recorder(job.learner, CPU.device, "float32", counter.record)
    recorder.why_not = "not recorded"
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
    always = ("model.width=32", "train.precision=bfloat16", "train.steps=12", "train.every=6")
    return parse(text, (*always, *MODELS[name], *settings), name=name)


@pytest.mark.skipif(not HAVE_CUDA, reason="this machine has no CUDA")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "compiled"), [*((name, "false") for name in MODELS), *((name, "true") for name in COMPILED)]
)
def test_on_cuda_a_recorded_run_goes_on_to_the_numbers_of_one_that_was_not(
    name: str, compiled: str, tmp_path: Path
) -> None:
    def run(folder: str, *more: str) -> dict[str, torch.Tensor]:
        told = list(train(recipe_of(name, f"train.compile={compiled}", *more), tmp_path / folder, "cuda"))
        assert any(isinstance(each, Progress) for each in told)
        return weights(tmp_path / folder)

    plain, played = run("plain", "train.record=false"), run("played")
    run("stopped", "train.steps=6")
    stopped = run("stopped")
    assert plain.keys() == played.keys() == stopped.keys()
    for one, other in ((plain, played), (played, stopped)):
        assert max(float((one[key] - other[key]).abs().max()) for key in one) < 2e-3
