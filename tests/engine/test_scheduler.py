"""The scheduler's rules, one by one; test_scheduler_machine.py has them in any order."""

import dataclasses

import pytest

from core.cost_model import CostModel, DecodeCost, PrefillCost
from core.errors import BugError, IllegalTransition
from core.request import FinishReason, Request, SampledToken
from engine import actions as act, events as ev
from engine.engine_load import EngineLoad
from engine.step_plan import StepOutput
from tests.engine.engine_cases import (
    EOS,
    MAX_CONTEXT,
    Harness,
    attempt_of,
    expected_answer,
    make_harness,
    make_request,
)
from wire.messages import WorkerLoad


def reserved_blocks(actions: list[act.Action]) -> tuple[int, ...]:
    (reserved,) = [action for action in actions if isinstance(action, act.Reserved)]
    return reserved.blocks


def of_kind(actions: list[act.Action], kind: type[act.Action]) -> list[act.Action]:
    return [action for action in actions if isinstance(action, kind)]


def assert_clean(harness: Harness) -> None:
    load = harness.scheduler.load()
    assert harness.scheduler.holds_nothing
    assert (load.blocks_owned, load.blocks_receiving, load.blocks_quarantined) == (0, 0, 0)


# ---- local ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", [1, 15, 16, 17, 130])
def test_local_request_is_answered(prompt: int) -> None:
    harness = make_harness()
    request = make_request(0, prompt, max_tokens=20)
    harness.post(ev.AddLocal(request))
    actions = harness.run_until_idle()
    assert harness.tokens(request) == expected_answer(request, 0)
    assert harness.ends == {request.attempt: 1}
    assert [type(action) for action in actions[:2]] == [act.Started, act.Emit]
    assert isinstance(actions[-1], act.Ended)
    assert_clean(harness)


def test_eos_and_stop_tokens_end_unless_below_min_tokens() -> None:
    harness = make_harness()
    requests = [
        make_request(i, max_tokens=100, ignore_eos=False, min_tokens=i % 3 * 10) for i in range(12)
    ]
    for request in requests:
        harness.post(ev.AddLocal(request))
    harness.run_until_idle()
    for request in requests:
        answer = harness.tokens(request)
        assert answer == expected_answer(request, 0)
        assert len(answer) > request.sampling.min_tokens
        assert answer[-1].finish is not None
        assert (answer[-1].finish is FinishReason.STOP) == (answer[-1].token == EOS)
    assert_clean(harness)


def test_answer_ends_where_the_context_is_full() -> None:
    harness = make_harness()
    request = make_request(0, MAX_CONTEXT - 3, max_tokens=50)
    harness.post(ev.AddLocal(request))
    harness.run_until_idle()
    assert len(harness.tokens(request)) == 3
    assert harness.tokens(request)[-1].finish is FinishReason.LENGTH
    assert_clean(harness)


def test_history_goes_along_only_when_it_is_used() -> None:
    harness = make_harness()
    plain = make_request(0, 5)
    penalised = make_request(1, 5, repetition_penalty=1.2)
    harness.post(ev.AddLocal(plain))
    harness.post(ev.AddLocal(penalised))
    harness.step()
    harness.start()
    assert harness.plan is not None
    first, second = harness.plan.samples()
    assert (first.prompt, first.output) == ((), ())
    assert second.prompt == penalised.prompt
    assert second.output == (expected_answer(penalised, 0)[0].token,)


def test_choices_share_the_prompt_and_copy_its_last_block() -> None:
    harness = make_harness()
    request = make_request(0, 40, max_tokens=20, choices=4)
    harness.post(ev.AddLocal(request))
    harness.step()
    assert harness.scheduler.load().blocks_owned == 3
    harness.start()
    assert harness.plan is not None
    assert len(harness.plan.copies) == 3
    assert harness.scheduler.load().blocks_owned == 2 + 4
    harness.finish()
    harness.run_until_idle()
    for choice in range(4):
        assert harness.tokens(request, choice) == expected_answer(request, choice)
    assert harness.ends == {request.attempt: 1}
    assert_clean(harness)


def test_choices_of_a_block_long_prompt_need_no_copy() -> None:
    harness = make_harness()
    request = make_request(0, 32, max_tokens=5, choices=3)
    harness.post(ev.AddLocal(request))
    harness.run_until_idle()
    assert not any(plan.copies for plan in harness.runner.plans)
    for choice in range(3):
        assert harness.tokens(request, choice) == expected_answer(request, choice)


# ---- prefill for a hand-over ---------------------------------------------------------------------


def test_prefill_reports_each_chunk_and_holds_its_blocks() -> None:
    harness = make_harness(step_tokens=32)
    request = make_request(0, 70, choices=2)
    assert harness.post(ev.AddPrefill(request)) == []
    actions = harness.run_until_idle()
    assert of_kind(actions, act.Computed) == [
        act.Computed(request.attempt, tokens) for tokens in (32, 64, 70)
    ]
    assert actions[0] == act.Started(request.attempt)
    first = (expected_answer(request, 0)[0], expected_answer(request, 1)[0])
    assert actions[-1] == act.PrefillDone(request.attempt, first)
    blocks = harness.scheduler.blocks_of(request.attempt)
    assert len(blocks) == 5
    assert harness.runner.read(blocks, 70) == list(request.prompt)
    assert harness.scheduler.load().blocks_owned == 5
    harness.post(ev.Release(request.attempt))
    assert harness.scheduler.blocks_of(request.attempt) == ()
    assert_clean(harness)


