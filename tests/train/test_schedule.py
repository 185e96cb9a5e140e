"""Settings that a recipe leaves unset follow its model, its corpus and its time; settings that it names are kept."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.train.conftest import TINY, kinds
from tests.train.test_resume import same

from regard.recipe import Recipe, load, parse
from regard.train.checkpoint import find_latest
from regard.train.events import Event, Finished, Noticed, Progress, Started
from regard.train.loop import train
from regard.train.schedule import (
    MAX_STEPS,
    MIN_STEPS,
    ResolvedTrain,
    default_steps,
    default_tokens,
    describe_cut,
    learning_rate,
    plan_in_time,
    resolve,
)

ROOT = Path(__file__).resolve().parents[2]
UNSET = "\n".join(
    line for line in TINY.splitlines() if line.split(" = ")[0] not in ("steps", "warmup", "rate", "every")
)
BLOCK = {"optimiser": "adam", "rate": 0.5, "schedule": "constant", "warmup": 7}
Make = Callable[..., Recipe]
Train = Callable[[Recipe, Path], list[Event]]


def unset(*overrides: str) -> Recipe:
    """The tiny recipe without its steps, validations and learning rate."""
    return parse(UNSET, overrides, name="tiny")


def named(**settings: object) -> Recipe:
    """A recipe that names these settings of training, and no others."""
    return Recipe.model_validate({"data": {"train": [{"to": "de"}]}, "train": settings})


@given(
    st.fixed_dictionaries({}, optional={name: st.just(value) for name, value in BLOCK.items()}), st.integers(1, 9999)
)
def test_named_settings_are_kept(settings: dict[str, Any], steps: int) -> None:
    resolved = resolve(named(**settings), steps)
    assert {name: getattr(resolved, name) for name in settings} == settings
    if settings:  # what is not named beside them is what it always was
        usual = {"optimiser": "adamw", "rate": 1e-3, "schedule": "inverse-root", **settings}
        assert {name: getattr(resolved, name) for name in usual} == usual


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").rglob("*.toml")), ids=lambda path: path.stem)
def test_no_optimisation_of_a_recipe_in_the_repository_depends_on_corpus_or_device(path: Path) -> None:
    settings = load(path).train
    assert isinstance(settings.tokens, int)
    assert settings.warmup is not None
    # A time limit, or the budget of a race, sets the number of steps too.
    assert settings.steps is not None or settings.minutes is not None or path.parent.name == "race-multi30k"


@given(st.integers(1, 20_000))
def test_every_schedule_reaches_its_peak_and_an_unset_one_ends_near_zero(steps: int) -> None:
    settings = resolve(named(), steps)
    rates = [learning_rate(settings, step) for step in range(1, steps + 1)]
    assert max(rates) <= settings.rate
    assert max(rates) > 0.6 * settings.rate or steps < 4
    assert rates[-1] < 0.05 * settings.rate or steps < 4
    assert describe_cut(settings, steps) == "" or steps < 4
    assert settings.every <= max(steps // 10, 1)


def test_a_small_corpus_has_few_steps_and_a_large_one_no_more_than_before() -> None:
    assert default_steps(20_000, 1024) == MIN_STEPS
    assert default_steps(200_000, 1024) == 3906
    assert default_steps(10**9, 4096) == MAX_STEPS
    assert (default_tokens("cpu", 10**9, 40), default_tokens("cuda", 10**9, 40)) == (1024, 4096)
    assert default_tokens("cuda", 100_000, 40) == 2000
    assert default_tokens("cpu", 10**9, 5000) == 5000


@given(st.integers(0, 99), st.floats(1, 1e5), st.floats(1e-4, 1), st.floats(0, 1e4), st.none() | st.integers(1, 500))
def test_planned_steps_and_their_validations_fit_into_the_time(
    done: int, seconds: float, pace: float, validation: float, every: int | None
) -> None:
    plan = plan_in_time(done, seconds, pace, validation, every)
    steps = range(done + 1, plan.steps + 1)
    validations = sum(step % plan.every == 0 or step == plan.steps for step in steps)
    assert len(steps) == 1 or len(steps) * pace + validations * min(validation, 0.24 * seconds) <= seconds
    assert every in (None, plan.every)
    if every is None:
        assert validations <= 11 or plan.every >= 500
        assert len(steps) * pace + 12 * validation + pace * plan.every >= 0.9 * seconds - pace


def test_expensive_validations_are_fewer_but_at_least_two() -> None:
    assert plan_in_time(0, 1000, 1, 0.5).every == 97
    assert plan_in_time(0, 1000, 1, 40).every == 227  # 15 % of the time
    assert plan_in_time(0, 1000, 1, 200) == (570, 285)
    assert plan_in_time(0, 10**6, 1, 1000).every == 5667  # more than the usual 500


def test_a_schedule_that_is_cut_short_is_described() -> None:
    settings = ResolvedTrain(steps=8000, warmup=1000, schedule="trapezoid")
    assert "within the warm-up of 1,000 steps: the learning rate is at 49% of its peak" in describe_cut(settings, 492)
    assert "before step 8,000, at which the learning rate has decreased to zero" in describe_cut(settings, 5000)
    assert describe_cut(settings, 7900) == ""
    assert describe_cut(ResolvedTrain(steps=8000, warmup=100), 492) == ""


@pytest.fixture(scope="module")
def timed(cache: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Event]]:
    """A run whose time is limited, and its events; tests must not change it."""
    run = tmp_path_factory.mktemp("timed") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", cache)
        return run, list(train(unset("train.minutes=0.02"), run, "cpu"))


def test_a_run_with_a_time_limit_plans_its_steps_and_completes_its_schedule(timed: tuple[Path, list[Event]]) -> None:
    run, events = timed
    messages = [event.message for event in events if isinstance(event, Noticed)]
    progress = [event for event in events if isinstance(event, Progress)]
    started, finished = next(event for event in events if isinstance(event, Started)), events[-1]
    assert isinstance(finished, Finished)
    assert any("steps fit into train.minutes = 0.02: warm-up of" in message for message in messages)
    assert (started.steps, progress[0].steps) == (0, 0)
    assert progress[-1].steps == 0 or progress[-1].steps >= finished.step
    assert progress[-1].remaining <= 1.2
    path, _ = find_latest(run)
    assert path is not None
    state = json.loads((path / "notes.json").read_text(encoding="utf-8"))["state"]
    assert state["planned_minutes"] == 0.02
    assert state["planned"] >= finished.step
    assert load(run / "recipe.toml").train.steps is None


def test_a_run_with_planned_steps_resumes_to_the_same_bits(timed: tuple[Path, list[Event]], tmp_path: Path) -> None:
    """Both runs continue from a checkpoint with a plan for ten minutes; one of them is stopped once more."""
    recipe = unset("train.minutes=10.0")
    straight, stopped = (Path(shutil.copytree(timed[0], tmp_path / name)) for name in ("straight", "stopped"))
    for run in (straight, stopped):
        last, _ = find_latest(run)
        assert last is not None
        notes = json.loads((last / "notes.json").read_text(encoding="utf-8"))
        begin = notes["state"]["step"]
        notes["state"] |= {"planned": begin + 12, "planned_minutes": 10.0, "provisional": False}
        del notes["seal"]
        (last / "notes.json").write_text(json.dumps(notes), encoding="utf-8")
    events = list(train(recipe, straight, "cpu"))
    progress = [event for event in events if isinstance(event, Progress)]
    assert progress[-1].rate == pytest.approx(0.0, abs=1e-12)  # the end of a cosine
    for event in train(recipe, stopped, "cpu"):
        if isinstance(event, Progress) and event.step > begin:
            signal.raise_signal(signal.SIGTERM)
    assert isinstance(event, Finished)
    assert (event.reason, begin < event.step < begin + 12) == ("stopped", True)
    *_, finished = train(recipe, stopped, "cpu")
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.step) == ("steps", begin + 12)
    assert same(straight, stopped)
    assert kinds(list(train(recipe, stopped, "cpu"))) == ["Started", "Finished"]


def test_more_minutes_continue_a_finished_run(timed: tuple[Path, list[Event]], tmp_path: Path) -> None:
    run = Path(shutil.copytree(timed[0], tmp_path / "run"))
    first = timed[1][-1]
    assert isinstance(first, Finished)
    *_, finished = train(unset(f"train.minutes={first.seconds / 60 + 0.02}"), run, "cpu")
    assert isinstance(finished, Finished)
    assert finished.step > first.step


def test_a_run_that_ends_in_its_warm_up_says_so(tiny: Make, trained: Train, tmp_path: Path) -> None:
    events = trained(tiny("train.minutes=0.005", "train.steps=8000", "train.warmup=8000", "train.every=8000"), tmp_path)
    messages = [event.message for event in events if isinstance(event, Noticed)]
    assert "ended at step" in messages[-1]
    assert "within the warm-up of 8,000 steps" in messages[-1]
    assert "remove train.steps and train.warmup from the recipe" in messages[-1]


def test_unset_settings_resume_with_those_of_the_run(tiny: Make, begun: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(begun, tmp_path / "run"))
    *_, finished = train(unset("train.steps=5"), run, "cpu")
    assert isinstance(finished, Finished)
    assert finished.step == 5
    settings = load(run / "recipe.toml").train
    assert (settings.rate, settings.warmup) == (1e-2, 2)
