"""What is expected of those that wait."""

import pytest

from dsocr.server.engine import Pace


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which passes when the test says so."""
    now = [100.0]
    monkeypatch.setattr("dsocr.server.engine.time.monotonic", lambda: now[0])
    return now


def read(one: Pace, clock: list[float], images: int, seconds: float) -> None:
    one.begin(images)
    clock[0] += seconds
    assert one.end() == pytest.approx(seconds)


def test_a_large_batch_counts_for_more_than_a_small_one(clock: list[float]) -> None:
    one = Pace()
    read(one, clock, 1, 2.5)
    read(one, clock, 64, 3.0)
    assert one.seconds_of(64) < 6.0
    for _ in range(30):
        read(one, clock, 64, 3.0)
    assert one.seconds_of(64) == pytest.approx(3.0, rel=0.01)


def test_the_rest_of_what_is_being_read_counts(clock: list[float]) -> None:
    one = Pace()
    for _ in range(50):
        read(one, clock, 10, 10.0)
    assert one.is_idle
    one.begin(10)
    assert not one.is_idle
    clock[0] += 4
    assert one.seconds_of(5) == pytest.approx(6 + 5, rel=0.01)
    clock[0] += 16
    assert one.seconds_of(5) == pytest.approx(5 * 2, rel=0.01), "the machine has become twice as slow at least"
