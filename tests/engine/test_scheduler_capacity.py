"""Scheduling in too little room: refusals, growth, preemption, the step's budgets, figures."""

import dataclasses

import pytest

from core.cost_model import CostModel, DecodeCost, PrefillCost
from core.request import Request
from engine import actions as act, events as ev
from engine.engine_load import EngineLoad
from tests.engine.engine_cases import (
    MAX_CONTEXT,
    VOCAB,
    assert_clean,
    expected_answer,
    make_harness,
    make_request,
    of_kind,
    reserved_blocks,
)
from wire.messages import WorkerLoad

# ---- capacity ------------------------------------------------------------------------------------


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


# ---- the step's budgets --------------------------------------------------------------------------


def test_more_decodes_than_places_take_turns() -> None:
    harness = make_harness(max_batch=3)
    request = make_request(0, 20, choices=7, max_tokens=9)
    harness.post(ev.AddLocal(request))
    harness.run_until_idle()
    assert max(len(plan.chunks) for plan in harness.runner.plans) == 3
    for choice in range(7):
        assert harness.tokens(request, choice) == expected_answer(request, choice)
    seen = [[chunk.choice for chunk in plan.chunks] for plan in harness.runner.plans[1:4]]
    assert len({choice for chunks in seen for choice in chunks}) == 7


def test_local_prefill_keeps_the_step_below_the_tightest_target() -> None:
    cost = CostModel(
        prefill=PrefillCost(base_s=0.005, per_token_s=0.001),
        decode=DecodeCost(base_s=0.010, per_sequence_s=0.002),
    )
    harness = make_harness(step_tokens=512, cost=cost, max_step_ms=100.0)
    running = make_request("running", 10, max_tokens=30, tpot_ms=50.0)
    long = make_request("long", 150, tpot_ms=1_000.0)
    harness.post(ev.AddLocal(running))
    harness.step()
    harness.post(ev.AddLocal(long))
    harness.start()
    assert harness.plan is not None
    assert [len(chunk.tokens) for chunk in harness.plan.chunks] == [1, 38]  # 10 + 2 + 38 ms
    harness.finish()
    harness.post(ev.Abort(running.attempt))
    harness.start()
    assert harness.plan is not None
    assert [len(chunk.tokens) for chunk in harness.plan.chunks] == [95]  # 5 + 95 ms


def test_prefill_goes_on_beside_decodes_that_use_up_the_time() -> None:
    cost = CostModel(decode=DecodeCost(base_s=10.0))
    harness = make_harness(cost=cost, step_tokens=64)
    running = make_request("running", 10, max_tokens=30)
    long = make_request("long", 100)
    harness.post(ev.AddLocal(running))
    harness.step()
    harness.post(ev.AddLocal(long))
    harness.start()
    assert harness.plan is not None
    assert [len(chunk.tokens) for chunk in harness.plan.chunks] == [1, 16]


def test_decodes_leave_room_for_a_chunk() -> None:
    harness = make_harness(step_tokens=8, max_batch=8)
    for i in range(7):
        harness.post(ev.AddLocal(make_request(i, 1, max_tokens=50)))
    harness.step()
    harness.post(ev.AddLocal(make_request("new", 30)))
    harness.start()
    assert harness.plan is not None
    assert [len(chunk.tokens) for chunk in harness.plan.chunks] == [1, 1, 1, 1, 4]


# ---- figures -------------------------------------------------------------------------------------


def test_load_counts_what_is_there() -> None:
    harness = make_harness(blocks=16, step_tokens=32)
    harness.post(ev.AddLocal(make_request("decoding", 10)))
    harness.step()
    harness.post(ev.Reserve(make_request("receiving", 20)))
    harness.post(ev.AddLocal(make_request("prefilling", 100)))
    harness.step()
    harness.post(ev.AddLocal(make_request("waiting", 90)))
    load = harness.scheduler.load()
    assert dataclasses.replace(load, step_seconds_total=0.0) == EngineLoad(
        running=3,
        waiting=1,
        prefill_tokens_queued=(100 - 31) + 90,
        decode_batch=1,
        decode_context_tokens=12,
        blocks_free=16 - 1 - 2 - 7,
        blocks_owned=8,
        blocks_receiving=2,
        blocks_quarantined=0,
        preemptions_total=0,
        steps_total=2,
        step_seconds_total=0.0,
    )
    assert load.step_seconds_total > 0.0
    assert WorkerLoad(**dataclasses.asdict(load), transfers_open=0).running == 3
