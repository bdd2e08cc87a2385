"""The scheduler's rules, one by one; test_scheduler_machine.py has them in any order."""

import dataclasses

import pytest

from core.request import FinishReason, SampledToken
from engine import actions as act, events as ev
from tests.engine.engine_cases import (
    EOS,
    MAX_CONTEXT,
    assert_clean,
    expected_answer,
    make_harness,
    make_request,
    of_kind,
    reserved_blocks,
)

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
