"""How attempts leave a scheduler: abort, quarantine, release, and events that come late."""

import dataclasses

import pytest

from core.errors import BugError, IllegalTransition
from engine import actions as act, events as ev
from engine.step_plan import StepOutput
from tests.engine.engine_cases import (
    assert_clean,
    attempt_of,
    expected_answer,
    make_harness,
    make_request,
    of_kind,
    reserved_blocks,
)


def test_quarantined_blocks_are_not_handed_out() -> None:
    harness = make_harness(blocks=4)
    first, second = make_request(0, 40), make_request(1, 40)
    harness.post(ev.Reserve(first))
    harness.post(ev.Quarantine(first.attempt))
    assert harness.scheduler.load().blocks_quarantined == 3
    assert harness.post(ev.Reserve(second)) == []
    harness.post(ev.Abort(first.attempt))  # late: must not free them
    assert harness.scheduler.load().blocks_quarantined == 3
    assert of_kind(harness.post(ev.EndQuarantine(first.attempt)), act.Reserved)
    harness.post(ev.Abort(second.attempt))
    assert_clean(harness)


@pytest.mark.parametrize("event", [ev.Abort, ev.Quarantine])
@pytest.mark.parametrize("add", [ev.AddLocal, ev.AddPrefill])
def test_abort_in_a_running_step_frees_when_it_is_done(
    event: type[ev.Abort] | type[ev.Quarantine], add: type[ev.AddLocal] | type[ev.AddPrefill]
) -> None:
    harness = make_harness(blocks=4)
    request, other = make_request(0, 50, max_tokens=5), make_request(1, 50, max_tokens=5)
    harness.post(add(request))
    harness.start()
    harness.post(event(request.attempt))
    harness.post(ev.EndQuarantine(request.attempt))
    assert harness.scheduler.load().blocks_owned == 4
    assert harness.post(ev.Reserve(other)) == []
    actions = harness.finish()
    assert [type(action) for action in actions] == [act.Reserved]
    blocks = reserved_blocks(actions)
    assert not harness.ends
    harness.deliver(other, blocks)
    harness.run_until_idle()
    assert harness.tokens(other) == expected_answer(other, 0)[1:]
    assert_clean(harness)


def test_abort_of_a_group_of_which_only_copies_run_waits_too() -> None:
    """With two tokens a step, both groups' last blocks are copied and one of them is computed."""
    harness = make_harness(blocks=8, step_tokens=2)
    requests = [make_request(name, 20, choices=2, max_tokens=9) for name in range(2)]
    granted = [reserved_blocks(harness.post(ev.Reserve(request))) for request in requests]
    for request, blocks in zip(requests, granted, strict=True):
        harness.deliver(request, blocks)
    harness.start()
    assert harness.plan is not None
    assert len(harness.plan.copies) == 2
    assert {chunk.attempt for chunk in harness.plan.chunks} == {requests[0].attempt}
    harness.post(ev.Abort(requests[1].attempt))
    assert harness.scheduler.load().blocks_free == 2
    harness.finish()
    assert harness.scheduler.load().blocks_free == 5
    harness.run_until_idle()
    assert harness.tokens(requests[0], 1) == expected_answer(requests[0], 1)[1:]
    assert_clean(harness)


def test_release_before_the_prefill_is_done() -> None:
    harness = make_harness(step_tokens=16)
    request = make_request(0, 50)
    harness.post(ev.AddPrefill(request))
    harness.start()
    harness.post(ev.Release(request.attempt))
    assert harness.finish() == []
    assert_clean(harness)


def test_late_events_are_counted_and_ignored() -> None:
    harness = make_harness()
    attempt = attempt_of("gone")
    late: list[ev.Event] = [
        ev.Abort(attempt),
        ev.Quarantine(attempt),
        ev.EndQuarantine(attempt),
        ev.Release(attempt),
        ev.Recompute(attempt),
        ev.Delivered(attempt, ()),
    ]
    for event in late:
        assert harness.post(event) == []
    assert harness.scheduler.late_events_total == len(late)


def test_what_cannot_be_raises() -> None:
    harness = make_harness()
    request = make_request(0, 20)
    harness.post(ev.AddLocal(request))
    with pytest.raises(BugError, match="added twice"):
        harness.post(ev.AddLocal(request))
    with pytest.raises(IllegalTransition):
        harness.post(ev.Delivered(request.attempt, ()))
    harness.start()
    with pytest.raises(BugError, match="another one is running"):
        harness.scheduler.plan(0.0)
    assert harness.plan is not None
    with pytest.raises(BugError, match="0 tokens drawn"):
        harness.post(ev.StepDone(harness.plan, StepOutput(drawn=())))
    output = harness.runner.run(harness.plan)
    with pytest.raises(BugError, match="isn't the running one"):
        harness.post(ev.StepDone(dataclasses.replace(harness.plan), output))
    harness.finish()
