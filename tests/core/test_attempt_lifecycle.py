import pytest

from core.attempt_lifecycle import (
    DECODE_TABLE,
    PREFILL_TABLE,
    DecodeAction,
    DecodeEvent,
    DecodeState,
    PrefillAction,
    PrefillEvent,
    PrefillState,
)
from core.lifecycle import Lifecycle


def test_a_prefill_is_computed_held_and_released() -> None:
    life = Lifecycle(PREFILL_TABLE, "req-1#1")
    actions = [
        life.fire(event, 0.0)
        for event in (PrefillEvent.STARTED, PrefillEvent.COMPUTED, PrefillEvent.ACKED)
    ]
    assert actions == [(), (), (PrefillAction.DROP,)]
    assert life.state is PrefillState.RELEASED


def test_a_prefill_is_dropped_once_on_whichever_way_it_ends() -> None:
    for (_, _), (end, actions) in PREFILL_TABLE.rows.items():
        assert actions == ((PrefillAction.DROP,) if end in PREFILL_TABLE.finals else ())


def test_a_remote_attempt_decodes_what_was_delivered() -> None:
    life = Lifecycle(DECODE_TABLE, "req-1#1")
    events = (
        DecodeEvent.RESERVED_REMOTE,
        DecodeEvent.DELIVERED,
        DecodeEvent.PREEMPTED,
        DecodeEvent.RESUMED,
        DecodeEvent.COMPLETED,
    )
    actions = [life.fire(event, 0.0) for event in events]
    assert actions == [(), (), (), (), (DecodeAction.DROP,)]
    assert life.state is DecodeState.FINISHED


def test_a_mismatch_becomes_a_local_prefill() -> None:
    life = Lifecycle(DECODE_TABLE, "req-1#1")
    life.fire(DecodeEvent.RESERVED_REMOTE, 0.0)
    assert life.fire(DecodeEvent.MISMATCH, 0.0) == (DecodeAction.RECOMPUTE,)
    life.fire(DecodeEvent.PREFILLED, 0.0)
    assert life.state is DecodeState.DECODING


def test_a_lost_prefill_worker_concerns_only_who_still_receives_from_it() -> None:
    lost = {
        state: DECODE_TABLE.rows[state, DecodeEvent.PEER_LOST]
        for state in DecodeState
        if state not in DECODE_TABLE.finals
    }
    assert lost.pop(DecodeState.RECEIVING) == (
        DecodeState.FAILED,
        (DecodeAction.DROP, DecodeAction.REPORT_LOST),
    )
    for state, row in lost.items():
        assert row == (state, ())


@pytest.mark.parametrize("state", sorted(set(DecodeState) - DECODE_TABLE.finals))
def test_an_attempt_is_dropped_once_on_whichever_way_it_ends(state: DecodeState) -> None:
    for event in DecodeEvent:
        end, actions = DECODE_TABLE.rows.get((state, event), (state, ()))
        assert (DecodeAction.DROP in actions) == (end in DECODE_TABLE.finals)


@pytest.mark.parametrize("state", sorted(set(DecodeState) - DECODE_TABLE.finals))
def test_a_fault_of_ours_is_reported_to_the_gateway(state: DecodeState) -> None:
    assert DECODE_TABLE.rows[state, DecodeEvent.FAULT] == (
        DecodeState.FAILED,
        (DecodeAction.DROP, DecodeAction.REPORT_LOST),
    )
