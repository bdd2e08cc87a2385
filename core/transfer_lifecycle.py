"""What one KV transfer goes through, on the prefill worker (sender) and on the decode worker.

The rule both tables keep: **a block that the sender may still write to is never handed out.** A
posted one-sided write can't be recalled, so a sender that gives up first drains what it has
posted; a receiver that gives up quarantines its blocks until the sender's word (refused, done,
ended, released), the proven death of its process, or a transport that revoked its access. Time
alone ends attempts and the sender's hold on its *own* blocks, never a quarantine.
"""

from enum import StrEnum

from core.lifecycle import Table


class SendState(StrEnum):
    OFFERED = "offered"
    """`Prefill` has arrived; nobody has said yes or no."""
    STREAMING = "streaming"
    """Queued or computing; finished blocks go out meanwhile."""
    FLUSHING = "flushing"
    """Everything is computed and token 0 known; writes are still waiting or in flight."""
    AWAITING_ACK = "awaiting_ack"
    """Everything is written and said so; the blocks are kept until the ack."""
    ENDING = "ending"
    """Token 0 ended the request: no new writes, those in flight are waited for."""
    ABORTING = "aborting"
    """Given up: no new writes, those in flight are waited for."""
    REFUSED = "refused"
    ACKED = "acked"
    ENDED = "ended"
    ABORTED = "aborted"


class SendEvent(StrEnum):
    ACCEPT = "accept"
    REFUSE = "refuse"
    COMPUTED = "computed"
    """The last block is computed and the first tokens are known."""
    ENDED_EARLY = "ended_early"
    DRAINED = "drained"
    """No write is in flight, and none waits that may still go out."""
    WRITE_FAILED = "write_failed"
    ACK = "ack"
    ABORT = "abort"
    """Ours: a cancel, the deadline, a fault of the engine."""
    PEER_ABORT = "peer_abort"
    PEER_LOST = "peer_lost"
    TIMEOUT = "timeout"
    """The lease ended without progress."""


class SendAction(StrEnum):
    SEND_ACCEPT = "send_accept"
    SEND_REFUSE = "send_refuse"
    SEND_DONE = "send_done"
    SEND_ENDED = "send_ended"
    SEND_ABORT = "send_abort"
    SEND_RELEASED = "send_released"
    STOP = "stop"
    """Stop computing; the blocks stay until RELEASE_BLOCKS."""
    RELEASE_BLOCKS = "release_blocks"
    """No write reads the local blocks any more. Once, at every end."""
    DROP_LINK = "drop_link"
    """Writes don't drain: cut the link, so that the transport fails them."""


class ReceiveState(StrEnum):
    OFFERED = "offered"
    """`Prefill` is sent, with the blocks to write to; the sender hasn't answered."""
    RECEIVING = "receiving"
    VERIFYING = "verifying"
    """The sender has said done: it writes no more; checksums are being compared."""
    QUARANTINED = "quarantined"
    """The attempt is over here, but the sender may still write."""
    DELIVERED = "delivered"
    RECOMPUTED = "recomputed"
    """The bytes weren't what they should be; the prompt is prefilled here."""
    ENDED = "ended"
    """Token 0 was the last; there is nothing to decode."""
    RELEASED = "released"
    """Given up, and no write can come any more."""


class ReceiveEvent(StrEnum):
    ACCEPTED = "accepted"
    PROGRESS = "progress"
    """A chunk has arrived or the sender renewed its lease."""
    DONE = "done"
    ENDED_EARLY = "ended_early"
    VERIFIED = "verified"
    MISMATCH = "mismatch"
    REFUSED = "refused"
    RELEASED = "released"
    """The sender's word that it won't write again."""
    REVOKED = "revoked"
    """The transport has cut the sender's access for good."""
    ABORT = "abort"
    """Ours: a cancel, the deadline, a fault of the engine."""
    PEER_ABORT = "peer_abort"
    PEER_LOST = "peer_lost"
    """Unproven: its heartbeats or its connection ceased; it may still write."""
    PEER_DEAD = "peer_dead"
    """Proven: reaped, or replaced by a newer incarnation."""
    TIMEOUT = "timeout"
    """The lease ended without progress."""


