"""Waiting for what only polling brings about."""

import time
from collections.abc import Callable

PATIENCE_S = 20.0


def poll_until(step: Callable[[], None], until: Callable[[], bool]) -> float:
    """Step until it is so; returns the seconds it took. Fails after PATIENCE_S."""
    start_s = time.monotonic()
    while not until():
        step()
        waited_s = time.monotonic() - start_s
        assert waited_s < PATIENCE_S, "it doesn't happen"
    return time.monotonic() - start_s
