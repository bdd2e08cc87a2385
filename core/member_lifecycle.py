"""A worker's membership as the router sees it: one life cycle per incarnation.

Two things are told to the others, each once: that a worker is *lost* (it has fallen silent; its
work is tried elsewhere) and that it is *proven* gone (its writes are over; quarantines may end).
Proof without an earlier loss implies it. Who was out of reach meanwhile is *reminded* of the proofs
when it is back; whoever is welcomed hears them too, as it may have been told nothing yet.
"""

from enum import StrEnum

from core.lifecycle import Table


class MemberStage(StrEnum):
    ALIVE = "alive"
    SUSPECT = "suspect"
    """Late: gets new work only where nobody else could take it."""
    DRAINING = "draining"
    """Leaving: finishes what it has, gets nothing new."""
    LOST = "lost"
    """Silent for too long. It may still be writing; it must register before it gets work again."""
    LOST_DRAINING = "lost_draining"
    """Lost while it was leaving."""
    GONE = "gone"
    """Reaped by its launcher, or replaced by a newer incarnation."""


class MemberEvent(StrEnum):
    REGISTER = "register"
    BEAT = "beat"
    PEER_GONE = "peer_gone"
    """The connection to it broke."""
    LATE = "late"
    SILENT = "silent"
    LEAVE = "leave"
    EXITED = "exited"


class MemberAction(StrEnum):
    WELCOME = "welcome"
    ASK_REREGISTER = "ask_reregister"
    REPORT_LOST = "report_lost"
    REPORT_PROVEN = "report_proven"
    REMIND = "remind"
    """Tell it again whose end is proven: what was sent while it was suspect may be lost."""


_S, _E, _A = MemberStage, MemberEvent, MemberAction
_Row = tuple[MemberStage, tuple[MemberAction, ...]]


def _rows() -> dict[tuple[MemberStage, MemberEvent], _Row]:
    rows: dict[tuple[MemberStage, MemberEvent], _Row] = {}
    for stage in (_S.ALIVE, _S.SUSPECT):
        rows[stage, _E.REGISTER] = (_S.ALIVE, (_A.WELCOME,))
        rows[stage, _E.BEAT] = (_S.ALIVE, (_A.REMIND,) if stage is _S.SUSPECT else ())
        rows[stage, _E.PEER_GONE] = (_S.SUSPECT, ())
        rows[stage, _E.LATE] = (_S.SUSPECT, ())
        rows[stage, _E.SILENT] = (_S.LOST, (_A.REPORT_LOST,))
        rows[stage, _E.LEAVE] = (_S.DRAINING, ())
    rows[_S.DRAINING, _E.REGISTER] = (_S.DRAINING, (_A.WELCOME,))
    rows[_S.DRAINING, _E.SILENT] = (_S.LOST_DRAINING, (_A.REPORT_LOST,))
    for event in (_E.BEAT, _E.PEER_GONE, _E.LATE, _E.LEAVE):
        rows[_S.DRAINING, event] = (_S.DRAINING, ())
    # Its peers have given up on it, so it must come in by the front door, with its card.
    rows[_S.LOST, _E.REGISTER] = (_S.ALIVE, (_A.WELCOME,))
    rows[_S.LOST_DRAINING, _E.REGISTER] = (_S.DRAINING, (_A.WELCOME,))
    for stage in (_S.LOST, _S.LOST_DRAINING):
        rows[stage, _E.BEAT] = (stage, (_A.ASK_REREGISTER,))
        rows[stage, _E.LEAVE] = (_S.LOST_DRAINING, ())
        for event in (_E.PEER_GONE, _E.LATE, _E.SILENT):
            rows[stage, event] = (stage, ())
    for stage in set(_S) - {_S.GONE}:
        rows[stage, _E.EXITED] = (_S.GONE, (_A.REPORT_PROVEN,))
    return rows


MEMBER_TABLE: Table[MemberStage, MemberEvent, MemberAction] = Table(
    name="member",
    initial=_S.ALIVE,
    finals=frozenset({_S.GONE}),
    everywhere=frozenset(_E),
    rows=_rows(),
)
