import json
import logging
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.train.story import STEPS, progress, started, story, validated

from regard.train.events import Finished, Noticed, Progress, Started
from regard.train.journal import Journal, read


def keep(run: Path, since: int = 0, until: int | None = None) -> None:
    """Write the story from one step to another, as a run would that is killed after it."""
    with Journal(run) as journal:
        for event in story(run, since):
            if until is not None and (isinstance(event, Finished) or getattr(event, "step", 0) > until):
                return
            journal.write(event)


def test_the_log_gives_back_the_events_it_was_told(tmp_path: Path) -> None:
    keep(tmp_path)
    told = list(story(tmp_path))
    # What was noticed before the start stands after it: only then is known where the log goes on.
    assert list(read(tmp_path).events) == [told[1], told[0], *told[2:]]


def test_every_line_is_an_object_that_says_what_it_is(tmp_path: Path) -> None:
    keep(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["event"] for line in lines[:3]] == ["started", "noticed", "progress"]
    assert lines[2]["step"] == 10
    assert lines[0]["recipe"]["data"]["train"][0]["pairs"] == 1000


@pytest.mark.parametrize("killed", [50, 60, 70, 90])
def test_a_resumed_log_is_the_log_of_a_run_that_was_never_stopped(tmp_path: Path, killed: int) -> None:
    whole, resumed = tmp_path / "run", tmp_path / "other" / "run"
    keep(whole)
    keep(resumed, until=killed)
    keep(resumed, since=50)
    assert (resumed / "log.jsonl").read_text() == (whole / "log.jsonl").read_text().replace(str(whole), str(resumed))


def test_a_run_stopped_and_resumed_has_one_ending(tmp_path: Path) -> None:
    keep(tmp_path, until=50)
    with Journal(tmp_path) as journal:
        journal.write(started(tmp_path, 50))
        journal.write(Finished(50, "stopped", 5.0, 45_000, 50, {}, tmp_path))
    keep(tmp_path, since=50)
    endings = [event for event in read(tmp_path).events if isinstance(event, Finished)]
    assert [(event.step, event.reason) for event in endings] == [(STEPS, "steps")]


def test_a_run_from_the_beginning_forgets_what_was_there(tmp_path: Path) -> None:
    keep(tmp_path, until=60)
    with Journal(tmp_path) as journal:
        journal.write(started(tmp_path))
        journal.write(progress(10))
    assert [type(event) for event in read(tmp_path).events] == [Started, Progress]
    assert len(list((tmp_path / "tensorboard").iterdir())) == 1


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_last_line_costs_that_line_alone(tmp_path: Path, cut: int) -> None:
    keep(tmp_path, until=60)
    path = tmp_path / "log.jsonl"
    before = read(tmp_path).events
    path.write_bytes(path.read_bytes()[: -1 - cut])
    assert read(tmp_path).events == before[:-1]
    keep(tmp_path, since=50)
    assert [event.step for event in read(tmp_path).progress] == list(range(10, 101, 10))


def test_a_log_cut_inside_a_letter_can_be_read(tmp_path: Path) -> None:
    keep(tmp_path, until=50)
    path = tmp_path / "log.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex("ط".encode()) + 1])
    assert len(read(tmp_path).progress) == 5


def test_numbers_without_bounds_are_written_as_json(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.write(started(tmp_path))
        journal.write(Progress(**{**vars(progress(10)), "perplexity": float("inf"), "share": None}))
    assert "Infinity" not in (tmp_path / "log.jsonl").read_text()
    (event,) = read(tmp_path).progress
    assert event.perplexity != event.perplexity
    assert event.share is None


def test_what_is_said_again_after_resuming_stands_once(tmp_path: Path) -> None:
    keep(tmp_path, until=60)
    keep(tmp_path, since=50)
    assert [event.message for event in read(tmp_path).events if isinstance(event, Noticed)] == ["compile is off"]


def test_a_full_disk_costs_one_warning_and_no_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = tmp_path / "run"
    with Journal(run) as journal:
        journal.write(started(run))
        journal.path = Path("/dev/full")
        with caplog.at_level(logging.WARNING):
            for step in (10, 20, 30):
                journal.write(progress(step))
        journal.path = run / "log.jsonl"
        journal.path.write_text(journal.path.read_text() + '{"event": "prog')  # what fitted of the line that did not
        journal.write(progress(40))
    assert len(caplog.records) == 1
    assert "No space left on device" in caplog.text
    assert [event.step for event in read(run).progress] == [40]


def test_a_folder_without_a_log_is_said_to_have_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no log\.jsonl"):
        read(tmp_path)


def test_a_line_from_another_version_is_passed_over(tmp_path: Path) -> None:
    keep(tmp_path, until=20)
    path = tmp_path / "log.jsonl"
    lines = path.read_text().replace('"rate"', '"pace"').splitlines()
    path.write_text("\n".join([*lines, '{"event": "danced", "step": 3}', "[]", ""]))
    assert read(tmp_path).progress == []


def test_tensorboard_reads_the_curves_and_the_samples(tmp_path: Path) -> None:
    keep(tmp_path, until=70)
    keep(tmp_path, since=50)
    board = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"tensors": 0})
    board.Reload()
    assert [each.step for each in board.Scalars("train/loss")] == list(range(10, 101, 10))
    assert board.Scalars("valid/exact match")[-1].value == 100.0
    text = board.Tensors("samples")[-1].tensor_proto.string_val[0].decode()
    assert validated(STEPS).samples[1].translation in text


def test_tensorboard_files_of_others_are_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "tensorboard" / "events.out.tfevents.1234.host"
    theirs.parent.mkdir()
    theirs.touch()
    keep(tmp_path, until=50)
    keep(tmp_path, since=50)
    names = {each.name for each in theirs.parent.iterdir()}
    assert names == {theirs.name, "events.out.tfevents.000001", "events.out.tfevents.000002"}
