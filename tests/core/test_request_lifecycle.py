import pytest

from core.lifecycle import Lifecycle
from core.request_lifecycle import (
    PROGRESS_ORDER,
    REQUEST_TABLE,
    RequestAction as A,
    RequestEvent as E,
    RequestState as S,
)

LIVE = set(S) - REQUEST_TABLE.finals


def after(*events: E) -> tuple[S, list[A]]:
    """State and actions after `events` from the beginning."""
    life = Lifecycle(REQUEST_TABLE, "req-1")
    actions: list[A] = []
    for event in events:
        actions += life.fire(event, 0.0)
    return life.state, actions


def test_the_ordinary_way() -> None:
    state, actions = after(
        E.ROUTE,
        E.ASSIGNED,
        E.RESERVED,
        E.PREFILL_STARTED,
        E.FIRST_TOKEN,
        E.DECODE_STARTED,
        E.COMPLETED,
    )
    assert state is S.FINISHED
    assert actions == [A.ASK_ROUTER, A.SUBMIT, A.ANSWER, A.SETTLE]


def test_the_first_token_may_overtake_what_d_says() -> None:
    assert after(E.ROUTE, E.ASSIGNED, E.FIRST_TOKEN)[0] is S.TRANSFERRING
    assert after(E.ROUTE, E.ASSIGNED, E.RESERVED, E.FIRST_TOKEN)[0] is S.TRANSFERRING


def test_a_lost_attempt_is_tried_again_from_every_state_that_has_one() -> None:
    for state in (S.ROUTED, S.RESERVED, S.PREFILLING, S.TRANSFERRING, S.DECODING):
        row = REQUEST_TABLE.rows[state, E.ATTEMPT_LOST]
        assert row == (S.ROUTED, (A.CANCEL_WORKERS, A.ASK_ROUTER))


@pytest.mark.parametrize("state", sorted(LIVE))
def test_abort_timeout_and_giving_up_end_it_anywhere(state: S) -> None:
    assert REQUEST_TABLE.rows[state, E.ABORT] == (S.CANCELLED, (A.CANCEL_WORKERS, A.SETTLE))
    failed = (S.FAILED, (A.CANCEL_WORKERS, A.ANSWER, A.SETTLE))
    assert REQUEST_TABLE.rows[state, E.TIMEOUT] == failed
    assert REQUEST_TABLE.rows[state, E.GIVE_UP] == failed


def test_every_end_settles_and_every_end_but_a_vanished_clients_is_answered() -> None:
    for (state, event), (end, actions) in REQUEST_TABLE.rows.items():
        if end not in REQUEST_TABLE.finals:
            assert A.SETTLE not in actions, (state, event)
        elif end is S.REJECTED:
            assert actions == (A.ANSWER, A.SETTLE)
        else:
            assert actions[-1] is A.SETTLE
            assert (A.ANSWER in actions) == (end is not S.CANCELLED)


def test_progress_goes_through_every_live_state_once() -> None:
    assert set(PROGRESS_ORDER) == LIVE
    assert len(set(PROGRESS_ORDER)) == len(PROGRESS_ORDER)
    assert PROGRESS_ORDER[0] is REQUEST_TABLE.initial
