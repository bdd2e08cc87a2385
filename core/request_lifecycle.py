"""The request's life cycle, owned by the gateway. Exactly one end per request.

A retry goes back to ROUTED with the next epoch, from wherever the attempt was lost.
"""

from enum import StrEnum

from core.lifecycle import Table


class RequestState(StrEnum):
    RECEIVED = "received"
    ROUTED = "routed"
    """The router is asked, or has answered; the decode worker hasn't confirmed yet."""
    RESERVED = "reserved"
    PREFILLING = "prefilling"
    TRANSFERRING = "transferring"
    """The first token is out; the rest of the KV is on its way."""
    DECODING = "decoding"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    FAILED = "failed"


class RequestEvent(StrEnum):
    ROUTE = "route"
    ASSIGNED = "assigned"
    REFUSED = "refused"
    RESERVED = "reserved"
    PREFILL_STARTED = "prefill_started"
    FIRST_TOKEN = "first_token"
    DECODE_STARTED = "decode_started"
    COMPLETED = "completed"
    ATTEMPT_LOST = "attempt_lost"
    """A peer died, a transfer broke, a worker gave up: try again elsewhere."""
    GIVE_UP = "give_up"
    """No further attempt is allowed, or the fault is ours."""
    ABORT = "abort"
    """The client is gone."""
    TIMEOUT = "timeout"
    """deadline_ms is over."""


class RequestAction(StrEnum):
    ASK_ROUTER = "ask_router"
    SUBMIT = "submit"
    CANCEL_WORKERS = "cancel_workers"
    ANSWER = "answer"
    """Tell the client how it ended: the finish, the refusal, the error."""
    SETTLE = "settle"
    """Tell the router that the request is over and drop it."""


_S, _E, _A = RequestState, RequestEvent, RequestAction
_Row = tuple[RequestState, tuple[RequestAction, ...]]

_RETRY: _Row = (_S.ROUTED, (_A.CANCEL_WORKERS, _A.ASK_ROUTER))
_FINISH: _Row = (_S.FINISHED, (_A.ANSWER, _A.SETTLE))
_FAIL: _Row = (_S.FAILED, (_A.CANCEL_WORKERS, _A.ANSWER, _A.SETTLE))
_CANCEL: _Row = (_S.CANCELLED, (_A.CANCEL_WORKERS, _A.SETTLE))


def _rows() -> dict[tuple[RequestState, RequestEvent], _Row]:
    rows: dict[tuple[RequestState, RequestEvent], _Row] = {
        (_S.RECEIVED, _E.ROUTE): (_S.ROUTED, (_A.ASK_ROUTER,)),
        (_S.ROUTED, _E.ASSIGNED): (_S.ROUTED, (_A.SUBMIT,)),
        (_S.ROUTED, _E.REFUSED): (_S.REJECTED, (_A.ANSWER, _A.SETTLE)),
        (_S.ROUTED, _E.RESERVED): (_S.RESERVED, ()),
        (_S.RESERVED, _E.PREFILL_STARTED): (_S.PREFILLING, ()),
        (_S.TRANSFERRING, _E.DECODE_STARTED): (_S.DECODING, ()),
    }
    # The first token comes from P and may overtake D's word that prefill has begun.
    for state in (_S.ROUTED, _S.RESERVED, _S.PREFILLING):
        rows[state, _E.FIRST_TOKEN] = (_S.TRANSFERRING, ())
    # A stop string may complete in any state in which tokens flow.
    for state in (_S.TRANSFERRING, _S.DECODING):
        rows[state, _E.COMPLETED] = _FINISH
    for state in (_S.ROUTED, _S.RESERVED, _S.PREFILLING, _S.TRANSFERRING, _S.DECODING):
        rows[state, _E.ATTEMPT_LOST] = _RETRY
        # A request whose every choice had ended when its worker died needs no new attempt.
        rows.setdefault((state, _E.COMPLETED), _FINISH)
    live = set(_S) - {_S.FINISHED, _S.CANCELLED, _S.REJECTED, _S.FAILED}
    for state in live:
        rows[state, _E.GIVE_UP] = _FAIL
        rows[state, _E.TIMEOUT] = _FAIL
        rows[state, _E.ABORT] = _CANCEL
    return rows


REQUEST_TABLE: Table[RequestState, RequestEvent, RequestAction] = Table(
    name="request",
    initial=_S.RECEIVED,
    finals=frozenset({_S.FINISHED, _S.CANCELLED, _S.REJECTED, _S.FAILED}),
    everywhere=frozenset({_E.ABORT, _E.TIMEOUT, _E.GIVE_UP}),
    rows=_rows(),
)

PROGRESS_ORDER: tuple[RequestState, ...] = (
    _S.RECEIVED,
    _S.ROUTED,
    _S.RESERVED,
    _S.PREFILLING,
    _S.TRANSFERRING,
    _S.DECODING,
)
"""Progress messages that don't lead further along this order are late: counted and ignored."""
