from dataclasses import FrozenInstanceError

import pytest

from core.ids import (
    Attempt,
    Epoch,
    Incarnation,
    ProcessId,
    RequestId,
    WorkerName,
    new_incarnation,
    new_request_id,
)


def test_an_attempt_is_one_try_of_one_request() -> None:
    first = Attempt(RequestId("req-1"), Epoch(1))
    assert first.next() == Attempt(RequestId("req-1"), Epoch(2))
    assert first < first.next()
    assert str(first) == "req-1#1"
    assert len({first, Attempt(RequestId("req-1"), Epoch(1)), first.next()}) == 2
    with pytest.raises(FrozenInstanceError):
        first.epoch = Epoch(2)  # type: ignore[misc]


def test_a_process_is_told_from_its_earlier_life() -> None:
    name = WorkerName("decode-0")
    assert ProcessId(name, Incarnation(1)) != ProcessId(name, Incarnation(2))
    assert str(ProcessId(name, Incarnation(255))) == "decode-0@ff"


def test_new_ids_dont_repeat() -> None:
    assert len({new_request_id() for _ in range(1_000)}) == 1_000
    assert new_request_id("chatcmpl").startswith("chatcmpl-")
    incarnations = {new_incarnation() for _ in range(1_000)}
    assert len(incarnations) == 1_000
    assert all(0 <= incarnation < 1 << 48 for incarnation in incarnations)
