"""Waiting, at a transport's orderly end, for the posts that are under way."""

import time
from collections.abc import Callable

DRAIN_S = 1.0
POLL_S = 0.001


def drain(still_open: Callable[[], bool], poll: Callable[[], object]) -> None:
    """Poll until nothing is open, for DRAIN_S at most."""
    end_s = time.monotonic() + DRAIN_S
    while still_open() and time.monotonic() < end_s:
        poll()
        if still_open():
            time.sleep(POLL_S)
