"""How long a client is asked to wait when a queue is full."""

from hypothesis import given
from hypothesis import strategies as st

from regard.serve.throughput import MAX_SECONDS, Throughput


def test_the_estimate_follows_the_jobs_finished_since_work_began() -> None:
    throughput = Throughput()
    throughput.start(1000.0)
    for second in range(1, 3):
        throughput.finish(50, 1000.0 + second)
    assert throughput.seconds_for(100, 1002.0) == 2


def test_the_time_without_jobs_does_not_count() -> None:
    throughput = Throughput()
    throughput.start(0.0)
    throughput.finish(10, 1.0)
    throughput.start(1000.0)
    throughput.finish(10, 1001.0)
    assert throughput.seconds_for(20, 1001.0) == 2


def test_without_a_finished_job_the_estimate_is_the_time_so_far() -> None:
    throughput = Throughput()
    throughput.start(1000.0)
    assert throughput.seconds_for(2048, 1000.1) == 1
    assert throughput.seconds_for(2048, 1004.0) == 4


@given(st.lists(st.tuples(st.floats(0, 20), st.integers(1, 600)), max_size=20), st.integers(0, 5000))
def test_the_estimate_has_bounds(steps: list[tuple[float, int]], jobs: int) -> None:
    throughput, now = Throughput(), 0.0
    throughput.start(now)
    for seconds, count in steps:
        now += seconds
        throughput.finish(count, now)
    assert 1 <= throughput.seconds_for(jobs, now) <= MAX_SECONDS
