import random

import pytest

from core.errors import IndexCorrupt
from engine.group_queue import GroupQueue
from engine.sequence import Group, Purpose
from tests.engine.engine_cases import make_request


def make_group(arrival: int, deadline_ms: float) -> Group:
    request = make_request(arrival, 4, deadline_ms=deadline_ms)
    return Group(
        request, Purpose.LOCAL, now_s=1.0, arrival=arrival, eos_token_ids=(), max_context=99
    )


def test_order_is_deadline_then_arrival() -> None:
    groups = [make_group(arrival, 1_000.0 * (arrival % 3 + 1)) for arrival in range(9)]
    queue = GroupQueue()
    assert queue.head is None
    for group in random.Random(1).sample(groups, len(groups)):
        queue.add(group)
        queue.check_integrity()
    assert [group.arrival for group in queue] == [0, 3, 6, 1, 4, 7, 2, 5, 8]
    assert queue.head is groups[0]
    assert next(reversed(queue)) is groups[8]
    assert groups[0].deadline_s == 2.0


def test_removal_takes_the_very_group() -> None:
    queue = GroupQueue()
    groups = [make_group(arrival, 1_000.0) for arrival in range(5)]
    for group in groups:
        queue.add(group)
    queue.remove(groups[2])
    assert [group.arrival for group in queue] == [0, 1, 3, 4]
    assert len(queue) == 4
    for absent in (groups[2], make_group(1, 1_000.0), make_group(9, 9_000.0)):
        with pytest.raises(IndexCorrupt):
            queue.remove(absent)


def test_broken_order_is_found() -> None:
    queue = GroupQueue()
    for arrival in range(3):
        queue.add(make_group(arrival, 1_000.0))
    next(iter(queue)).deadline_s = 99.0
    with pytest.raises(IndexCorrupt):
        queue.check_integrity()
