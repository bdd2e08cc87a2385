"""What one attempt (request, epoch) goes through on a prefill and on a decode worker.

The transfer between the two has its own tables (`core/transfer_lifecycle.py`): an attempt may be
over while its blocks still wait in quarantine for the peer's last write.
"""

from enum import StrEnum

from core.lifecycle import Table


class PrefillState(StrEnum):
    QUEUED = "queued"
    PREFILLING = "prefilling"
    HOLDING = "holding"
    """Every token is computed; the blocks stay until the decode worker's verified ack."""
    RELEASED = "released"
    CANCELLED = "cancelled"
    FAILED = "failed"


class PrefillEvent(StrEnum):
    STARTED = "started"
    COMPUTED = "computed"
    ENDED_EARLY = "ended_early"
    """Token 0 ended every choice: nothing to hand over."""
    ACKED = "acked"
    ABORT = "abort"
    PEER_LOST = "peer_lost"
    TIMEOUT = "timeout"
    FAULT = "fault"


class PrefillAction(StrEnum):
    DROP = "drop"
    """Stop computing and free the blocks as soon as no write reads them any more."""


class DecodeState(StrEnum):
    WAITING = "waiting"
    """For free blocks."""
    RECEIVING = "receiving"
    PREFILLING = "prefilling"
    """Locally: a short prompt, a resumed request, or a recompute after a broken transfer."""
    DECODING = "decoding"
    PREEMPTED = "preempted"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"


class DecodeEvent(StrEnum):
    RESERVED_REMOTE = "reserved_remote"
    RESERVED_LOCAL = "reserved_local"
    DELIVERED = "delivered"
    """The KV has arrived and every checksum holds."""
    MISMATCH = "mismatch"
    PREFILLED = "prefilled"
    PREEMPTED = "preempted"
    RESUMED = "resumed"
    COMPLETED = "completed"
    ABORT = "abort"
    PEER_LOST = "peer_lost"
    """The prefill worker (or its word that it gives up) while the attempt depends on it."""
    TIMEOUT = "timeout"
    FAULT = "fault"


class DecodeAction(StrEnum):
    DROP = "drop"
    """Stop decoding; free what no peer can write to, quarantine the rest."""
    RECOMPUTE = "recompute"
    """Prefill the prompt here after all."""
    REPORT_LOST = "report_lost"
    """Tell the gateway that this attempt is lost, so that it tries again."""


_PS, _PE, _PA = PrefillState, PrefillEvent, PrefillAction
_DS, _DE, _DA = DecodeState, DecodeEvent, DecodeAction


def _prefill_rows() -> dict[
    tuple[PrefillState, PrefillEvent], tuple[PrefillState, tuple[PrefillAction, ...]]
]:
    rows: dict[
        tuple[PrefillState, PrefillEvent], tuple[PrefillState, tuple[PrefillAction, ...]]
    ] = {
        (_PS.QUEUED, _PE.STARTED): (_PS.PREFILLING, ()),
        (_PS.PREFILLING, _PE.COMPUTED): (_PS.HOLDING, ()),
        (_PS.PREFILLING, _PE.ENDED_EARLY): (_PS.RELEASED, (_PA.DROP,)),
        (_PS.HOLDING, _PE.ACKED): (_PS.RELEASED, (_PA.DROP,)),
    }
    for state in (_PS.QUEUED, _PS.PREFILLING, _PS.HOLDING):
        rows[state, _PE.ABORT] = (_PS.CANCELLED, (_PA.DROP,))
        rows[state, _PE.PEER_LOST] = (_PS.FAILED, (_PA.DROP,))
        rows[state, _PE.TIMEOUT] = (_PS.FAILED, (_PA.DROP,))
        rows[state, _PE.FAULT] = (_PS.FAILED, (_PA.DROP,))
    return rows


def _decode_rows() -> dict[
    tuple[DecodeState, DecodeEvent], tuple[DecodeState, tuple[DecodeAction, ...]]
]:
    drop, lost = (_DA.DROP,), (_DA.DROP, _DA.REPORT_LOST)
    rows: dict[tuple[DecodeState, DecodeEvent], tuple[DecodeState, tuple[DecodeAction, ...]]] = {
        (_DS.WAITING, _DE.RESERVED_REMOTE): (_DS.RECEIVING, ()),
        (_DS.WAITING, _DE.RESERVED_LOCAL): (_DS.PREFILLING, ()),
        (_DS.RECEIVING, _DE.DELIVERED): (_DS.DECODING, ()),
        (_DS.RECEIVING, _DE.MISMATCH): (_DS.PREFILLING, (_DA.RECOMPUTE,)),
        (_DS.RECEIVING, _DE.COMPLETED): (_DS.FINISHED, drop),  # token 0 was the last
        (_DS.PREFILLING, _DE.PREFILLED): (_DS.DECODING, ()),
        (_DS.PREFILLING, _DE.PREEMPTED): (_DS.PREEMPTED, ()),
        (_DS.DECODING, _DE.PREEMPTED): (_DS.PREEMPTED, ()),
        (_DS.PREEMPTED, _DE.RESUMED): (_DS.DECODING, ()),
        (_DS.WAITING, _DE.COMPLETED): (_DS.FINISHED, drop),  # resumed, and nothing was left
        (_DS.PREFILLING, _DE.COMPLETED): (_DS.FINISHED, drop),
        (_DS.DECODING, _DE.COMPLETED): (_DS.FINISHED, drop),
        (_DS.PREEMPTED, _DE.COMPLETED): (_DS.FINISHED, drop),
    }
    live = (_DS.WAITING, _DS.RECEIVING, _DS.PREFILLING, _DS.DECODING, _DS.PREEMPTED)
    for state in live:
        rows[state, _DE.ABORT] = (_DS.CANCELLED, drop)
        rows[state, _DE.TIMEOUT] = (_DS.FAILED, drop)
        rows[state, _DE.FAULT] = (_DS.FAILED, lost)
        # Once the KV is here the prefill worker's death concerns nobody.
        rows[state, _DE.PEER_LOST] = (state, ())
    rows[_DS.RECEIVING, _DE.PEER_LOST] = (_DS.FAILED, lost)
    return rows


PREFILL_TABLE: Table[PrefillState, PrefillEvent, PrefillAction] = Table(
    name="prefill attempt",
    initial=_PS.QUEUED,
    finals=frozenset({_PS.RELEASED, _PS.CANCELLED, _PS.FAILED}),
    everywhere=frozenset({_PE.ABORT, _PE.PEER_LOST, _PE.TIMEOUT, _PE.FAULT}),
    rows=_prefill_rows(),
)

DECODE_TABLE: Table[DecodeState, DecodeEvent, DecodeAction] = Table(
    name="decode attempt",
    initial=_DS.WAITING,
    finals=frozenset({_DS.FINISHED, _DS.CANCELLED, _DS.FAILED}),
    everywhere=frozenset({_DE.ABORT, _DE.PEER_LOST, _DE.TIMEOUT, _DE.FAULT}),
    rows=_decode_rows(),
)
