"""What one attempt goes through inside an engine, and what becomes of its blocks."""

from enum import StrEnum

from core.lifecycle import Table


class GroupState(StrEnum):
    WAITING = "waiting"
    """For blocks; holds none."""
    RECEIVING = "receiving"
    """A peer writes to its blocks."""
    RUNNING = "running"
    """Its tokens are computed here, step by step."""
    HOLDING = "holding"
    """Prefilled for a hand-over: the blocks are being read for a peer."""
    PREEMPTED = "preempted"
    """Gave its blocks away; waits for new ones to recompute."""
    DOOMED = "doomed"
    """Dropped while the running step writes to its blocks: they are freed when it is done."""
    QUARANTINED = "quarantined"
    """Dropped, but a peer may still write to its blocks."""
    ENDED = "ended"
    DROPPED = "dropped"


class GroupEvent(StrEnum):
    START = "start"
    """Blocks are taken; computing begins (again)."""
    RESERVE = "reserve"
    DELIVER = "deliver"
    RECOMPUTE = "recompute"
    PREEMPT = "preempt"
    HOLD = "hold"
    END = "end"
    RELEASE = "release"
    ABORT = "abort"
    ABORT_IN_STEP = "abort_in_step"
    STEP_DONE = "step_done"
    QUARANTINE = "quarantine"
    END_QUARANTINE = "end_quarantine"


class GroupAction(StrEnum):
    FREE = "free"
    """Give all its blocks back."""
    OWN = "own"
    """Receiving blocks become owned ones."""
    FENCE = "fence"
    """Receiving blocks become quarantined ones."""
    UNFENCE = "unfence"
    """Quarantined blocks become free."""


_S, _E, _A = GroupState, GroupEvent, GroupAction
_Row = tuple[GroupState, tuple[GroupAction, ...]]

_DROP: _Row = (_S.DROPPED, (_A.FREE,))


def _rows() -> dict[tuple[GroupState, GroupEvent], _Row]:
    rows: dict[tuple[GroupState, GroupEvent], _Row] = {
        (_S.WAITING, _E.START): (_S.RUNNING, ()),
        (_S.WAITING, _E.RESERVE): (_S.RECEIVING, ()),
        (_S.WAITING, _E.RECOMPUTE): (_S.WAITING, ()),
        (_S.WAITING, _E.RELEASE): _DROP,
        (_S.RECEIVING, _E.DELIVER): (_S.RUNNING, (_A.OWN,)),
        (_S.RECEIVING, _E.RECOMPUTE): (_S.RUNNING, (_A.OWN,)),
        (_S.RECEIVING, _E.QUARANTINE): (_S.QUARANTINED, (_A.FENCE,)),
        (_S.RUNNING, _E.PREEMPT): (_S.PREEMPTED, (_A.FREE,)),
        (_S.RUNNING, _E.HOLD): (_S.HOLDING, ()),
        (_S.RUNNING, _E.END): (_S.ENDED, (_A.FREE,)),
        (_S.RUNNING, _E.RELEASE): _DROP,
        (_S.RUNNING, _E.ABORT_IN_STEP): (_S.DOOMED, ()),
        (_S.HOLDING, _E.RELEASE): (_S.ENDED, (_A.FREE,)),
        (_S.PREEMPTED, _E.START): (_S.RUNNING, ()),
        (_S.DOOMED, _E.STEP_DONE): _DROP,
        (_S.QUARANTINED, _E.END_QUARANTINE): (_S.DROPPED, (_A.UNFENCE,)),
    }
    for state in (_S.WAITING, _S.RECEIVING, _S.RUNNING, _S.HOLDING, _S.PREEMPTED):
        rows[state, _E.ABORT] = _DROP
        rows.setdefault((state, _E.QUARANTINE), _DROP)
    for state in (_S.DOOMED, _S.QUARANTINED):
        for event in (_E.ABORT, _E.QUARANTINE, _E.RELEASE):
            rows[state, event] = (state, ())
    # A quarantine of a group in the running step was an abort: nothing of it is receiving.
    rows[_S.DOOMED, _E.END_QUARANTINE] = (_S.DOOMED, ())
    return rows


GROUP_TABLE: Table[GroupState, GroupEvent, GroupAction] = Table(
    name="engine group",
    initial=_S.WAITING,
    finals=frozenset({_S.ENDED, _S.DROPPED}),
    everywhere=frozenset({_E.ABORT, _E.QUARANTINE}),
    rows=_rows(),
)
