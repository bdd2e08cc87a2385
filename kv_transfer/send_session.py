"""The sending end of one KV transfer: pure, on the prefill worker.

Events (`kv_transfer.events`, and D's messages KvAck, KvAbort, KvRenew as they are):

    Accept | Refuse         the node's answer to Prefill
    BlocksComputed          after each chunk, in the target's order
    FirstTokens             after the last BlocksComputed (or at any time if it ends everything)
    WriteDone | WriteFailed the transport's report of a Write
    Abort, PeerLost, Tick   ours to give up; D is gone; time

Actions (`kv_transfer.actions`): Send, Write, StopComputing, ReleaseBlocks, DropLink, Ignored.
Whatever happens, the last thing besides Ignored (and Send of KvReleased, whenever D asks again) is
one ReleaseBlocks, and it comes only when no write is in flight.
"""

from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

from core.errors import BugError
from core.ids import Attempt
from core.lifecycle import Lifecycle
from core.request import SampledToken
from core.transfer_lifecycle import SEND_TABLE, SendAction as Do, SendEvent, SendState
from kv_transfer import events
from kv_transfer.actions import (
    DropLink,
    Ignored,
    ReleaseBlocks,
    Send,
    SendAction,
    StopComputing,
    Write,
)
from kv_transfer.note import ChunkNote, encode_note
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
    events.Accept
    | events.Refuse
    | events.BlocksComputed
    | events.FirstTokens
    | events.WriteDone
    | events.WriteFailed
    | events.Abort
    | events.PeerLost
    | events.Tick
)
Heard: TypeAlias = KvAck | KvAbort | KvRenew
SendSessionEvent: TypeAlias = OwnEvent | Heard

