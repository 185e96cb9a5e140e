"""The learning rate, held to the papers' formulas and to what a person expects of each schedule."""

import pytest

from regard.recipe import Train
from regard.train.schedule import rate


def settings(**told: object) -> Train:
    return Train.model_validate({"steps": 1000, "warmup": 100, "rate": 1e-3, **told})


def test_the_inverse_root_is_the_papers_formula() -> None:
    width, warmup = 512, 4000
    told = settings(rate=width**-0.5 * warmup**-0.5, warmup=warmup, schedule="inverse-root")
    for step in (1, 7, 3999, 4000, 4001, 100_000):
        assert rate(told, step) == pytest.approx(width**-0.5 * min(step**-0.5, step * warmup**-1.5), rel=1e-12)


@pytest.mark.parametrize("schedule", ["inverse-root", "cosine", "trapezoid", "constant", "plateau"])
def test_every_schedule_rises_in_a_line_to_its_peak(schedule: str) -> None:
    told = settings(schedule=schedule)
    assert rate(told, 50) == pytest.approx(5e-4)
    assert rate(told, 100) == pytest.approx(1e-3)


@pytest.mark.parametrize("schedule", ["inverse-root", "cosine", "trapezoid", "constant", "plateau"])
def test_no_schedule_needs_a_warm_up(schedule: str) -> None:
    assert rate(settings(schedule=schedule, warmup=0), 1) == pytest.approx(1e-3, rel=1e-2)


def test_the_cosine_is_halfway_down_in_the_middle_and_ends_at_nothing() -> None:
    told = settings(schedule="cosine")
    assert rate(told, 550) == pytest.approx(5e-4)
    assert rate(told, 1000) == pytest.approx(0.0, abs=1e-12)


def test_the_trapezoid_is_flat_until_it_cools_down() -> None:
    told = settings(schedule="trapezoid", cooldown=0.2)
    assert rate(told, 800) == 1e-3
    assert rate(told, 900) == pytest.approx(5e-4)
    assert rate(told, 1000) == 0.0


def test_a_plateau_shrinks_the_rate_and_no_other_schedule_does() -> None:
    assert rate(settings(schedule="plateau"), 500, shrunk=0.49) == pytest.approx(4.9e-4)
    assert rate(settings(schedule="constant"), 500, shrunk=0.49) == 1e-3
