"""The learning rate schedules, compared with the formulas of the papers."""

import pytest

from regard.train.schedule import ResolvedTrain, learning_rate


def settings(**overrides: object) -> ResolvedTrain:
    return ResolvedTrain.model_validate({"steps": 1000, "warmup": 100, "rate": 1e-3, **overrides})


def test_inverse_root_follows_the_formula_of_the_paper() -> None:
    width, warmup = 512, 4000
    schedule_settings = settings(rate=width**-0.5 * warmup**-0.5, warmup=warmup, schedule="inverse-root")
    for step in (1, 7, 3999, 4000, 4001, 100_000):
        assert learning_rate(schedule_settings, step) == pytest.approx(
            width**-0.5 * min(step**-0.5, step * warmup**-1.5), rel=1e-12
        )


@pytest.mark.parametrize("schedule", ["inverse-root", "cosine", "trapezoid", "constant", "plateau"])
def test_every_schedule_warms_up_linearly(schedule: str) -> None:
    schedule_settings = settings(schedule=schedule)
    assert learning_rate(schedule_settings, 50) == pytest.approx(5e-4)
    assert learning_rate(schedule_settings, 100) == pytest.approx(1e-3)


@pytest.mark.parametrize("schedule", ["inverse-root", "cosine", "trapezoid", "constant", "plateau"])
def test_every_schedule_works_without_warm_up(schedule: str) -> None:
    assert learning_rate(settings(schedule=schedule, warmup=0), 1) == pytest.approx(1e-3, rel=1e-2)


def test_cosine_is_at_half_the_peak_in_the_middle_and_ends_at_zero() -> None:
    schedule_settings = settings(schedule="cosine")
    assert learning_rate(schedule_settings, 550) == pytest.approx(5e-4)
    assert learning_rate(schedule_settings, 1000) == pytest.approx(0.0, abs=1e-12)


def test_trapezoid_is_constant_until_the_cool_down() -> None:
    schedule_settings = settings(schedule="trapezoid", cooldown=0.2)
    assert learning_rate(schedule_settings, 800) == 1e-3
    assert learning_rate(schedule_settings, 900) == pytest.approx(5e-4)
    assert learning_rate(schedule_settings, 1000) == 0.0


def test_only_the_plateau_schedule_shrinks_the_rate() -> None:
    assert learning_rate(settings(schedule="plateau"), 500, shrunk=0.49) == pytest.approx(4.9e-4)
    assert learning_rate(settings(schedule="constant"), 500, shrunk=0.49) == 1e-3