RENEWALS_PER_LEASE = 3
WRITE_BYTES = 4 << 20
"""A write large enough to run at full speed (NIXL from 1 MiB on) and short enough (below 1 ms)
not to hold up the loop that posts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendLimits:
    """How much of one transfer may be under way at once."""

    writes_in_flight: int = 4
    blocks_per_write: int = 16
    """Bounds the time of one write: posting it may copy in the caller's thread, and an abort
    waits for it."""

    @classmethod
    def for_blocks_of(cls, block_bytes: int) -> "SendLimits":
        """Writes of about WRITE_BYTES, whatever the size of a block."""
        return cls(blocks_per_write=max(1, WRITE_BYTES // block_bytes))


class SendSession:
    """One transfer of one attempt, as P sees it. Made when `Prefill` arrives.

    Args:
        remote_blocks: D's blocks to fill, in the prompt's order (may be empty: D has them all).
        algorithm: name of the checksum that BlocksComputed brings.
        lease_s: from `Prefill.lease_ms`. A write that doesn't end for this long, or an ack that
            doesn't come, ends the transfer; so does a sleep of this process for this long.

    Late and repeated events are answered with Ignored; an illegal move of our own (blocks before
    Accept, more blocks than the target has, an unknown write) raises BugError.
    """

    def __init__(
        self,
        *,
        attempt: Attempt,
        remote_blocks: tuple[int, ...],
        algorithm: str,
        lease_s: float,
        now_s: float,
        limits: SendLimits | None = None,
    ) -> None:
        self.attempt = attempt
        self.reason = ""
        """Why it was refused or given up; empty while it wasn't."""
        self._remote = remote_blocks
        self._algorithm = algorithm
        self._lease_s = lease_s
        self._limits = limits or SendLimits()
        self._life = Lifecycle(SEND_TABLE, str(attempt))
        self._waiting: deque[tuple[int, int]] = deque()
        self._in_flight: dict[int, int] = {}
        """Write number → its blocks."""
        self._next_write = 0
        self._blocks_written = 0
        self._checksums: list[int] = []
        self._first: tuple[SampledToken, ...] | None = None
        self._computed_s = now_s
        self._refusal_fault = Fault.US
        self._lease_end_s = now_s + lease_s
        self._last_sign_s = now_s
        """When D last saw or was sent a sign of life."""

    @property
    def state(self) -> SendState:
        return self._life.state

    @property
    def ended(self) -> bool:
        return self._life.ended

    @property
    def writes_in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def blocks_written(self) -> int:
        """Blocks whose write the transport has reported done."""
        return self._blocks_written

    def handle(self, event: SendSessionEvent, now_s: float) -> list[SendAction]:
        """Take one event; the returned actions are to be carried out in order.

        Raises:
            BugError: an illegal move of our own; nothing has changed.
        """
        match event:
            case KvAck() | KvAbort() | KvRenew():
                return self._hear(event, now_s)
            case events.WriteDone(number):
                return self._write_ended(number, now_s, failed="")
            case events.WriteFailed(number, reason):
                return self._write_ended(number, now_s, failed=reason or "unknown")
        if self.ended:
            return [Ignored(f"{type(event).__name__} in {self.state}")]
        match event:
            case events.Abort(reason):
                return self._give_up(SendEvent.ABORT, now_s, reason)
            case events.PeerLost(proven):
                how = "proven dead" if proven else "lost"
                return self._give_up(SendEvent.PEER_LOST, now_s, f"the decode worker is {how}")
        if self._lease_over(now_s):
            return self._lease_ended(now_s)
        match event:
            case events.Tick():
                return self._tick(now_s)
            case events.BlocksComputed() | events.FirstTokens() | events.Accept() | events.Refuse():
                if self.state in (SendState.ABORTING, SendState.ENDING):
                    return [Ignored(f"{type(event).__name__} in {self.state}")]  # a lost race
                return self._own(event, now_s)

    # ---- our own progress ----------------------------------------------------------------------

    def _own(
        self,
        event: events.BlocksComputed | events.FirstTokens | events.Accept | events.Refuse,
        now_s: float,
    ) -> list[SendAction]:
        match event:
            case events.Accept():
                return self._fire(SendEvent.ACCEPT, now_s) + self._settle(now_s)
            case events.Refuse(fault, reason):
                if self.state is not SendState.OFFERED:
                    raise BugError(f"KV send of {self.attempt}: refused in state {self.state}")
                self._refusal_fault = fault
                return self._give_up(SendEvent.REFUSE, now_s, reason)
            case events.BlocksComputed(local_blocks, checksums):
                self._take_blocks(local_blocks, checksums)
            case events.FirstTokens(first):
                self._take_first(first)
        self._computed_s = now_s
        self._renew_own(now_s)
        if self._first is not None and all(token.finish for token in self._first):
            self._waiting.clear()
            return self._fire(SendEvent.ENDED_EARLY, now_s) + self._settle(now_s)
        if self._first is not None and len(self._checksums) == len(self._remote):
            return self._fire(SendEvent.COMPUTED, now_s) + self._settle(now_s)
        return self._settle(now_s)

    def _take_blocks(self, local_blocks: tuple[int, ...], checksums: tuple[int, ...]) -> None:
        done = len(self._checksums)
        if self.state is not SendState.STREAMING:
            raise BugError(f"KV send of {self.attempt}: blocks computed in state {self.state}")
        if len(local_blocks) != len(checksums) or done + len(local_blocks) > len(self._remote):
            raise BugError(
                f"KV send of {self.attempt}: {len(local_blocks)} blocks with {len(checksums)} "
                f"checksums after {done} of {len(self._remote)}"
            )
        remote = self._remote[done : done + len(local_blocks)]
        self._waiting.extend(zip(local_blocks, remote, strict=True))
        self._checksums.extend(checksums)

    def _take_first(self, first: tuple[SampledToken, ...]) -> None:
        if self.state is not SendState.STREAMING or self._first is not None or not first:
            raise BugError(
                f"KV send of {self.attempt}: {len(first)} first tokens in state {self.state}"
                f"{' for the second time' if self._first is not None else ''}"
            )
        self._first = first

    def _settle(self, now_s: float) -> list[SendAction]:
        """Post what may be posted, and move on when nothing is left to wait for."""
        if self.state in (SendState.STREAMING, SendState.FLUSHING):
            writes = self._post(now_s)
            if writes:
                return writes
        drained = not self._in_flight and not self._waiting
        if drained and self._life.can(SendEvent.DRAINED):
            self._renew_own(now_s)
            return self._fire(SendEvent.DRAINED, now_s)
        return []

    def _post(self, now_s: float) -> list[SendAction]:
        writes: list[SendAction] = []
        if self._waiting and not self._in_flight:
            self._renew_own(now_s)  # the lease of a write starts when it is posted
        while self._waiting and len(self._in_flight) < self._limits.writes_in_flight:
            count = min(len(self._waiting), self._limits.blocks_per_write)
            pairs = tuple(self._waiting.popleft() for _ in range(count))
            number, self._next_write = self._next_write, self._next_write + 1
            self._in_flight[number] = count
            writes.append(Write(number, pairs, encode_note(ChunkNote(self.attempt, count))))
        return writes

    def _write_ended(self, number: int, now_s: float, failed: str) -> list[SendAction]:
        if number not in self._in_flight:
            raise BugError(f"KV send of {self.attempt}: write {number} isn't in flight")
        late = self._lease_over(now_s)
        blocks = self._in_flight.pop(number)
        if failed:
            return self._give_up(SendEvent.WRITE_FAILED, now_s, f"a write failed: {failed}")
        self._blocks_written += blocks
        if late and self.state in (SendState.STREAMING, SendState.FLUSHING):
            return self._lease_ended(now_s)  # D has given up by now: write no more
        self._renew_own(now_s)
        self._last_sign_s = now_s  # the write's note has reached D
        return self._settle(now_s)

    # ---- the peer, the clock, the end ----------------------------------------------------------

    def _hear(self, message: Heard, now_s: float) -> list[SendAction]:
        if message.attempt != self.attempt:
            return [Ignored(f"{type(message).__name__} of {message.attempt}")]
        match message:
            case KvAbort(reason=reason):
                if self.ended:  # D asks again: our word may have been lost
                    return [Send(KvReleased(self.attempt))]
                return self._give_up(
                    SendEvent.PEER_ABORT, now_s, f"the decode worker gave up: {reason}"
                )
            case KvAck() if self.state is SendState.AWAITING_ACK:
                return self._fire(SendEvent.ACK, now_s)
            case KvRenew() if self.state is SendState.AWAITING_ACK:
                self._renew_own(now_s)
                return []
        return [Ignored(f"{type(message).__name__} in {self.state}")]

    def _tick(self, now_s: float) -> list[SendAction]:
        if self.state is SendState.STREAMING and not self._in_flight:
            self._renew_own(now_s)  # queued or computing: the request's deadline bounds that
        if (
            self.state in (SendState.STREAMING, SendState.FLUSHING, SendState.ENDING)
            and now_s - self._last_sign_s >= self._lease_s / RENEWALS_PER_LEASE
        ):
            self._last_sign_s = now_s
            return [Send(KvRenew(self.attempt))]
        return []

    def _lease_over(self, now_s: float) -> bool:
        return now_s >= self._lease_end_s

    def _lease_ended(self, now_s: float) -> list[SendAction]:
        self._renew_own(now_s)
        return self._give_up(
            SendEvent.TIMEOUT, now_s, f"no progress for {self._lease_s:g} s in {self.state}"
        )

    def _give_up(self, event: SendEvent, now_s: float, reason: str) -> list[SendAction]:
        before = self.state
        if before is not SendState.ENDING or event is not SendEvent.WRITE_FAILED:
            self.reason = self.reason or reason
        actions = self._fire(event, now_s, reason)
        if self.state is SendState.ABORTING:
            self._waiting.clear()
            if before is not SendState.ABORTING:
                self._renew_own(now_s)  # so long the writes have to drain
        return actions + self._settle(now_s)

    def _renew_own(self, now_s: float) -> None:
        self._lease_end_s = now_s + self._lease_s

    def _fire(self, event: SendEvent, now_s: float, why: str = "") -> list[SendAction]:
        return [self._action(do, now_s) for do in self._life.fire(event, now_s, why)]

    def _action(self, do: Do, now_s: float) -> SendAction:
        match do:
            case Do.SEND_ACCEPT:
                self._last_sign_s = now_s
                return Send(KvAccept(self.attempt))
            case Do.SEND_REFUSE:
                return Send(KvRefuse(self.attempt, self._refusal_fault, self.reason))
            case Do.SEND_DONE:
                return Send(self._done(now_s))
            case Do.SEND_ENDED:
                return Send(PrefillEnded(self.attempt))
            case Do.SEND_ABORT:
                return Send(KvAbort(self.attempt, self.reason))
            case Do.SEND_RELEASED:
                return Send(KvReleased(self.attempt))
            case Do.STOP:
                return StopComputing(self.reason)
            case Do.DROP_LINK:
                return DropLink(self.reason)
            case Do.RELEASE_BLOCKS:
                return ReleaseBlocks()

    def _done(self, now_s: float) -> KvDone:
        return KvDone(
            attempt=self.attempt,
            blocks=len(self._remote),
            algorithm=self._algorithm,
            checksums=tuple(self._checksums),
            first=self._first or (),
            elapsed_ms=(now_s - self._computed_s) * 1e3,
        )
