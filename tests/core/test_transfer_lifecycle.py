"""The tables' promises, read off the tables themselves."""

import pytest

from core.errors import IllegalTransition
from core.lifecycle import Lifecycle
from core.transfer_lifecycle import (
    RECEIVE_TABLE,
    SEND_TABLE,
    ReceiveAction,
    ReceiveEvent,
    ReceiveState,
    SendAction,
    SendEvent,
    SendState,
)

MAY_HAVE_WRITES = {
    SendState.STREAMING,
    SendState.FLUSHING,
    SendState.ENDING,
    SendState.ABORTING,
}
MAY_BE_WRITTEN_TO = {ReceiveState.OFFERED, ReceiveState.RECEIVING, ReceiveState.QUARANTINED}
PROOF = {
    ReceiveEvent.DONE,
    ReceiveEvent.MISMATCH,
    ReceiveEvent.ENDED_EARLY,
    ReceiveEvent.REFUSED,
    ReceiveEvent.RELEASED,
    ReceiveEvent.REVOKED,
    ReceiveEvent.PEER_DEAD,
}
FATES = {
    ReceiveAction.DELIVER,
    ReceiveAction.RECOMPUTE,
    ReceiveAction.FREE_BLOCKS,
    ReceiveAction.END_QUARANTINE,
}


def test_a_sender_releases_once_and_only_with_nothing_in_flight() -> None:
    for (state, event), (after, actions) in SEND_TABLE.rows.items():
        releases = actions.count(SendAction.RELEASE_BLOCKS)
        assert releases == (after in SEND_TABLE.finals), (state, event)
        if releases and state in MAY_HAVE_WRITES:
            assert event is SendEvent.DRAINED, (state, event)


def test_a_sender_says_released_done_ended_or_refused_only_with_nothing_in_flight() -> None:
    words = {
        SendAction.SEND_RELEASED,
        SendAction.SEND_DONE,
        SendAction.SEND_ENDED,
        SendAction.SEND_REFUSE,
    }
    for (state, event), (_, actions) in SEND_TABLE.rows.items():
        if words & set(actions) and state in MAY_HAVE_WRITES:
            assert event is SendEvent.DRAINED, (state, event)


def test_every_end_of_a_sender_but_the_ack_tells_the_receiver() -> None:
    for (_, event), (after, actions) in SEND_TABLE.rows.items():
        if after in SEND_TABLE.finals and event is not SendEvent.ACK:
            assert any(action.startswith("send_") for action in actions), (after, event)


def test_a_receiver_lets_go_of_writable_blocks_only_on_proof() -> None:
    for (state, event), (after, actions) in RECEIVE_TABLE.rows.items():
        if state in MAY_BE_WRITTEN_TO and after not in MAY_BE_WRITTEN_TO:
            assert event in PROOF, (state, event)
        if state in MAY_BE_WRITTEN_TO and FATES & set(actions):
            assert event in PROOF, (state, event)


def test_a_receiver_gives_its_blocks_one_fate_at_every_end() -> None:
    for (state, event), (after, actions) in RECEIVE_TABLE.rows.items():
        assert len(FATES & set(actions)) == (after in RECEIVE_TABLE.finals), (state, event)
        quarantines = ReceiveAction.QUARANTINE in actions
        enters = after is ReceiveState.QUARANTINED and state is not after
        assert quarantines == enters, (state, event)


def test_blocks_are_delivered_only_after_verification() -> None:
    for (state, event), (_, actions) in RECEIVE_TABLE.rows.items():
        if ReceiveAction.DELIVER in actions:
            assert (state, event) == (ReceiveState.VERIFYING, ReceiveEvent.VERIFIED)


@pytest.mark.parametrize("table", [SEND_TABLE, RECEIVE_TABLE], ids=["send", "receive"])
def test_every_live_state_has_an_abort_a_death_and_a_timeout(table: object) -> None:
    assert isinstance(table, type(SEND_TABLE))
    for state in set(type(table.initial)) - table.finals:
        events = {event for (at, event) in table.rows if at == state}
        assert {"abort", "peer_lost", "timeout"} <= {str(event) for event in events}


def test_an_illegal_move_raises_with_the_story() -> None:
    life = Lifecycle(SEND_TABLE, "req-1#1")
    life.fire(SendEvent.ACCEPT, 1.0)
    with pytest.raises(IllegalTransition, match=r"offered --accept--> streaming"):
        life.fire(SendEvent.ACK, 2.0)
    assert life.state is SendState.STREAMING