class ReceiveAction(StrEnum):
    VERIFY = "verify"
    SEND_ACK = "send_ack"
    SEND_ABORT = "send_abort"
    DELIVER = "deliver"
    RECOMPUTE = "recompute"
    FINISH = "finish"
    FAIL_ATTEMPT = "fail_attempt"
    FREE_BLOCKS = "free_blocks"
    QUARANTINE = "quarantine"
    END_QUARANTINE = "end_quarantine"


_SS, _SE, _SA = SendState, SendEvent, SendAction
_RS, _RE, _RA = ReceiveState, ReceiveEvent, ReceiveAction
_SendRow = tuple[SendState, tuple[SendAction, ...]]
_ReceiveRow = tuple[ReceiveState, tuple[ReceiveAction, ...]]


def _send_rows() -> dict[tuple[SendState, SendEvent], _SendRow]:
    free, say_and_free = (_SA.RELEASE_BLOCKS,), (_SA.SEND_RELEASED, _SA.RELEASE_BLOCKS)
    rows: dict[tuple[SendState, SendEvent], _SendRow] = {
        (_SS.OFFERED, _SE.ACCEPT): (_SS.STREAMING, (_SA.SEND_ACCEPT,)),
        (_SS.OFFERED, _SE.REFUSE): (_SS.REFUSED, (_SA.SEND_REFUSE, *free)),
        (_SS.STREAMING, _SE.COMPUTED): (_SS.FLUSHING, ()),
        (_SS.STREAMING, _SE.ENDED_EARLY): (_SS.ENDING, ()),
        (_SS.FLUSHING, _SE.DRAINED): (_SS.AWAITING_ACK, (_SA.SEND_DONE,)),
        (_SS.AWAITING_ACK, _SE.ACK): (_SS.ACKED, free),
        (_SS.ENDING, _SE.DRAINED): (_SS.ENDED, (_SA.SEND_ENDED, *free)),
        (_SS.ENDING, _SE.WRITE_FAILED): (_SS.ENDING, ()),  # nobody needs those bytes
        (_SS.ABORTING, _SE.DRAINED): (_SS.ABORTED, say_and_free),
        (_SS.ABORTING, _SE.WRITE_FAILED): (_SS.ABORTING, ()),
    }
    # Before the first write and after the last one there is nothing to wait for.
    for state in (_SS.OFFERED, _SS.AWAITING_ACK):
        for event in (_SE.ABORT, _SE.PEER_ABORT, _SE.PEER_LOST, _SE.TIMEOUT):
            rows[state, event] = (_SS.ABORTED, say_and_free)
    for state in (_SS.STREAMING, _SS.FLUSHING):
        for event in (_SE.PEER_ABORT, _SE.PEER_LOST):
            rows[state, event] = (_SS.ABORTING, (_SA.STOP,))
        for event in (_SE.ABORT, _SE.TIMEOUT, _SE.WRITE_FAILED):
            rows[state, event] = (_SS.ABORTING, (_SA.STOP, _SA.SEND_ABORT))
    for event in (_SE.ABORT, _SE.PEER_ABORT, _SE.PEER_LOST):
        rows[_SS.ENDING, event] = (_SS.ABORTING, ())
        rows[_SS.ABORTING, event] = (_SS.ABORTING, ())
    rows[_SS.ENDING, _SE.TIMEOUT] = (_SS.ABORTING, (_SA.DROP_LINK,))
    rows[_SS.ABORTING, _SE.TIMEOUT] = (_SS.ABORTING, (_SA.DROP_LINK,))
    return rows


