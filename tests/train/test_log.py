import json
import logging
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.train.story import STEPS, progress, started, story, validated

from regard.train.events import Finished, Noticed, Progress, Started
from regard.train.report.log import LogWriter, read_log


def keep(run: Path, since: int = 0, until: int | None = None) -> None:
    """Write the story from one step to another, as a run would that is killed after it."""
    with LogWriter(run) as log:
        for event in story(run, since):
            if until is not None and (isinstance(event, Finished) or getattr(event, "step", 0) > until):
                return
            log.write(event)


def test_reading_the_log_returns_the_written_events(tmp_path: Path) -> None:
    keep(tmp_path)
    events = list(story(tmp_path))
    # Messages before the start are written after it, because only then the position in the log is known.
    assert list(read_log(tmp_path).events) == [events[1], events[0], *events[2:]]


def test_every_line_is_an_object_with_the_name_of_its_event(tmp_path: Path) -> None:
    keep(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["event"] for line in lines[:3]] == ["started", "noticed", "progress"]
    assert lines[2]["step"] == 10
    assert lines[0]["recipe"]["data"]["train"][0]["pairs"] == 1000


@pytest.mark.parametrize("killed", [50, 60, 70, 90])
def test_a_resumed_log_equals_that_of_an_uninterrupted_run(tmp_path: Path, killed: int) -> None:
    whole, resumed = tmp_path / "run", tmp_path / "other" / "run"
    keep(whole)
    keep(resumed, until=killed)
    keep(resumed, since=50)
    assert (resumed / "log.jsonl").read_text() == (whole / "log.jsonl").read_text().replace(str(whole), str(resumed))


def test_a_run_stopped_and_resumed_has_one_finished_event(tmp_path: Path) -> None:
    keep(tmp_path, until=50)
    with LogWriter(tmp_path) as log:
        log.write(started(tmp_path, 50))
        log.write(Finished(50, "stopped", 5.0, 45_000, 50, {}, tmp_path))
    keep(tmp_path, since=50)
    endings = [event for event in read_log(tmp_path).events if isinstance(event, Finished)]
    assert [(event.step, event.reason) for event in endings] == [(STEPS, "steps")]


def test_a_run_from_step_0_replaces_the_log(tmp_path: Path) -> None:
    keep(tmp_path, until=60)
    with LogWriter(tmp_path) as log:
        log.write(started(tmp_path))
        log.write(progress(10))
    assert [type(event) for event in read_log(tmp_path).events] == [Started, Progress]
    assert len(list((tmp_path / "tensorboard").iterdir())) == 1


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_an_incomplete_last_line_loses_only_that_line(tmp_path: Path, cut: int) -> None:
    keep(tmp_path, until=60)
    path = tmp_path / "log.jsonl"
    before = read_log(tmp_path).events
    path.write_bytes(path.read_bytes()[: -1 - cut])
    assert read_log(tmp_path).events == before[:-1]
    keep(tmp_path, since=50)
    assert [event.step for event in read_log(tmp_path).progress] == list(range(10, 101, 10))


def test_a_log_cut_inside_a_character_can_be_read(tmp_path: Path) -> None:
    keep(tmp_path, until=50)
    path = tmp_path / "log.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex("ط".encode()) + 1])
    assert len(read_log(tmp_path).progress) == 5


def test_numbers_that_are_not_finite_are_written_as_json(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as log:
        log.write(started(tmp_path))
        log.write(Progress(**{**vars(progress(10)), "perplexity": float("inf"), "share": None}))
    assert "Infinity" not in (tmp_path / "log.jsonl").read_text()
    (event,) = read_log(tmp_path).progress
    assert event.perplexity != event.perplexity
    assert event.share is None


def test_a_message_repeated_after_resuming_is_logged_once(tmp_path: Path) -> None:
    keep(tmp_path, until=60)
    keep(tmp_path, since=50)
    assert [event.message for event in read_log(tmp_path).events if isinstance(event, Noticed)] == ["compile is off"]


def test_a_full_disk_causes_one_warning_and_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = tmp_path / "run"
    with LogWriter(run) as log:
        log.write(started(run))
        log.path = Path("/dev/full")
        with caplog.at_level(logging.WARNING):
            for step in (10, 20, 30):
                log.write(progress(step))
        log.path = run / "log.jsonl"
        log.path.write_text(log.path.read_text() + '{"event": "prog')  # the part of the line that fitted on the disk
        log.write(progress(40))
    assert len(caplog.records) == 1
    assert "No space left on device" in caplog.text
    assert [event.step for event in read_log(run).progress] == [40]


def test_a_folder_without_a_log_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no log\.jsonl"):
        read_log(tmp_path)


def test_a_line_from_another_version_is_skipped(tmp_path: Path) -> None:
    keep(tmp_path, until=20)
    path = tmp_path / "log.jsonl"
    lines = path.read_text().replace('"rate"', '"pace"').splitlines()
    path.write_text("\n".join([*lines, '{"event": "danced", "step": 3}', "[]", ""]))
    assert read_log(tmp_path).progress == []


def test_tensorboard_reads_the_curves_and_the_samples(tmp_path: Path) -> None:
    keep(tmp_path, until=70)
    keep(tmp_path, since=50)
    board = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"tensors": 0})
    board.Reload()
    assert [point.step for point in board.Scalars("train/loss")] == list(range(10, 101, 10))
    assert board.Scalars("valid/exact match")[-1].value == 100.0
    text = board.Tensors("samples")[-1].tensor_proto.string_val[0].decode()
    assert validated(STEPS).samples[1].output in text


def test_tensorboard_files_of_other_programs_are_kept(tmp_path: Path) -> None:
    theirs = tmp_path / "tensorboard" / "events.out.tfevents.1234.host"
    theirs.parent.mkdir()
    theirs.touch()
    keep(tmp_path, until=50)
    keep(tmp_path, since=50)
    names = {path.name for path in theirs.parent.iterdir()}
    assert names == {theirs.name, "events.out.tfevents.000001", "events.out.tfevents.000002"}
