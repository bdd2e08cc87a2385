"""What fits into a step: its budgets of tokens, places and time."""

from core.cost_model import CostModel, DecodeCost, PrefillCost
from engine import events as ev
from tests.engine.engine_cases import (
    expected_answer,
    make_harness,
    make_request,
)


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
