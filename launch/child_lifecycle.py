"""What one child process of the launcher goes through, over all its incarnations.

Every state has a deadline, and TIMEOUT is what happens when it passes: a start that takes too long
is killed, a child that stayed up is forgiven its failures, one that stays lost is killed, a
back-off ends in a new start, a stop that takes too long is a kill. (The deadline of LOST is kept
by `launch/hang_watch.py`, which knows how long the launcher itself has run.)
"""

from enum import StrEnum

from core.lifecycle import Table


class ChildState(StrEnum):
    STARTING = "starting"
    """Spawned (or being so); nothing heard yet."""
    LOADING = "loading"
    READY = "ready"
    LOST = "lost"
    """It runs, yet nobody hears of it: stopped, deadlocked, or cut off."""
    BACKING_OFF = "backing-off"
    """It died; the next incarnation starts when the back-off is over."""
    STOPPING = "stopping"
    """The deployment ends: this child is, or will be in its turn, asked to end."""
    ENDED = "ended"


class ChildEvent(StrEnum):
    LOADING = "loading"
    READY = "ready"
    LOST = "lost"
    FOUND = "found"
    EXITED = "exited"
    TIMEOUT = "timeout"
    STOP = "stop"


class ChildAction(StrEnum):
    SPAWN = "spawn"
    KILL = "kill"
    BACK_OFF = "back_off"
    """Choose the time of the next start, longer with each failure in a row."""
    FORGIVE = "forgive"
    """It stayed up: the next failure counts as the first."""


_S, _E, _A = ChildState, ChildEvent, ChildAction
_Row = tuple[ChildState, tuple[ChildAction, ...]]


def _rows() -> dict[tuple[ChildState, ChildEvent], _Row]:
    rows: dict[tuple[ChildState, ChildEvent], _Row] = {
        (_S.READY, _E.LOADING): (_S.READY, ()),
        (_S.READY, _E.TIMEOUT): (_S.READY, (_A.FORGIVE,)),
        (_S.READY, _E.LOST): (_S.LOST, ()),
        (_S.LOST, _E.LOADING): (_S.LOST, ()),
        (_S.LOST, _E.FOUND): (_S.READY, ()),
        (_S.LOST, _E.TIMEOUT): (_S.LOST, (_A.KILL,)),
        (_S.BACKING_OFF, _E.TIMEOUT): (_S.STARTING, (_A.SPAWN,)),
        (_S.BACKING_OFF, _E.STOP): (_S.ENDED, ()),
        (_S.STOPPING, _E.STOP): (_S.STOPPING, ()),
        (_S.STOPPING, _E.TIMEOUT): (_S.STOPPING, (_A.KILL,)),
        (_S.STOPPING, _E.EXITED): (_S.ENDED, ()),
    }
    for state in (_S.STARTING, _S.LOADING):
        rows[state, _E.LOADING] = (_S.LOADING, ())
        rows[state, _E.TIMEOUT] = (state, (_A.KILL,))
    for state in (_S.STARTING, _S.LOADING, _S.READY, _S.LOST):
        rows[state, _E.READY] = (_S.READY, ())
        rows[state, _E.EXITED] = (_S.BACKING_OFF, (_A.BACK_OFF,))
        rows[state, _E.STOP] = (_S.STOPPING, ())
    for event in (_E.LOADING, _E.READY, _E.LOST, _E.FOUND):  # said before it heard of the stop
        rows[_S.STOPPING, event] = (_S.STOPPING, ())
    for state in (_S.STARTING, _S.LOADING):  # not missed before it was there
        rows[state, _E.LOST] = rows[state, _E.FOUND] = (state, ())
    rows[_S.READY, _E.FOUND] = (_S.READY, ())
    rows[_S.LOST, _E.LOST] = (_S.LOST, ())
    return rows


CHILD_TABLE: Table[ChildState, ChildEvent, ChildAction] = Table(
    name="child process",
    initial=_S.STARTING,
    finals=frozenset({_S.ENDED}),
    everywhere=frozenset({_E.STOP, _E.TIMEOUT}),
    rows=_rows(),
)
