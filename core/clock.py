"""Time as an argument: edges hold a clock, pure objects are handed `now_s`."""

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds that only go forward; the zero is arbitrary and never crosses a host border."""

    def now_s(self) -> float: ...


class MonotonicClock:
    """The machine's monotonic clock (CLOCK_MONOTONIC: one for all processes of a host)."""

    def now_s(self) -> float:
        return time.monotonic()


class VirtualClock:
    """A clock that moves when told to: for tests and for the simulator."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now_s(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"time goes forward only, not by {seconds} s")
        self._now_s += seconds
