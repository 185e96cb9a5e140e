"""When a server returns free memory to the kernel."""

from regard.serve.server import BUSY_SECONDS, IDLE_SECONDS, TrimSchedule


def test_an_idle_server_returns_memory_once() -> None:
    trims = TrimSchedule(0.0)
    assert not trims.is_due(1.0, requests=3, is_busy=True)
    assert not trims.is_due(IDLE_SECONDS, requests=3, is_busy=False)
    assert trims.is_due(1.0 + IDLE_SECONDS, requests=3, is_busy=False)
    assert not any(trims.is_due(100.0 * second, requests=3, is_busy=False) for second in range(1, 99))


def test_a_server_without_requests_returns_nothing() -> None:
    trims = TrimSchedule(0.0)
    assert not any(trims.is_due(float(second), requests=0, is_busy=False) for second in range(1000))


def test_a_server_that_is_always_busy_returns_memory_now_and_then() -> None:
    trims = TrimSchedule(0.0)
    due = [second for second in range(3 * BUSY_SECONDS + 1) if trims.is_due(float(second), 1 + second, is_busy=True)]
    assert due == [BUSY_SECONDS, 2 * BUSY_SECONDS, 3 * BUSY_SECONDS]


def test_a_short_pause_returns_nothing() -> None:
    trims = TrimSchedule(0.0)
    for second in range(BUSY_SECONDS):
        assert not trims.is_due(float(second), 1 + second, is_busy=second % IDLE_SECONDS == 0)