def _receive_rows() -> dict[tuple[ReceiveState, ReceiveEvent], _ReceiveRow]:
    fail, free = _RA.FAIL_ATTEMPT, _RA.FREE_BLOCKS
    rows: dict[tuple[ReceiveState, ReceiveEvent], _ReceiveRow] = {
        (_RS.VERIFYING, _RE.VERIFIED): (_RS.DELIVERED, (_RA.SEND_ACK, _RA.DELIVER)),
    }
    for state in (_RS.OFFERED, _RS.RECEIVING):
        rows[state, _RE.ACCEPTED] = (_RS.RECEIVING, ())
        rows[state, _RE.PROGRESS] = (_RS.RECEIVING, ())
        rows[state, _RE.DONE] = (_RS.VERIFYING, (_RA.VERIFY,))
        rows[state, _RE.MISMATCH] = (_RS.RECOMPUTED, (_RA.SEND_ABORT, _RA.RECOMPUTE))
        rows[state, _RE.ENDED_EARLY] = (_RS.ENDED, (free, _RA.FINISH))
        for event in (_RE.REFUSED, _RE.RELEASED, _RE.PEER_DEAD):
            rows[state, event] = (_RS.RELEASED, (fail, free))
        rows[state, _RE.REVOKED] = (_RS.RELEASED, (_RA.SEND_ABORT, fail, free))
        rows[state, _RE.ABORT] = (_RS.QUARANTINED, (_RA.SEND_ABORT, _RA.QUARANTINE))
        rows[state, _RE.PEER_ABORT] = (_RS.QUARANTINED, (fail, _RA.QUARANTINE))
        for event in (_RE.PEER_LOST, _RE.TIMEOUT):
            rows[state, event] = (_RS.QUARANTINED, (_RA.SEND_ABORT, fail, _RA.QUARANTINE))
    # From done on the sender writes no more, and all that is needed is here.
    rows[_RS.VERIFYING, _RE.PEER_LOST] = (_RS.VERIFYING, ())
    rows[_RS.VERIFYING, _RE.PEER_DEAD] = (_RS.VERIFYING, ())
    rows[_RS.VERIFYING, _RE.ABORT] = (_RS.RELEASED, (_RA.SEND_ABORT, free))
    for event in (_RE.MISMATCH, _RE.TIMEOUT):
        rows[_RS.VERIFYING, event] = (_RS.RECOMPUTED, (_RA.SEND_ABORT, _RA.RECOMPUTE))
    for event in (
        _RE.REFUSED,
        _RE.RELEASED,
        _RE.DONE,
        _RE.ENDED_EARLY,
        _RE.PEER_DEAD,
        _RE.REVOKED,
    ):
        rows[_RS.QUARANTINED, event] = (_RS.RELEASED, (_RA.END_QUARANTINE,))
    for event in (_RE.ABORT, _RE.PEER_ABORT, _RE.PEER_LOST):
        rows[_RS.QUARANTINED, event] = (_RS.QUARANTINED, ())
    # Ask again: the sender's word may have been lost with a connection.
    rows[_RS.QUARANTINED, _RE.TIMEOUT] = (_RS.QUARANTINED, (_RA.SEND_ABORT,))
    return rows


SEND_TABLE: Table[SendState, SendEvent, SendAction] = Table(
    name="KV send",
    initial=_SS.OFFERED,
    finals=frozenset({_SS.REFUSED, _SS.ACKED, _SS.ENDED, _SS.ABORTED}),
    everywhere=frozenset({_SE.ABORT, _SE.PEER_ABORT, _SE.PEER_LOST, _SE.TIMEOUT}),
    rows=_send_rows(),
)

RECEIVE_TABLE: Table[ReceiveState, ReceiveEvent, ReceiveAction] = Table(
    name="KV receive",
    initial=_RS.OFFERED,
    finals=frozenset({_RS.DELIVERED, _RS.RECOMPUTED, _RS.ENDED, _RS.RELEASED}),
    everywhere=frozenset({_RE.ABORT, _RE.PEER_LOST, _RE.PEER_DEAD, _RE.TIMEOUT}),
    rows=_receive_rows(),
)