def test_first_token_that_ends_a_choice_says_so() -> None:
    harness = make_harness()
    request = make_request(0, 20, max_tokens=1)
    harness.post(ev.AddPrefill(request))
    (done,) = of_kind(harness.run_until_idle(), act.PrefillDone)
    assert isinstance(done, act.PrefillDone)
    assert [sampled.finish for sampled in done.first] == [FinishReason.LENGTH]


def test_prefills_are_served_by_deadline_and_several_share_a_step() -> None:
    harness = make_harness(step_tokens=64)
    late, soon, middle = (
        make_request(name, 40, deadline_ms=deadline)
        for name, deadline in (("late", 9_000.0), ("soon", 1_000.0), ("middle", 5_000.0))
    )
    for request in (late, soon, middle):
        harness.post(ev.AddPrefill(request))
    harness.start()
    assert harness.plan is not None
    assert [(chunk.attempt, len(chunk.tokens)) for chunk in harness.plan.chunks] == [
        (soon.attempt, 40),
        (middle.attempt, 24),
    ]


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


def test_resumed_single_choice_can_be_handed_over() -> None:
    whole = make_request(0, 20, max_tokens=12)
    answer = expected_answer(whole, 0)
    request = dataclasses.replace(whole, generated=(tuple(each.token for each in answer[:5]),))
    prefill, decode = make_harness(), make_harness()
    prefill.post(ev.AddPrefill(request))
    (done,) = of_kind(prefill.run_until_idle(), act.PrefillDone)
    assert done == act.PrefillDone(request.attempt, (answer[5],))
    blocks = reserved_blocks(decode.post(ev.Reserve(request)))
    assert len(blocks) == 2  # 25 tokens
    decode.deliver(request, blocks)
    decode.run_until_idle()
    assert decode.tokens(request) == answer[6:]


# ---- reservation and delivery --------------------------------------------------------------------


@pytest.mark.parametrize("prompt", [1, 15, 16, 17, 33])
@pytest.mark.parametrize("choices", [1, 3])
def test_delivered_prompt_is_decoded_on(prompt: int, choices: int) -> None:
    harness = make_harness()
    request = make_request(0, prompt, max_tokens=40, choices=choices)
    blocks = reserved_blocks(harness.post(ev.Reserve(request)))
    assert len(blocks) == -(-prompt // 16)
    assert harness.scheduler.load().blocks_receiving == -(-(prompt + 1) // 16)
    assert harness.start() == []
    assert harness.plan is None
    assert harness.deliver(request, blocks) == []
    actions = harness.run_until_idle()
    assert actions[0] == act.DecodeStarted(request.attempt)
    assert len(of_kind(actions, act.DecodeStarted)) == 1
    assert not of_kind(actions, act.Started)
    for choice in range(choices):
        assert harness.tokens(request, choice) == expected_answer(request, choice)[1:]
    assert harness.ends == {request.attempt: 1}
    assert_clean(harness)


def test_first_tokens_that_end_choices_are_honoured() -> None:
    harness = make_harness()
    request = make_request(0, 20, max_tokens=6, choices=3)
    blocks = reserved_blocks(harness.post(ev.Reserve(request)))
    first = harness.play_prefill(request, blocks)
    ended = dataclasses.replace(first[0], finish=FinishReason.STOP)
    harness.post(ev.Delivered(request.attempt, (ended, *first[1:])))
    harness.run_until_idle()
    assert harness.tokens(request, 0) == []
    for choice in (1, 2):
        assert harness.tokens(request, choice) == expected_answer(request, choice)[1:]
    assert_clean(harness)


def test_first_token_that_ends_everything_ends_the_attempt() -> None:
    harness = make_harness()
    request = make_request(0, 20, max_tokens=1)
    blocks = reserved_blocks(harness.post(ev.Reserve(request)))
    assert harness.deliver(request, blocks) == [act.Ended(request.attempt)]
    assert_clean(harness)


def test_first_tokens_of_other_choices_are_refused() -> None:
    harness = make_harness()
    request = make_request(0, 20)
    harness.post(ev.Reserve(request))
    (refused,) = harness.post(ev.Delivered(request.attempt, (SampledToken(1, 0, 5),)))
    assert isinstance(refused, act.Impossible)
    assert_clean(harness)


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


def test_recompute_prefills_a_reservation_here() -> None:
    harness = make_harness()
    request = make_request(0, 40)
    blocks = reserved_blocks(harness.post(ev.Reserve(request)))
    harness.runner.write(blocks, 0, [1] * 40)  # what the checksum refused
    harness.post(ev.Recompute(request.attempt))
    actions = harness.run_until_idle()
    assert actions[0] == act.Started(request.attempt)
    assert harness.tokens(request) == expected_answer(request, 0)
    assert_clean(harness)


def test_recompute_of_a_reservation_that_waits() -> None:
    harness = make_harness(blocks=4)
    first, second = make_request(0, 40), make_request(1, 40)
    harness.post(ev.Reserve(first))
    assert harness.post(ev.Reserve(second)) == []
    harness.post(ev.Recompute(second.attempt))
    harness.post(ev.Abort(first.attempt))
    harness.run_until_idle()
    assert harness.tokens(second) == expected_answer(second, 0)


# ---- departures ----------------------------------------------------------------------------------


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


# ---- capacity ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (make_request(0, MAX_CONTEXT), "context"),
        (make_request(0, 100, max_tokens=99), "13 KV blocks"),
        (make_request(0, 0), "empty"),
        (make_request(0, 10, generated=((), ())), "match"),
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
