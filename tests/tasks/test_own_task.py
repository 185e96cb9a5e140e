"""A task that the package knows nothing of trains, resumes, validates, saves and loads through the unmodified code."""

import random
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.fork_server import forked_python
from tests.tasks.sum_task import SumTask

from regard.data.prepare import prepare
from regard.recipe import TASK_FIELDS, Corpus, Data, DigitsCorpus, Recipe, SeriesCorpus, TsvCorpus, load
from regard.tasks import load as load_run
from regard.tasks import make_task
from regard.train.cuda_graphs import GraphRunner, Launch
from regard.train.distributed import WorkerGroup
from regard.train.events import Event, Finished, Started, Validated
from regard.train.loop import train
from regard.train.setup import build_setup
from regard.train.stream import StaticShape

RECIPE = """
task = "sum"
[data]
train = [{ path = "train.tsv" }]
valid = { path = "valid.tsv" }
drop = ["empty", "long"]
[text]
kind = "word"
size = 100
bytes = false
[train]
steps = 300
tokens = 256
rate = 0.02
warmup = 5
every = 100
precision = "float32"
smoothing = 0.0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus, and a recipe for it."""
    folder = tmp_path_factory.mktemp("sum")
    draw = random.Random(1)
    for name, count in (("train", 400), ("valid", 40)):
        rows = [[draw.randrange(4) for _ in range(draw.randint(1, 3))] for _ in range(count)]
        rows = [[0], [1], [3, 3, 3], *rows]  # every label occurs
        text = "".join(f"{' '.join(map(str, row))}\t{sum(row)}\n" for row in rows)
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8")
    (folder / "sum.toml").write_text(RECIPE.replace("[data]", f"[data]\nroot = '{folder}'"), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def recipe(folder: Path) -> Recipe:
    return load(folder / "sum.toml")


@pytest.fixture(scope="module")
def events(recipe: Recipe, folder: Path) -> list[Event]:
    """The events of a training in `folder / "run"`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder / "cache"))
        return list(train(recipe, folder / "run", "cpu", task=SumTask(recipe)))


def test_an_external_task_trains_validates_saves_and_loads(recipe: Recipe, events: list[Event], folder: Path) -> None:
    started = next(event for event in events if isinstance(event, Started))
    assert started.vocabulary.keys() == {"numbers", "total"}
    validated = [event for event in events if isinstance(event, Validated)]
    assert len(validated) == 3
    assert validated[-1].accuracy is not None
    assert validated[-1].accuracy > 0.9
    assert isinstance(events[-1], Finished)
    add = load_run(folder / "run", "cpu", task=SumTask(recipe))
    assert add("1 2") == "3"
    assert add("2 0 2") == "4"


def test_an_external_task_resumes_to_the_same_bits_after_a_kill(
    events: list[Event], folder: Path, tmp_path: Path
) -> None:
    program = [forked_python(), str(Path(__file__).with_name("sum_task.py")), str(folder / "sum.toml")]
    killed = subprocess.run([*program, str(tmp_path / "killed"), "100"], check=False)
    assert killed.returncode < 0
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    subprocess.run([*program, str(tmp_path / "killed")], check=True)
    left, right = (load_file(run / "model.safetensors") for run in (folder / "run", tmp_path / "killed"))
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_batches_of_an_external_task_can_be_filled_and_captured(recipe: Recipe, tmp_path: Path) -> None:
    task = SumTask(recipe)
    setup = build_setup(recipe, task, tmp_path, WorkerGroup(torch.device("cpu")), prepare(recipe, task, tmp_path))
    setup.model.eval()
    feed = setup.feed(256)
    batch = next(feed.epoch(0))[0]
    filled = StaticShape.from_feed(feed).fill(batch)
    assert len(filled) > len(batch)
    torch.testing.assert_close(setup.module(filled), setup.module(batch))

    def capture(work: Launch) -> Launch:
        work()
        return work

    graphs = GraphRunner(setup.module, torch.device("cpu"), "float32", capture)
    losses = {float(graphs.run(filled, 1.0).loss) for _ in range(4)}
    assert losses == {float(setup.module(filled).detach())}


def test_a_recipe_of_an_unknown_task_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="task = 'sum': there is no such task; the tasks are translation"):
        next(train(recipe, tmp_path / "run", "cpu"))


def test_every_declared_task_can_be_made_and_has_its_declared_fields() -> None:
    others: dict[str, Corpus] = {"forecasting": SeriesCorpus(path="train.csv"), "image_classification": DigitsCorpus()}
    for name, fields in TASK_FIELDS.items():
        corpus = others.get(name, TsvCorpus(path="train.tsv"))
        assert make_task(Recipe(task=name, data=Data(train=(corpus,)))).kinds == fields
