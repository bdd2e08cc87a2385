import pytest

from core.clock import MonotonicClock, VirtualClock


def test_a_virtual_clock_moves_when_told_to() -> None:
    clock = VirtualClock(10.0)
    assert clock.now_s() == 10.0
    clock.advance(0.5)
    clock.advance(0.0)
    assert clock.now_s() == 10.5


def test_time_doesnt_go_back() -> None:
    clock = VirtualClock()
    with pytest.raises(ValueError, match="forward only"):
        clock.advance(-1.0)
    assert clock.now_s() == 0.0


def test_the_machines_clock_only_goes_forward() -> None:
    clock = MonotonicClock()
    readings = [clock.now_s() for _ in range(100)]
    assert readings == sorted(readings)
