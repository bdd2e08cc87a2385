"""Growth where blocks run out: preemption by recompute, and stalls."""

import dataclasses

from engine import actions as act, events as ev
from tests.engine.engine_cases import (
    assert_clean,
    expected_answer,
    make_harness,
    make_request,
    of_kind,
    reserved_blocks,
)


def test_growth_preempts_the_loosest_deadline_and_it_goes_on_where_it_was() -> None:
    harness = make_harness(blocks=8)
    loose = make_request("loose", 40, max_tokens=60, deadline_ms=90_000.0)
    tight = make_request("tight", 40, max_tokens=60, deadline_ms=10_000.0)
    harness.post(ev.AddLocal(loose))
    harness.post(ev.AddLocal(tight))
    actions = harness.run_until_idle()
    assert of_kind(actions, act.Preempted) == [act.Preempted(loose.attempt)]
    assert of_kind(actions, act.Resumed) == [act.Resumed(loose.attempt)]
    assert len(of_kind(actions, act.Started)) == 2
    for request in (loose, tight):
        assert harness.tokens(request) == expected_answer(request, 0)
    assert harness.scheduler.load().preemptions_total == 1
    assert_clean(harness)


def test_the_loosest_stalls_rather_than_preempt_a_tighter_one() -> None:
    harness = make_harness(blocks=5)
    tight = make_request("tight", 40, max_tokens=9, deadline_ms=1_000.0)  # three blocks always
    loose = make_request("loose", 30, max_tokens=20)
    harness.post(ev.AddLocal(tight))
    harness.post(ev.AddLocal(loose))
    actions = harness.run_until_idle()
    assert not of_kind(actions, act.Preempted)
    for request in (loose, tight):
        assert harness.tokens(request) == expected_answer(request, 0)
    stalled = [plan for plan in harness.runner.plans if len(plan.chunks) == 1]
    assert stalled, "the loose one should have had to wait"


def test_receiving_and_held_blocks_are_never_preempted() -> None:
    harness = make_harness(blocks=8)
    held, receiving = make_request("held", 40), make_request("receiving", 30, deadline_ms=9e6)
    running = make_request("running", 30, max_tokens=40, deadline_ms=1_000.0)
    harness.post(ev.AddPrefill(held))
    harness.run_until_idle()
    blocks = reserved_blocks(harness.post(ev.Reserve(receiving)))
    harness.post(ev.AddLocal(running))
    actions = harness.run_until_idle()  # stalls: 3 + 2 + 3 blocks
    assert not of_kind(actions, act.Preempted)
    assert not harness.ends
    harness.post(ev.Release(held.attempt))
    harness.deliver(receiving, blocks)
    harness.run_until_idle()
    assert harness.tokens(running) == expected_answer(running, 0)
    assert harness.tokens(receiving) == expected_answer(receiving, 0)[1:]
    assert_clean(harness)


def test_half_done_prefill_for_a_hand_over_is_never_preempted() -> None:
    harness = make_harness(blocks=12, step_tokens=9)
    running = make_request("running", 16, max_tokens=30, deadline_ms=1_000.0)
    prefill = make_request("prefill", 160)  # ten blocks, 8 tokens a step
    harness.post(ev.AddLocal(running))
    harness.step()
    harness.post(ev.AddPrefill(prefill))
    actions = harness.run_until_idle()
    assert not of_kind(actions, act.Preempted)
    assert of_kind(actions, act.PrefillDone)
    chunks = [[len(chunk.tokens) for chunk in plan.chunks] for plan in harness.runner.plans]
    assert [9] in chunks[3:], "the running one should have had to stall beside the prefill"
    harness.post(ev.Release(prefill.attempt))
    harness.run_until_idle()
    assert harness.tokens(running) == expected_answer(running, 0)


def test_preempted_choices_share_their_prompt_again() -> None:
    harness = make_harness(blocks=12)
    several = make_request("several", 40, max_tokens=40, choices=3)
    tight = make_request("tight", 30, max_tokens=60, deadline_ms=1_000.0)
    harness.post(ev.AddLocal(several))
    for _ in range(5):
        harness.step()
    harness.post(ev.AddLocal(tight))
    actions = harness.run_until_idle()
    assert of_kind(actions, act.Preempted)
    for choice in range(3):
        assert harness.tokens(several, choice) == expected_answer(several, choice)
    assert harness.tokens(tight) == expected_answer(tight, 0)
    assert_clean(harness)


def test_resumed_choices_go_on_at_their_own_positions() -> None:
    harness = make_harness()
    whole = make_request(0, 20, max_tokens=30, choices=4)
    answers = [[each.token for each in expected_answer(whole, choice)] for choice in range(4)]
    done = (9, 0, 17)
    generated = (*(tuple(answers[choice][:n]) for choice, n in enumerate(done)), None)
    request = dataclasses.replace(whole, generated=generated)
    harness.post(ev.AddLocal(request))
    harness.run_until_idle()
    for choice, n in enumerate(done):
        assert harness.tokens(request, choice) == expected_answer(whole, choice)[n:]
    assert harness.tokens(request, 3) == []
    assert_clean(harness)


def test_resumed_with_nothing_left_to_do_ends_at_once() -> None:
    harness = make_harness()
    request = make_request(0, 20, max_tokens=2, choices=2, generated=(None, (1, 2)))
    assert harness.post(ev.AddLocal(request)) == [act.Ended(request.attempt)]
