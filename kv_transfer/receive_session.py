"""The receiving end of one KV transfer: pure, on the decode worker.

Events: P's messages KvAccept, KvRefuse, KvRenew, KvDone, PrefillEnded, KvAbort, KvReleased as they
are, and (`kv_transfer.events`) ChunkArrived, Verified, Revoked, Abort, PeerLost, Tick.

Actions (`kv_transfer.actions`): Send, Verify, Ignored, at most one FailAttempt, and exactly one
fate of the blocks: Deliver, Recompute, FreeBlocks (before FinishAttempt where token 0 was the
last), or Quarantine and later EndQuarantine.
"""

from typing import TypeAlias

from core.ids import Attempt
from core.lifecycle import Lifecycle
from core.request import SampledToken
from core.transfer_lifecycle import RECEIVE_TABLE, ReceiveAction as Do, ReceiveEvent, ReceiveState
from kv_transfer import events
from kv_transfer.actions import (
    Deliver,
    EndQuarantine,
    FailAttempt,
    FinishAttempt,
    FreeBlocks,
    Ignored,
    Quarantine,
    ReceiveAction,
    Recompute,
    Send,
    Verify,
)
from wire.messages import (
    Fault,
    KvAbort,
    KvAccept,
    KvAck,
    KvDone,
    KvRefuse,
    KvReleased,
    KvRenew,
    PrefillEnded,
)

OwnEvent: TypeAlias = (
    events.ChunkArrived
    | events.Verified
    | events.Revoked
    | events.Abort
    | events.PeerLost
    | events.Tick
)
Heard: TypeAlias = KvAccept | KvRefuse | KvRenew | KvDone | PrefillEnded | KvAbort | KvReleased
ReceiveSessionEvent: TypeAlias = OwnEvent | Heard

RENEWALS_PER_LEASE = 3


