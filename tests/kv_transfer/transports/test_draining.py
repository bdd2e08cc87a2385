import pytest

from kv_transfer.transports import draining
from kv_transfer.transports.draining import drain


def test_polls_until_nothing_is_open() -> None:
    left = [3]

    def poll() -> None:
        left[0] -= 1

    drain(lambda: left[0] > 0, poll)
    assert left == [0]


def test_gives_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    polled = [0]

    def poll() -> None:
        polled[0] += 1

    monkeypatch.setattr(draining, "DRAIN_S", 0.01)
    drain(lambda: True, poll)
    assert polled[0] >= 1
