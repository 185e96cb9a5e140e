"""A run that was stopped, killed or ran out of disk space resumes to the same bits as an uninterrupted one."""

import json
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.fork_server import forked_python
from tests.train.conftest import kinds, train_tiny, weights

from regard.data.batch import Batch
from regard.recipe import Recipe, dump
from regard.run_files import CHECKPOINTS
from regard.tasks import load_bundle
from regard.tasks.translation import TranslationTask
from regard.train.checkpoint import find_latest
from regard.train.events import Event, Finished, Noticed, Progress, Saved, Started
from regard.train.loop import train
from regard.train.report.formatting import describe_end
from regard.weights import save_weights

Make = Callable[..., Recipe]
Train = Callable[[Recipe, Path], list[Event]]
EVERYTHING = ("train.ema=0.9", "train.optimiser=muon", "train.schedule=plateau", "text.sampling=0.1", "train.rdrop=1.0")


def same(one: Path, other: Path) -> bool:
    """Return whether two runs ended with equal tensors, random generators included."""
    left, right = weights(one), weights(other)
    model = [load_file(run / "model.safetensors") for run in (one, other)]
    return (
        left.keys() == right.keys()
        and all(torch.equal(left[name], right[name]) for name in left)
        and all(torch.equal(model[0][name], model[1][name]) for name in model[0])
    )


@pytest.fixture
def straight(once: Path, tmp_path: Path) -> Path:
    """A copy of an uninterrupted run."""
    return Path(shutil.copytree(once, tmp_path / "straight"))


@pytest.fixture
def half(begun: Path, tmp_path: Path) -> Path:
    """A copy of a run after four of six steps."""
    return Path(shutil.copytree(begun, tmp_path / "half"))


@pytest.mark.parametrize("settings", [("train.average=2",), EVERYTHING], ids=["plain", "everything"])
def test_a_resumed_run_ends_with_the_same_bits(
    settings: tuple[str, ...], tiny: Make, trained: Train, tmp_path: Path
) -> None:
    trained(tiny(*settings), tmp_path / "one")
    for steps in (1, 4, 6):
        events = trained(tiny(f"train.steps={steps}", *settings), tmp_path / "other")
    started = next(event for event in events if isinstance(event, Started))
    assert started.step == 4
    assert same(tmp_path / "one", tmp_path / "other")


