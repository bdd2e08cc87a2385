"""Who gets blocks, in which order, and who is refused."""

import pytest

from core.request import Request
from engine import actions as act, events as ev
from tests.engine.engine_cases import (
    MAX_CONTEXT,
    VOCAB,
    assert_clean,
    make_harness,
    make_request,
    of_kind,
    reserved_blocks,
)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (make_request(0, MAX_CONTEXT), "context"),
        (make_request(0, 100, max_tokens=99), "13 KV blocks"),
        (make_request(0, 0), "empty"),
        (make_request(0, 10, generated=((), ())), "match"),
        (make_request(0, [5, VOCAB]), "vocabulary"),
        (make_request(0, [5, -1]), "vocabulary"),
        (make_request(0, 10, generated=((VOCAB,),)), "vocabulary"),
        (make_request(0, 10, choices=2, generated=((1,), (2,))), "handed over"),
        (make_request(0, 10, generated=(None,)), "ended already"),
    ],
)
def test_impossible_requests_are_refused_at_once(request_: Request, reason: str) -> None:
    harness = make_harness(blocks=12)
    (refused,) = harness.post(ev.Reserve(request_))
    assert isinstance(refused, act.Impossible)
    assert reason in refused.reason
    assert_clean(harness)


def test_prefill_alone_needs_no_blocks_for_the_answer() -> None:
    harness = make_harness(blocks=4)
    request = make_request(0, 64, max_tokens=100)
    harness.post(ev.AddPrefill(request))
    assert of_kind(harness.run_until_idle(), act.PrefillDone)


def test_a_patient_large_request_isnt_starved_by_urgent_small_ones() -> None:
    """Small ones arrive for ever, twice as many as can be served. Deadlines are absolute, so only
    those that arrive while the large one's is still looser can go first."""
    harness = make_harness(blocks=8)
    large = make_request("large", 100, deadline_ms=10_000.0)
    harness.post(ev.Reserve(large))
    for second in range(40):
        harness.now_s = float(second)
        for i in range(4):
            name = f"{second}/{i}"
            harness.post(ev.AddLocal(make_request(name, 40, max_tokens=4, deadline_ms=3_000.0)))
        for _ in range(4):
            harness.step()
        if harness.scheduler.blocks_of(large.attempt):
            assert harness.ends.total() <= 4 * (10 - 3) + 2
            return
    raise AssertionError("the large request never got its blocks")


def test_reservations_wait_in_order_for_blocks_and_for_places() -> None:
    harness = make_harness(blocks=8, max_batch=2)
    requests = [make_request(i, 40, max_tokens=4) for i in range(3)]
    granted = [harness.post(ev.Reserve(request)) for request in requests]
    assert [len(actions) for actions in granted] == [1, 1, 0]
    assert harness.scheduler.load().waiting == 1
    harness.deliver(requests[0], reserved_blocks(granted[0]))
    actions = harness.run_until_idle()
    assert of_kind(actions, act.Reserved)[0].attempt == requests[2].attempt


def test_watermark_is_kept_for_growth_but_not_from_a_request_alone() -> None:
    harness = make_harness(blocks=10, watermark=0.2)
    whole = make_request(0, 150, max_tokens=5)  # all ten blocks
    blocks = reserved_blocks(harness.post(ev.Reserve(whole)))
    harness.deliver(whole, blocks)
    harness.run_until_idle()
    first, second, third = (make_request(i, 40, max_tokens=4) for i in range(1, 4))
    assert harness.post(ev.Reserve(first))
    assert harness.post(ev.Reserve(second))
    assert harness.post(ev.Reserve(third)) == []  # 4 blocks are free, 2 of them kept


def test_prefill_takes_all_its_blocks_first_and_nobody_overtakes() -> None:
    harness = make_harness(blocks=8)
    first, large, small = make_request(0, 80), make_request(1, 64), make_request(2, 10)
    for request in (first, large, small):
        harness.post(ev.AddPrefill(request))
    harness.run_until_idle()
    assert harness.scheduler.load().waiting == 2
    assert harness.scheduler.blocks_of(small.attempt) == ()
    harness.post(ev.Release(first.attempt))
    actions = harness.run_until_idle()
    assert {action.attempt for action in of_kind(actions, act.PrefillDone)} == {
        large.attempt,
        small.attempt,
    }