class ReceiveSession:
    """One transfer of one attempt, as D sees it. Made in the moment D sends `Prefill`: from then on
    P may write. (An attempt that ends before that needs no session and no quarantine.)

    Args:
        blocks: D's reserved blocks that P fills: those of `KvTarget.blocks`, in order.
        algorithm: the checksum that KvDone must bring.
        lease_s: what `Prefill.lease_ms` says. Without a sign of progress for this long the attempt
            is failed; the blocks stay in quarantine until P's word or its proven death.

    Hand messages that have already arrived to the session before a Tick: progress wins over time.
    Late, repeated and stale events are answered with Ignored; an illegal move of our own (Verified
    without Verify) raises BugError.
    """

    def __init__(
        self,
        *,
        attempt: Attempt,
        blocks: tuple[int, ...],
        algorithm: str,
        lease_s: float,
        now_s: float,
    ) -> None:
        self.attempt = attempt
        self.blocks = blocks
        self.reason = ""
        """Why it was given up or recomputed; empty while it wasn't."""
        self.blocks_arrived = 0
        """By the notes; a measure of progress, not a proof."""
        self.elapsed_ms = 0.0
        """KvDone's: last prefill chunk computed → everything written."""
        self._algorithm = algorithm
        self._lease_s = lease_s
        self._life = Lifecycle(RECEIVE_TABLE, str(attempt))
        self._fault = Fault.PEER
        self._checksums: tuple[int, ...] = ()
        self._first: tuple[SampledToken, ...] = ()
        self._lease_end_s = now_s + lease_s
        self._renewed_s = now_s

    @property
    def state(self) -> ReceiveState:
        return self._life.state

    @property
    def ended(self) -> bool:
        return self._life.ended

    @property
    def quarantined(self) -> bool:
        return self.state is ReceiveState.QUARANTINED

    def handle(self, event: ReceiveSessionEvent, now_s: float) -> list[ReceiveAction]:
        """Take one event; the returned actions are to be carried out in order.

        Raises:
            BugError: an illegal move of our own; nothing has changed.
        """
        match event:
            case events.Tick():
                return self._tick(now_s)
            case events.Verified(ok):
                if self.ended or self.quarantined:
                    return [Ignored(f"Verified in {self.state}")]  # aborted meanwhile
                if ok:
                    return self._fire(ReceiveEvent.VERIFIED, now_s)
                return self._end(ReceiveEvent.MISMATCH, now_s, "checksums differ")
            case events.ChunkArrived(blocks):
                return self._progress(ReceiveEvent.PROGRESS, now_s, blocks)
            case events.Abort(reason):
                return self._try(ReceiveEvent.ABORT, now_s, reason)
            case events.Revoked():
                return self._try(ReceiveEvent.REVOKED, now_s, "the prefill worker was cut off")
            case events.PeerLost(True):
                return self._try(ReceiveEvent.PEER_DEAD, now_s, "the prefill worker died")
            case events.PeerLost():
                return self._try(ReceiveEvent.PEER_LOST, now_s, "the prefill worker is lost")
        if event.attempt != self.attempt:
            return [Ignored(f"{type(event).__name__} of {event.attempt}")]
        return self._hear(event, now_s)

    def _hear(self, message: Heard, now_s: float) -> list[ReceiveAction]:
        match message:
            case KvAccept():
                return self._progress(ReceiveEvent.ACCEPTED, now_s)
            case KvRenew():
                return self._progress(ReceiveEvent.PROGRESS, now_s)
            case KvDone():
                return self._done(message, now_s)
            case PrefillEnded():
                return self._try(ReceiveEvent.ENDED_EARLY, now_s, "token 0 was the last")
            case KvRefuse(fault=fault, reason=reason):
                if self.state in (ReceiveState.OFFERED, ReceiveState.RECEIVING):
                    self._fault = fault
                return self._try(ReceiveEvent.REFUSED, now_s, f"refused: {reason}")
            case KvAbort(reason=reason):
                return self._try(
                    ReceiveEvent.PEER_ABORT, now_s, f"the prefill worker gave up: {reason}"
                )
            case KvReleased():
                return self._try(ReceiveEvent.RELEASED, now_s, "the prefill worker gave up")

    def _done(self, message: KvDone, now_s: float) -> list[ReceiveAction]:
        """A commit names the exact blocks and their checksums; anything else is a mismatch."""
        if not self._life.can(ReceiveEvent.DONE):
            return [Ignored(f"KvDone in {self.state}")]
        if self.quarantined:
            return self._end(ReceiveEvent.DONE, now_s, "done after all")
        expected = len(self.blocks)
        if not (
            message.blocks == expected == len(message.checksums)
            and message.algorithm == self._algorithm
            and message.first
        ):
            return self._end(
                ReceiveEvent.MISMATCH,
                now_s,
                f"done names {message.blocks} blocks, {len(message.checksums)} checksums "
                f"({message.algorithm}), {len(message.first)} first tokens; expected {expected} "
                f"blocks ({self._algorithm})",
            )
        self._checksums, self._first = message.checksums, message.first
        self.elapsed_ms = message.elapsed_ms
        self._renew(now_s)
        return self._fire(ReceiveEvent.DONE, now_s)

    def _progress(
        self, event: ReceiveEvent, now_s: float, blocks_arrived: int = 0
    ) -> list[ReceiveAction]:
        self.blocks_arrived += blocks_arrived
        if not self._life.can(event):
            # A note may be polled after the control channel's KvDone: nothing odd about that.
            return [] if blocks_arrived else [Ignored(f"{event} in {self.state}")]
        self._renew(now_s)
        return self._fire(event, now_s)

    def _tick(self, now_s: float) -> list[ReceiveAction]:
        if self.ended:
            return []
        if now_s >= self._lease_end_s:
            self._renew(now_s)
            return self._end(
                ReceiveEvent.TIMEOUT, now_s, f"no progress for {self._lease_s:g} s in {self.state}"
            )
        due = now_s - self._renewed_s >= self._lease_s / RENEWALS_PER_LEASE
        if self.state is ReceiveState.VERIFYING and due:
            self._renewed_s = now_s
            return [Send(KvRenew(self.attempt))]
        return []

    def _try(self, event: ReceiveEvent, now_s: float, reason: str) -> list[ReceiveAction]:
        """For what others cause: where the table has no row for it, it is late."""
        if not self._life.can(event):
            return [Ignored(f"{event} in {self.state}")]
        return self._end(event, now_s, reason)

    def _end(self, event: ReceiveEvent, now_s: float, reason: str) -> list[ReceiveAction]:
        before, reason_before = self.state, self.reason
        self.reason = reason_before or reason
        actions = self._fire(event, now_s, reason)
        if self.state in (before, ReceiveState.ENDED):
            self.reason = reason_before
        if self.quarantined and before is not ReceiveState.QUARANTINED:
            self._renew(now_s)  # when it ends P is asked again
        return actions

    def _renew(self, now_s: float) -> None:
        self._lease_end_s = now_s + self._lease_s
        self._renewed_s = now_s

    def _fire(self, event: ReceiveEvent, now_s: float, why: str = "") -> list[ReceiveAction]:
        return [self._action(do) for do in self._life.fire(event, now_s, why)]

    def _action(self, do: Do) -> ReceiveAction:
        match do:
            case Do.VERIFY:
                return Verify(self.blocks, self._algorithm, self._checksums)
            case Do.SEND_ACK:
                return Send(KvAck(self.attempt))
            case Do.SEND_ABORT:
                return Send(KvAbort(self.attempt, self.reason))
            case Do.DELIVER:
                return Deliver(self._first)
            case Do.RECOMPUTE:
                return Recompute(self.reason)
            case Do.FINISH:
                return FinishAttempt()
            case Do.FAIL_ATTEMPT:
                return FailAttempt(self._fault, self.reason)
            case Do.FREE_BLOCKS:
                return FreeBlocks()
            case Do.QUARANTINE:
                return Quarantine(self.reason)
            case Do.END_QUARANTINE:
                return EndQuarantine()