def test_a_run_killed_at_random_moments_ends_with_the_same_bits(straight: Path, tiny: Make, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(dump(tiny()), encoding="utf-8")
    command = [forked_python(), str(Path(__file__).with_name("killed.py")), str(tmp_path / "tiny.toml")]
    result = subprocess.run([*command, str(tmp_path / "killed"), "7"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) >= 1
    assert same(straight, tmp_path / "killed")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_a_checkpoint_and_the_run_resumes(
    number: signal.Signals, straight: Path, tiny: Make, trained: Train, tmp_path: Path
) -> None:
    events: list[Event] = []
    before = signal.signal(number, signal.SIG_DFL)  # under `nohup`, SIGHUP is ignored
    try:
        for event in train(tiny(), tmp_path / "stopped", "cpu"):
            events.append(event)
            if isinstance(event, Progress) and event.step == 2:
                signal.raise_signal(number)
    finally:
        signal.signal(number, before)
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.reason == "stopped"
    assert 2 < finished.step < 4
    assert kinds(events)[-2:] == ["Saved", "Finished"]
    assert (tmp_path / "stopped" / "model.safetensors").is_file()
    trained(tiny(), tmp_path / "stopped")
    assert same(straight, tmp_path / "stopped")


def test_a_signal_that_is_ignored_remains_ignored(tiny: Make, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        events = train(tiny(), tmp_path, "cpu")
        next(event for event in events if isinstance(event, Progress))
        signal.raise_signal(signal.SIGHUP)
        assert [event.reason for event in events if isinstance(event, Finished)] == ["steps"]
    finally:
        signal.signal(signal.SIGHUP, before)


def test_on_stop_is_called_at_once_and_only_once(tiny: Make, tmp_path: Path) -> None:
    calls: list[str] = []
    events = train(tiny(), tmp_path, "cpu", on_stop=lambda: calls.append("stop"))
    next(event for event in events if isinstance(event, Progress))
    for _ in range(2):
        signal.raise_signal(signal.SIGTERM)
        assert calls == ["stop"]
    assert [event.reason for event in events if isinstance(event, Finished)] == ["stopped"]


def test_a_second_ctrl_c_interrupts_at_once(tiny: Make, tmp_path: Path) -> None:
    events = train(tiny(), tmp_path, "cpu")
    next(event for event in events if isinstance(event, Progress))
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    events.close()


@pytest.mark.parametrize("harm", ["cut", "changed", "lost", "notes", "no notes", "another step", "another name"])
def test_a_damaged_checkpoint_is_skipped_for_the_one_before(
    harm: str, straight: Path, half: Path, tiny: Make, trained: Train
) -> None:
    last = max((half / CHECKPOINTS).glob("step-*"))
    shard = next(last.glob("*.safetensors"))
    data, notes = shard.read_bytes(), last / "notes.json"
    written = notes.read_text(encoding="utf-8")
    match harm:
        case "cut":
            shard.write_bytes(data[: len(data) // 2])
        case "changed":
            shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "lost":
            shard.unlink()
        case "notes":
            notes.write_text("{", encoding="utf-8")
        case "no notes":
            notes.write_text("[]", encoding="utf-8")
        case "another step":
            notes.write_text(written.replace('"step": 4', '"step": 5'), encoding="utf-8")
        case "another name":
            notes.write_text(written.replace('"shrunk"', '"shrunj"'), encoding="utf-8")
    events = trained(tiny(), half)
    messages = [event.message for event in events if isinstance(event, Noticed)]
    assert len(messages) == 1
    assert "step-00000004 is damaged" in messages[0]
    assert "resuming from step 2" in messages[0]
    assert same(straight, half)


def test_a_checkpoint_without_a_checksum_can_be_resumed(half: Path, straight: Path, tiny: Make) -> None:
    for file in (half / CHECKPOINTS).glob("*/notes.json"):
        notes = json.loads(file.read_text(encoding="utf-8"))
        del notes["seal"]
        file.write_text(json.dumps(notes), encoding="utf-8")
    assert kinds(list(train(tiny(), half, "cpu")))[0] == "Started"
    assert same(straight, half)


def test_other_files_among_the_checkpoints_are_kept(half: Path, straight: Path, tiny: Make) -> None:
    last = max((half / CHECKPOINTS).glob("step-*"))
    shutil.copytree(last, last.with_name("step-00000004.copy"))
    (half / CHECKPOINTS / "step-notes.txt").write_text("the good one is 4", encoding="utf-8")
    list(train(tiny(), half, "cpu"))
    names = {path.name for path in (half / CHECKPOINTS).iterdir()}
    assert names == {"step-00000004", "step-00000006", "step-00000004.copy", "step-notes.txt"}
    shutil.rmtree(last.with_name("step-00000004.copy"))
    (half / CHECKPOINTS / "step-notes.txt").unlink()
    assert same(straight, half)


def test_without_an_undamaged_checkpoint_nothing_is_overwritten(half: Path, tiny: Make, trained: Train) -> None:
    for path in (half / CHECKPOINTS).rglob("*.safetensors"):
        path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"every checkpoint of .* is damaged.*start a new run"):
        trained(tiny(), half)


@contextmanager
def full_disk_from(events: Iterator[Event], kind: type[Event], size: int) -> Iterator[None]:
    """Limit the size of files from an event of this kind on, which looks like a full disk to the program."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    next(event for event in events if isinstance(event, kind))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [2_000, 60_000], ids=["weights", "checkpoint"])
def test_a_full_disk_loses_nothing(size: int, straight: Path, half: Path, tiny: Make, trained: Train) -> None:
    events = train(tiny(), half, "cpu")
    message = r"cannot write in .*step-00000004, is complete.*repeat the command"
    with full_disk_from(events, Started, size), pytest.raises(OSError, match=message):
        list(events)
    checkpoint, faults = find_latest(half)
    assert checkpoint is not None
    assert (checkpoint.name, faults) == ("step-00000004", [])
    assert {path.name for path in (half / CHECKPOINTS).iterdir()} == {"step-00000002", "step-00000004"}
    trained(tiny(), half)
    assert same(straight, half)


def test_a_finished_run_takes_no_further_step(straight: Path, tiny: Make, trained: Train) -> None:
    assert kinds(trained(tiny(), straight)) == ["Started", "Finished"]


WORSE_IN_THE_END = ("train.rate=1", "train.warmup=10")
"""Settings of a run whose best weights are not its last ones."""


@pytest.fixture(scope="module")
def best_at_4(cache: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run of six steps whose best weights are those of step 4; tests must not change it."""
    return train_tiny(cache, tmp_path_factory.mktemp("best"), *WORSE_IN_THE_END)


def flip_bit(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def write_nan(path: Path) -> None:
    """Replace a weight by NaN, in a file without a checksum as version 0.1 wrote it."""
    tensors = load_file(path)
    next(iter(tensors.values())).view(-1)[0] = float("nan")
    save_file(tensors, path)


@pytest.mark.parametrize("harm", ["none", "removed", "bit", "nan"])
def test_repeating_a_finished_command_leaves_the_model_as_it_is(
    harm: str, best_at_4: Path, tiny: Make, trained: Train, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(best_at_4, tmp_path / "run"))
    best = run / "weights" / "best.safetensors"
    match harm:
        case "removed":
            shutil.rmtree(run / "weights")
        case "bit":
            flip_bit(best, -5)
        case "nan":
            write_nan(best)
    before = (run / "model.safetensors").read_bytes()
    finished = trained(tiny(*WORSE_IN_THE_END), run)[-1]
    assert isinstance(finished, Finished)
    assert (run / "model.safetensors").read_bytes() == before
    assert finished.scores["weights"] == "best on data.valid, step 4"
    assert "saved weights: best on data.valid, step 4" in describe_end(finished, "tokens")


def test_best_weights_that_are_lost_are_taken_from_the_model_when_training_goes_on(
    best_at_4: Path, tiny: Make, trained: Train, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(best_at_4, tmp_path / "run"))
    shutil.rmtree(run / "weights")
    before = load_file(run / "model.safetensors")
    finished = trained(tiny(*WORSE_IN_THE_END, "train.steps=7"), run)[-1]
    assert isinstance(finished, Finished)
    assert finished.scores["weights"] == "best on data.valid, step 4"
    assert all(torch.equal(tensor, before[name]) for name, tensor in load_file(run / "model.safetensors").items())


@pytest.mark.parametrize("harm", ["bit", "removed", "stale"])
def test_a_model_that_is_damaged_or_of_an_earlier_step_is_made_again(
    harm: str, best_at_4: Path, tiny: Make, trained: Train, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(best_at_4, tmp_path / "run"))
    path = run / "model.safetensors"
    before = {name: tensor.clone() for name, tensor in load_file(path).items()}  # the file is mapped
    match harm:
        case "bit":
            flip_bit(path, -5)
        case "removed":
            path.unlink()
        case "stale":
            model = load_bundle(run).model
            for parameter in model.parameters():
                parameter.data.zero_()
            save_weights(model, path, {"run_step": "4"})
    trained(tiny(*WORSE_IN_THE_END), run)
    assert all(torch.equal(tensor, before[name]) for name, tensor in load_file(path).items())


def test_a_changed_setting_of_the_model_is_refused_even_if_the_recipe_of_the_run_was_changed_too(
    half: Path, tiny: Make, trained: Train
) -> None:
    changed = tiny("model.heads=4")
    (half / "recipe.toml").write_text(dump(changed), encoding="utf-8")
    with pytest.raises(ValueError, match=r"model.heads is 4 and was 2"):
        trained(changed, half)


class FailingTask(TranslationTask):
    """A task whose validation fails."""

    def evaluate(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        raise RuntimeError("out of memory")


def test_a_validation_that_fails_loses_no_step_and_is_repeated(
    straight: Path, tiny: Make, trained: Train, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match="out of memory"):
        list(train(tiny("train.every=4"), tmp_path / "run", "cpu", task=FailingTask(tiny("train.every=4"))))
    place, faults = find_latest(tmp_path / "run")
    assert place is not None
    assert (place.name, faults) == ("step-00000004", [])
    events = trained(tiny("train.every=2"), tmp_path / "run")
    assert kinds(events)[:2] == ["Started", "Validated"]
    assert same(straight, tmp_path / "run")


def test_a_folder_that_is_removed_during_training_becomes_a_complete_run_again(
    straight: Path, tiny: Make, tmp_path: Path
) -> None:
    events: list[Event] = []
    for event in train(tiny(), tmp_path / "run", "cpu"):
        events.append(event)
        if isinstance(event, Saved) and event.step == 4:
            shutil.rmtree(tmp_path / "run")
    messages = [event.message for event in events if isinstance(event, Noticed)]
    assert messages == [
        f"{tmp_path / 'run'} was removed during training; its recipe and vocabularies are written again"
    ]
    assert load_bundle(tmp_path / "run").scores["training"]["steps"] == 6
    assert same(straight, tmp_path / "run")


@pytest.mark.parametrize("folder", ["/proc/run", "/proc/version/run"])
def test_a_folder_that_cannot_be_written_to_is_an_error_before_data_are_read(folder: str, tiny: Make) -> None:
    stages: list[str] = []
    recipe = tiny("text.size=321")  # its vocabulary is not in the cache
    with pytest.raises(OSError, match=rf"cannot write in {folder}; choose another folder with --run"):
        next(train(recipe, Path(folder), "cpu", lambda stage, records: stages.append(stage)))
    assert stages == []


def test_a_run_that_fails_before_training_leaves_no_folder(tiny: Make, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        next(train(tiny("data.train.0={source='no.en', target='no.de'}"), tmp_path / "a" / "b", "cpu"))
    assert not (tmp_path / "a").exists()


def test_another_recipe_is_refused_with_the_differences(straight: Path, tiny: Make, trained: Train) -> None:
    with pytest.raises(ValueError, match=r"(?s)train.rate was 0.01, now 0.5.*--run$"):
        trained(tiny("train.rate=0.5"), straight)


def test_the_refusal_of_other_data_says_how_to_fine_tune(straight: Path, tiny: Make, trained: Train) -> None:
    with pytest.raises(ValueError, match=rf"(?s)data.train was .*regard train RECIPE --run .* train.start={straight}$"):
        trained(tiny("data.train.0.pairs=300"), straight)


def test_mutable_settings_may_change_when_a_run_resumes(straight: Path, tiny: Make, trained: Train) -> None:
    more = tiny("train.steps=7", "train.every=5", "train.tokens=700", "decode.beam=2")
    events = trained(more, straight)
    assert any(
        isinstance(event, Noticed) and "train.tokens was 512 and is now 700" in event.message for event in events
    )
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.step == 7


def test_the_sentences_that_choose_the_best_weights_may_not_change(tiny: Make, trained: Train, tmp_path: Path) -> None:
    trained(tiny("train.choose=bleu", "train.translate=4", "train.steps=2"), tmp_path)
    with pytest.raises(ValueError, match=r"train\.translate was 4, now 8"):
        trained(tiny("train.choose=bleu", "train.translate=8"), tmp_path)


def test_changed_data_under_the_same_recipe_are_refused(tiny: Make, trained: Train, tmp_path: Path) -> None:
    for side in ("en", "de"):
        (tmp_path / f"text.{side}").write_text("a b c\nd e f g\nh i\n" * 30, encoding="utf-8")
    names = f"data.train=[{{source='{tmp_path}/text.en', target='{tmp_path}/text.de'}}]"
    recipe = tiny(names, "data.drop=[]", "text.kind=word", "train.steps=2")
    trained(recipe, tmp_path / "run")
    with (tmp_path / "text.en").open("a", encoding="utf-8") as one, (tmp_path / "text.de").open("a") as other:
        print("a new", file=one)
        print("word d", file=other)
    before = {path: path.read_bytes() for path in (tmp_path / "run" / "tokenizer").iterdir()}
    with pytest.raises(ValueError, match=r"data or the vocabulary has changed.*--run runs/NEW train\.start="):
        trained(recipe.model_copy(update={"train": recipe.train.model_copy(update={"steps": 4})}), tmp_path / "run")
    assert before == {path: path.read_bytes() for path in before}, "the trained model needs its own vocabulary"


@pytest.mark.parametrize(
    ("harmed", "chosen"),
    [("best", "last, step 4"), ("step-00000004", "best on data.valid")],
)
def test_damaged_weights_are_ignored(
    harmed: str, chosen: str, tiny: Make, trained: Train, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recipe = tiny("train.steps=4", "train.average=2")
    trained(recipe, tmp_path)
    (tmp_path / "weights" / "step-00000002.safetensors").unlink()
    (tmp_path / "weights" / f"{harmed}.safetensors").write_bytes(b"no weights")
    (tmp_path / "model.safetensors").unlink()
    finished = trained(recipe, tmp_path)[-1]
    assert isinstance(finished, Finished)
    assert finished.scores["weights"].startswith(chosen)
    assert f"{harmed}.safetensors is damaged" in caplog.text


def test_a_run_without_a_checkpoint_may_be_replaced_by_another_recipe(
    tiny: Make, trained: Train, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="diverged"):
        trained(tiny("train.rate=1e30", "train.warmup=0"), tmp_path)
    stale = tmp_path / "weights" / "step-00009999.safetensors"
    stale.parent.mkdir(exist_ok=True)
    stale.write_bytes(b"of another model")
    trained(tiny("model.width=32", "train.average=2"), tmp_path)
    assert not stale.exists()
    assert (tmp_path / "model.safetensors").is_file()


def test_a_trained_model_without_checkpoints_is_not_replaced(straight: Path, tiny: Make, trained: Train) -> None:
    shutil.rmtree(straight / CHECKPOINTS)
    with pytest.raises(ValueError, match="started with another recipe"):
        trained(tiny("train.rate=0.5"), straight)
    with pytest.raises(ValueError, match=r"trained model but no checkpoint.*is left as it is.*--run"):
        trained(tiny(), straight)


def test_half_written_files_of_a_killed_process_are_removed(half: Path, tiny: Make, trained: Train) -> None:
    for name in ("model.safetensors.0a1b2c3d", "weights/best.safetensors.0a1b2c3d"):
        (half / name).write_bytes(b"half")
    (half / "model.safetensors.mine").write_bytes(b"a copy")
    trained(tiny(), half)
    assert not list(half.rglob("*.0a1b2c3d"))
    assert (half / "model.safetensors.mine").is_file()
    assert (half / "weights" / "best.safetensors").is_file()


def test_a_run_that_reached_its_time_limit_takes_no_further_step(tiny: Make, trained: Train, tmp_path: Path) -> None:
    recipe = tiny("train.minutes=1e-9", "train.steps=100")
    first = trained(recipe, tmp_path)[-1]
    assert kinds(events := trained(recipe, tmp_path)) == ["Started", "Finished"]
    assert isinstance(first, Finished)
    assert isinstance(events[-1], Finished)
    assert (events[-1].reason, events[-1].step) == ("time", first.step)
