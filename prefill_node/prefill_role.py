"""The prefill role of a worker: prompts in, KV out, token 0 to the gateway. Pure.

`handle(event, now_s) -> actions`, with events and actions of `kv_transfer.node_actions` and the
engine's own actions (as `FromEngine`). What an attempt and its transfer go through is in
`core.attempt_lifecycle` and `core.transfer_lifecycle`; this object joins the two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from core.attempt_lifecycle import PREFILL_TABLE, PrefillAction, PrefillEvent, PrefillState
from core.ids import Attempt, ProcessId
from core.kv_layout import KvLayout
from core.lifecycle import Lifecycle
from core.recent import RecentSet
from core.request import SampledToken
from core.transfer_lifecycle import SendState
from engine import actions as engine_actions, events as engine_events
from kv_transfer import actions as transfer_actions, events as transfer_events
from kv_transfer.layout import incompatibility
from kv_transfer.node_actions import (
    AddressGone,
    Checksummed,
    ComputeChecksums,
    DropPeerLink,
    FromEngine,
    FromPeer,
    RoleTick,
    SendTo,
    Stale,
    ToEngine,
    TransferEnded,
    WriteBlocks,
    WriteEnded,
)
from kv_transfer.send_session import SendLimits, SendSession, SendSessionEvent
from wire.messages import (
    Cancel,
    Fault,
    KvAbort,
    KvAck,
    KvRefuse,
    KvReleased,
    KvRenew,
    Prefill,
    PrefillReport,
    TokenItem,
    Tokens,
    WorkerLost,
)

PrefillRoleEvent: TypeAlias = (
    FromPeer | AddressGone | FromEngine[engine_actions.Action] | WriteEnded | Checksummed | RoleTick
)
PrefillRoleAction: TypeAlias = (
    SendTo
    | ToEngine[engine_events.Event]
    | WriteBlocks
    | DropPeerLink
    | ComputeChecksums
    | Stale
    | TransferEnded
)
Out: TypeAlias = list[PrefillRoleAction]


@dataclass(slots=True)
class _Job:
    """One attempt on this worker."""

    order: Prefill
    life: Lifecycle[PrefillState, PrefillEvent, PrefillAction]
    session: SendSession
    received_s: float
    deadline_s: float
    started_s: float = 0.0
    blocks_handed: int = 0
    """Leading blocks of the prompt that were sent to be checksummed."""
    blocks_summed: int = 0
    first: tuple[SampledToken, ...] | None = None
    """Waits here until the last checksums are in."""

    @property
    def attempt(self) -> Attempt:
        return self.order.request.attempt

    @property
    def tokens(self) -> int:
        """Tokens whose KV is computed: the prompt and what earlier attempts generated."""
        generated = self.order.request.generated
        return len(self.order.request.prompt) + len((generated and generated[0]) or ())


class PrefillRole:
    """All attempts that this worker prefills for decode workers.

    Args:
        layout: of this worker's own pool.
        transport: URL scheme of its KV transport.
        algorithm: name of the checksum.
        blocks_of: the engine's word on which pool blocks an attempt holds, in token order.
    """

    def __init__(
        self,
        *,
        layout: KvLayout,
        transport: str,
        algorithm: str,
        blocks_of: Callable[[Attempt], tuple[int, ...]],
    ) -> None:
        self._layout = layout
        self._transport = transport
        self._algorithm = algorithm
        self._blocks_of = blocks_of
        self._jobs: dict[Attempt, _Job] = {}
        self._over: RecentSet[Attempt] = RecentSet()
        """Cancelled or ended here, perhaps before they came: never written for again."""

    @property
    def open_transfers(self) -> int:
        return len(self._jobs)

    def owns(self, attempt: Attempt) -> bool:
        return attempt in self._jobs

    def handle(self, event: PrefillRoleEvent, now_s: float) -> Out:
        match event:
            case FromPeer(sender, message):
                return self._message(sender, message, now_s)
            case FromEngine(actions):
                return [out for action in actions for out in self._engine(action, now_s)]
            case WriteEnded(attempt, number, failed):
                return self._write_ended(attempt, number, failed, now_s)
            case Checksummed(attempt, blocks, checksums):
                return self._checksummed(attempt, blocks, checksums, now_s)
            case AddressGone(address):
                return self._address_gone(address, now_s)
            case RoleTick():
                return self._tick(now_s)

    # ---- messages ------------------------------------------------------------------------------

    def _message(self, sender: ProcessId, message: object, now_s: float) -> Out:
        match message:
            case Prefill():
                return self._prefill(message, now_s)
            case KvAck(attempt) | KvAbort(attempt) | KvRenew(attempt):
                job = self._jobs.get(attempt)
                if job is None and isinstance(message, KvAbort):
                    return self._abort_of_stranger(message)
                if job is None:
                    return [Stale(f"{type(message).__name__} of {attempt} from {sender}")]
                if isinstance(message, KvAck) and job.life.can(PrefillEvent.ACKED):
                    job.life.fire(PrefillEvent.ACKED, now_s)
                elif isinstance(message, KvAbort) and not job.life.ended:
                    job.life.fire(PrefillEvent.ABORT, now_s, message.reason)
                return self._session(job, message, now_s)
            case Cancel(attempt, reason):
                self._over.add(attempt)
                job = self._jobs.get(attempt)
                return self._drop(job, PrefillEvent.ABORT, reason, now_s) if job else []
            case WorkerLost(process, proven):
                return self._decode_lost(process, proven, now_s)
        return [Stale(f"{type(message).__name__} from {sender}")]

    def _prefill(self, order: Prefill, now_s: float) -> Out:
        attempt, target = order.request.attempt, order.target
        if attempt in self._jobs:
            return [Stale(f"Prefill of {attempt}, a second time")]
        refusal = self._refusal(order)
        if refusal is not None:
            return [SendTo(order.decode.address, KvRefuse(attempt, *refusal))]
        job = _Job(
            order=order,
            life=Lifecycle(PREFILL_TABLE, str(attempt)),
            session=SendSession(
                attempt=attempt,
                remote_blocks=target.blocks,
                algorithm=self._algorithm,
                lease_s=order.lease_ms / 1e3,
                now_s=now_s,
                limits=SendLimits.for_blocks_of(self._layout.block_bytes),
            ),
            received_s=now_s,
            deadline_s=now_s + order.request.deadline_left_ms / 1e3,
            blocks_handed=target.held_blocks,
            blocks_summed=target.held_blocks,
        )
        self._jobs[attempt] = job
        accepted = self._session(job, transfer_events.Accept(), now_s)
        return [*accepted, ToEngine(engine_events.AddPrefill(order.request))]

    def _abort_of_stranger(self, abort: KvAbort) -> Out:
        """D asks again, or the Prefill was lost on its way: whichever, nothing is written here for
        this attempt and nothing ever will be, and D waits for that word."""
        self._over.add(abort.attempt)
        if not abort.answer_to:
            return [Stale(f"KvAbort of {abort.attempt}")]
        return [SendTo(abort.answer_to, KvReleased(abort.attempt))]

    def _refusal(self, order: Prefill) -> tuple[Fault, str] | None:
        request, target = order.request, order.target
        if request.attempt in self._over:
            return Fault.PEER, "this attempt is over here already"
        if target.transport != self._transport:
            return Fault.US, f"transport {target.transport} asked, {self._transport} spoken here"
        if (problem := incompatibility(self._layout, target.layout)) is not None:
            return Fault.US, problem
        tokens = len(request.prompt) + sum(len(made or ()) for made in request.generated)
        expected = self._layout.blocks_for(tokens)
        if target.held_blocks + len(target.blocks) != expected:
            return Fault.US, (
                f"{tokens} tokens fill {expected} blocks, not "
                f"{target.held_blocks} held + {len(target.blocks)} offered"
            )
        return None

    def _decode_lost(self, process: ProcessId, proven: bool, now_s: float) -> Out:
        out: Out = []
        for job in [j for j in self._jobs.values() if j.order.decode.process == process]:
            out += self._peer_lost(job, proven, now_s)
        return out

    def _address_gone(self, address: str, now_s: float) -> Out:
        out: Out = []
        for job in list(self._jobs.values()):
            if job.order.decode.address == address:
                out += self._peer_lost(job, False, now_s)
            elif job.order.gateway.address == address:
                out += self._drop(job, PrefillEvent.ABORT, "the gateway is gone", now_s)
        return out

    def _peer_lost(self, job: _Job, proven: bool, now_s: float) -> Out:
        if not job.life.ended:
            job.life.fire(PrefillEvent.PEER_LOST, now_s)
        return self._session(job, transfer_events.PeerLost(proven), now_s)

    # ---- engine --------------------------------------------------------------------------------

    def _engine(self, action: engine_actions.Action, now_s: float) -> Out:
        job = self._jobs.get(action.attempt)
        if job is None:
            return [Stale(f"{type(action).__name__} of {action.attempt}")]
        match action:
            case engine_actions.Started() if not job.life.ended:
                job.started_s = now_s
                job.life.fire(PrefillEvent.STARTED, now_s)
            case engine_actions.Computed(_, tokens):
                return self._computed(job, tokens)
            case engine_actions.PrefillDone(_, first):
                return self._prefill_done(job, first, now_s)
            case engine_actions.Impossible(_, reason):
                return self._drop(job, PrefillEvent.FAULT, reason, now_s)
        return []

    def _computed(self, job: _Job, tokens: int) -> Out:
        """Hand over the blocks that no later token of the prompt will write to."""
        layout = self._layout
        final = tokens >= job.tokens
        full = layout.blocks_for(tokens) if final else tokens // layout.block_tokens
        if full <= job.blocks_handed:
            return []
        blocks = self._blocks_of(job.attempt)[job.blocks_handed : full]
        job.blocks_handed = full
        return [ComputeChecksums(job.attempt, blocks)]

    def _prefill_done(self, job: _Job, first: tuple[SampledToken, ...], now_s: float) -> Out:
        if job.life.ended:
            return []
        attempt, gateway = job.attempt, job.order.gateway.address
        report = PrefillReport(
            attempt=attempt,
            queue_ms=(job.started_s - job.received_s) * 1e3,
            prefill_ms=(now_s - job.started_s) * 1e3,
            cached_tokens=0,
        )
        items = tuple(TokenItem(attempt, sampled) for sampled in first)
        out: Out = [SendTo(gateway, report), SendTo(gateway, Tokens(items))]
        job.first = first
        if all(sampled.finish for sampled in first):
            job.life.fire(PrefillEvent.ENDED_EARLY, now_s)
            return out + self._session(job, transfer_events.FirstTokens(first), now_s)
        job.life.fire(PrefillEvent.COMPUTED, now_s)
        return out + self._first_tokens_when_summed(job, now_s)

    def _checksummed(
        self,
        attempt: Attempt,
        blocks: tuple[int, ...],
        checksums: tuple[int, ...],
        now_s: float,
    ) -> Out:
        job = self._jobs.get(attempt)
        if job is None:
            return [Stale(f"checksums of {attempt}")]
        job.blocks_summed += len(blocks)
        computed = transfer_events.BlocksComputed(blocks, checksums)
        out = self._session(job, computed, now_s)
        return out + self._first_tokens_when_summed(job, now_s)

    def _first_tokens_when_summed(self, job: _Job, now_s: float) -> Out:
        total = job.order.target.held_blocks + len(job.order.target.blocks)
        if job.first is None or job.blocks_summed < total or job.session.ended:
            return []
        first, job.first = job.first, None
        return self._session(job, transfer_events.FirstTokens(first), now_s)

    # ---- transfer ------------------------------------------------------------------------------

    def _write_ended(self, attempt: Attempt, number: int, failed: str, now_s: float) -> Out:
        job = self._jobs.get(attempt)
        if job is None:
            return [Stale(f"write {number} of {attempt}")]
        if failed:
            return self._session(job, transfer_events.WriteFailed(number, failed), now_s)
        return self._session(job, transfer_events.WriteDone(number), now_s)

    def _session(self, job: _Job, event: SendSessionEvent, now_s: float) -> Out:
        out: Out = []
        for action in job.session.handle(event, now_s):
            match action:
                case transfer_actions.Send(message):
                    out.append(SendTo(job.order.decode.address, message))
                case transfer_actions.Write(number, pairs, note):
                    peer = job.order.target.address
                    out.append(WriteBlocks(job.attempt, number, peer, pairs, note))
                case transfer_actions.DropLink(reason):
                    out.append(DropPeerLink(job.order.target.address, reason))
                case transfer_actions.StopComputing(reason):
                    if not job.life.ended:
                        job.life.fire(PrefillEvent.FAULT, now_s, reason)
                case transfer_actions.ReleaseBlocks():
                    out += self._release(job)
                case transfer_actions.Ignored(what):
                    out.append(Stale(what))
        return out

    def _release(self, job: _Job) -> Out:
        """The session's last word: nothing reads the blocks any more. Until here the engine kept
        them, also those of an abandoned prefill."""
        del self._jobs[job.attempt]
        self._over.add(job.attempt)
        if job.session.state in (SendState.ENDED, SendState.REFUSED):
            return [ToEngine(engine_events.Abort(job.attempt))]
        acked = job.session.state is SendState.ACKED
        moved = len(job.order.target.blocks) * self._layout.block_bytes if acked else 0
        return [
            ToEngine(engine_events.Abort(job.attempt)),
            TransferEnded(bytes_moved=moved, failed=not acked),
        ]

    # ---- ends ----------------------------------------------------------------------------------

    def _drop(self, job: _Job, event: PrefillEvent, reason: str, now_s: float) -> Out:
        if not job.life.ended:
            job.life.fire(event, now_s, reason)
        if job.session.ended:
            return []
        return self._session(job, transfer_events.Abort(reason), now_s)

    def _tick(self, now_s: float) -> Out:
        out: Out = []
        for job in list(self._jobs.values()):
            if now_s >= job.deadline_s and not job.life.ended:
                out += self._drop(job, PrefillEvent.TIMEOUT, "deadline", now_s)
            if not job.session.ended:
                out += self._session(job, transfer_events.Tick(), now_s)
        return out

    def stop(self, reason: str, now_s: float) -> Out:
        """This worker shuts down: give every transfer up."""
        out: Out = []
        for job in list(self._jobs.values()):
            out += self._drop(job, PrefillEvent.FAULT, reason, now_s)
        return out
