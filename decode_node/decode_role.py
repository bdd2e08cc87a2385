"""The decode role of a worker: requests in, tokens out; has the prompt prefilled elsewhere or here.

Pure: `handle(event, now_s) -> actions`, with events and actions of `kv_transfer.node_actions` and
the engine's own actions (as `FromEngine`). An attempt may be over for the gateway while its blocks
wait in quarantine for the prefill worker's last word: then only its transfer session is left.
"""

from dataclasses import replace
from typing import TypeAlias

from core.attempt_lifecycle import DecodeAction, DecodeEvent, DecodeState
from core.ids import Attempt, ProcessId
from core.kv_layout import KvLayout
from core.recent import RecentSet
from decode_node.decode_job import DecodeJob
from decode_node.last_words import LastWords
from engine import actions as engine_actions, events as engine_events
from kv_transfer import actions as transfer_actions, events as transfer_events
from kv_transfer.node_actions import (
    AddressGone,
    BlocksVerified,
    FromEngine,
    FromPeer,
    NoteArrived,
    RoleTick,
    SendTo,
    Stale,
    ToEngine,
    TransferEnded,
    VerifyBlocks,
)
from kv_transfer.receive_session import Heard, ReceiveSession, ReceiveSessionEvent
from wire.messages import (
    AttemptFailed,
    Cancel,
    Fault,
    KvAbort,
    KvAccept,
    KvDone,
    KvRefuse,
    KvReleased,
    KvRenew,
    KvTarget,
    Peer,
    PrefillEnded,
    Progress,
    Stage,
    Submit,
    TokenItem,
    Tokens,
    WorkerLost,
)

DecodeRoleEvent: TypeAlias = (
    FromPeer
    | AddressGone
    | FromEngine[engine_actions.Action]
    | NoteArrived
    | BlocksVerified
    | RoleTick
)
DecodeRoleAction: TypeAlias = (
    SendTo | ToEngine[engine_events.Event] | VerifyBlocks | Stale | TransferEnded
)
Out: TypeAlias = list[DecodeRoleAction]
FAILED = TransferEnded(bytes_moved=0, failed=True)


class DecodeRole:
    """All attempts that this worker decodes.

    Args:
        me: this process and its channel's address, for P's answers.
        layout: of this worker's pool. transport, transport_address: where P writes to.
        algorithm: name of the checksum KvDone must bring. lease_ms: of every transfer.
    """

    def __init__(
        self,
        *,
        me: Peer,
        layout: KvLayout,
        transport: str,
        transport_address: bytes,
        algorithm: str,
        lease_ms: float,
    ) -> None:
        self._me = me
        self._layout = layout
        self._transport = transport
        self._transport_address = transport_address
        self._algorithm = algorithm
        self._lease_ms = lease_ms
        self._jobs: dict[Attempt, DecodeJob] = {}
        self._last_words = LastWords()
        self._cancelled: RecentSet[Attempt] = RecentSet()
        self._dead: RecentSet[ProcessId] = RecentSet()
        """Proven; a peer that dies before a transfer with it begins isn't reported again."""

    @property
    def open_transfers(self) -> int:
        return sum(job.session is not None for job in self._jobs.values())

    def owns(self, attempt: Attempt) -> bool:
        return attempt in self._jobs

    def handle(self, event: DecodeRoleEvent, now_s: float) -> Out:
        match event:
            case FromPeer(sender, message):
                return self._message(sender, message, now_s)
            case FromEngine(actions):
                return self._engine_step(actions, now_s)
            case NoteArrived(attempt, blocks):
                arrived = transfer_events.ChunkArrived(blocks)
                return self._session_of(attempt, arrived, now_s)
            case BlocksVerified(attempt, ok):
                return self._session_of(attempt, transfer_events.Verified(ok), now_s)
            case AddressGone(address):
                return self._address_gone(address, now_s)
            case RoleTick():
                return self._tick(now_s)

    # ---- messages ------------------------------------------------------------------------------

    def _message(self, sender: ProcessId, message: object, now_s: float) -> Out:
        match message:
            case Submit():
                return self._submit(message, now_s)
            case (
                KvAccept()
                | KvRefuse()
                | KvRenew()
                | KvDone()
                | PrefillEnded()
                | KvAbort()
                | KvReleased()
            ):
                return self._from_prefill(sender, message, now_s)
            case Cancel(attempt, reason):
                self._cancelled.add(attempt)
                job = self._jobs.get(attempt)
                return self._end(job, DecodeEvent.ABORT, reason, now_s) if job else []
            case WorkerLost(process, proven):
                out: Out = []
                if proven:
                    self._dead.add(process)
                for job in list(self._jobs.values()):
                    if job.prefill is not None and job.prefill.process == process:
                        out += self._peer_lost(job, proven, now_s)
                return out
        return [Stale(f"{type(message).__name__} from {sender}")]

    def _from_prefill(self, sender: ProcessId, message: Heard, now_s: float) -> Out:
        """Only P's own word counts: a stranger's must not end a quarantine. But a newer life of
        P's proves that the one before it is over."""
        attempt = message.attempt
        job = self._jobs.get(attempt)
        if job is None or job.prefill is None or sender == job.prefill.process:
            return self._session_of(attempt, message, now_s)
        if sender.name == job.prefill.process.name:
            return self._peer_lost(job, True, now_s)
        return [Stale(f"{type(message).__name__} of {attempt} from {sender}")]

    def _submit(self, order: Submit, now_s: float) -> Out:
        attempt = order.request.attempt
        if attempt in self._jobs or attempt in self._cancelled:
            return [Stale(f"Submit of {attempt}, known already")]
        job = DecodeJob(order, now_s)
        self._jobs[attempt] = job
        if order.prefill is None:
            return [ToEngine(engine_events.AddLocal(order.request))]
        return [ToEngine(engine_events.Reserve(order.request))]

    def _address_gone(self, address: str, now_s: float) -> Out:
        out: Out = [*self._last_words.again(address, now_s)]
        for job in list(self._jobs.values()):
            if job.prefill is not None and job.prefill.address == address:
                out += self._peer_lost(job, False, now_s)
            elif job.gateway.address == address:
                # It may be alive and waiting for what was lost with the connection.
                job.fault, why = Fault.PEER, "the connection to the gateway broke"
                out += self._end(job, DecodeEvent.FAULT, why, now_s)
        return out

    def _peer_lost(self, job: DecodeJob, proven: bool, now_s: float) -> Out:
        """P is gone: without a session its death concerns nobody here."""
        if job.session is None:
            return []
        return self._session(job, transfer_events.PeerLost(proven), now_s)

    # ---- engine --------------------------------------------------------------------------------

    def _engine_step(self, actions: tuple[engine_actions.Action, ...], now_s: float) -> Out:
        """One message per gateway for all the tokens of a step; what ends an attempt comes after
        its last token."""
        out: Out = []
        tokens: dict[str, list[TokenItem]] = {}
        for action in actions:
            job = self._jobs.get(action.attempt)
            if job is None:
                out.append(Stale(f"{type(action).__name__} of {action.attempt}"))
            elif isinstance(action, engine_actions.Emit):
                out += self._before_token(job, now_s)
                item = TokenItem(action.attempt, action.sampled)
                tokens.setdefault(job.gateway.address, []).append(item)
            else:
                out += self._engine(job, action, now_s)
        batches = [SendTo(address, Tokens(tuple(items))) for address, items in tokens.items()]
        return [*out, *batches]

    def _before_token(self, job: DecodeJob, now_s: float) -> Out:
        """A local prefill's first token: P's part of the reports is ours."""
        if job.reported or not job.prefilled_here:
            return []
        job.reported = True
        if job.life.state is DecodeState.PREFILLING:
            job.life.fire(DecodeEvent.PREFILLED, now_s)
        return [
            job.to_gateway(job.prefill_report(now_s)),
            job.to_gateway(Progress(job.attempt, Stage.DECODING)),
        ]

    def _engine(self, job: DecodeJob, action: engine_actions.Action, now_s: float) -> Out:
        match action:
            case engine_actions.Reserved(_, blocks):
                return self._reserved(job, blocks, now_s)
            case engine_actions.Started():
                return self._started(job, now_s)
            case engine_actions.DecodeStarted():
                return self._decode_started(job, now_s)
            case engine_actions.Preempted():
                job.life.fire(DecodeEvent.PREEMPTED, now_s)
            case engine_actions.Resumed():
                job.life.fire(DecodeEvent.RESUMED, now_s)
            case engine_actions.Ended():
                job.in_engine = False
                return self._end(job, DecodeEvent.COMPLETED, "", now_s)
            case engine_actions.Impossible(_, reason):
                job.in_engine = False
                job.fault = Fault.CAPACITY
                return self._end(job, DecodeEvent.FAULT, reason, now_s)
        return []

    def _reserved(self, job: DecodeJob, blocks: tuple[int, ...], now_s: float) -> Out:
        """From here on P may write: the session is made with the message that lets it."""
        prefill = job.prefill
        if prefill is None:
            return [Stale(f"blocks reserved for {job.attempt}, which is prefilled here")]
        if prefill.process in self._dead:
            job.fault = Fault.PEER
            return self._end(job, DecodeEvent.FAULT, "the prefill worker has died", now_s)
        job.life.fire(DecodeEvent.RESERVED_REMOTE, now_s)
        job.open_transfer(blocks, self._algorithm, self._lease_ms, now_s)
        target = KvTarget(
            transport=self._transport,
            address=self._transport_address,
            layout=self._layout,
            held_blocks=0,
            blocks=blocks,
        )
        order = job.prefill_order(self._me, target, self._lease_ms, now_s)
        progress = job.to_gateway(Progress(job.attempt, Stage.RESERVED))
        return [SendTo(prefill.address, order), progress]

    def _started(self, job: DecodeJob, now_s: float) -> Out:
        job.started_s = now_s
        if job.life.state is not DecodeState.WAITING:
            return []  # a recompute: the gateway knows the attempt as prefilling already
        job.life.fire(DecodeEvent.RESERVED_LOCAL, now_s)
        return [
            job.to_gateway(Progress(job.attempt, Stage.RESERVED)),
            job.to_gateway(Progress(job.attempt, Stage.PREFILLING)),
        ]

    def _decode_started(self, job: DecodeJob, now_s: float) -> Out:
        report = job.handoff_report(self._layout, self._transport, now_s)
        return [job.to_gateway(report), job.to_gateway(Progress(job.attempt, Stage.DECODING))]

    # ---- transfer ------------------------------------------------------------------------------

    def _session_of(self, attempt: Attempt, event: ReceiveSessionEvent, now_s: float) -> Out:
        job = self._jobs.get(attempt)
        if job is None or job.session is None:
            return [Stale(f"{type(event).__name__} of {attempt}")]
        if isinstance(event, KvDone) and not job.life.ended:
            job.done_s = now_s
            job.elapsed_on_prefill_ms = event.elapsed_ms
        out = self._session(job, event, now_s)
        if isinstance(event, KvAccept) and not job.life.ended:
            out.append(job.to_gateway(Progress(attempt, Stage.PREFILLING)))
        return out

    def _session(self, job: DecodeJob, event: ReceiveSessionEvent, now_s: float) -> Out:
        session = job.session
        if session is None:
            return []
        out: Out = []
        for action in session.handle(event, now_s):
            out += self._carry_out(job, session, action, now_s)
        if session.ended:
            self._forget_if_over(job)
        return out

    def _carry_out(
        self,
        job: DecodeJob,
        session: ReceiveSession,
        action: transfer_actions.ReceiveAction,
        now_s: float,
    ) -> Out:
        attempt = job.attempt
        match action:
            case transfer_actions.Send(message):
                if isinstance(message, KvAbort):
                    message = replace(message, answer_to=self._me.address)
                return [SendTo(job.prefill.address, message)] if job.prefill else []
            case transfer_actions.Verify(blocks, _, checksums):
                return [VerifyBlocks(attempt, blocks, checksums)]
            case transfer_actions.Deliver(first):
                job.session = None
                job.life.fire(DecodeEvent.DELIVERED, now_s)
                moved = len(session.blocks) * self._layout.block_bytes
                # P's connection to the gateway may have broken with token 0 on it, and P may know
                # nothing of this attempt any more: said twice, it is taken once.
                again = Tokens(tuple(TokenItem(attempt, sampled) for sampled in first))
                return [
                    ToEngine(engine_events.Delivered(attempt, first)),
                    TransferEnded(bytes_moved=moved, failed=False),
                    job.to_gateway(again),
                ]
            case transfer_actions.Recompute(reason):
                job.session, job.prefilled_here, job.started_s = None, True, now_s
                return [FAILED, *self._end(job, DecodeEvent.MISMATCH, reason, now_s)]
            case transfer_actions.FinishAttempt():
                return self._end(job, DecodeEvent.COMPLETED, "token 0 was the last", now_s)
            case transfer_actions.FailAttempt(fault, reason):
                job.fault = fault
                return [FAILED, *self._end(job, DecodeEvent.PEER_LOST, reason, now_s)]
            case transfer_actions.FreeBlocks():
                job.in_engine = False
                return [ToEngine(engine_events.Abort(attempt))]
            case transfer_actions.Quarantine():
                job.in_engine = False
                return [ToEngine(engine_events.Quarantine(attempt))]
            case transfer_actions.EndQuarantine():
                return [ToEngine(engine_events.EndQuarantine(attempt))]
            case transfer_actions.Ignored(what):
                return [Stale(what)]

    # ---- ends ----------------------------------------------------------------------------------

    def _end(self, job: DecodeJob, event: DecodeEvent, reason: str, now_s: float) -> Out:
        """Fire what may end the attempt, and carry out what its table says."""
        if job.life.ended:
            return []
        out: Out = []
        for do in job.life.fire(event, now_s, reason):
            match do:
                case DecodeAction.DROP:
                    out += self._drop(job, reason, now_s)
                case DecodeAction.REPORT_LOST:
                    failed = AttemptFailed(job.attempt, job.fault, reason)
                    out.append(self._last_words.say(job.gateway.address, failed, now_s))
                case DecodeAction.RECOMPUTE:
                    out.append(ToEngine(engine_events.Recompute(job.attempt)))
        self._forget_if_over(job)
        return out

    def _drop(self, job: DecodeJob, reason: str, now_s: float) -> Out:
        """While there is a transfer its session decides what becomes of the blocks."""
        if job.session is not None:
            if job.session.ended or job.session.quarantined:
                return []  # it decided this very moment: its actions follow
            return self._session(job, transfer_events.Abort(reason or "over"), now_s)
        if not job.in_engine:
            return []
        job.in_engine = False
        return [ToEngine(engine_events.Abort(job.attempt))]

    def _forget_if_over(self, job: DecodeJob) -> None:
        if job.life.ended and (job.session is None or job.session.ended):
            self._jobs.pop(job.attempt, None)

    def _tick(self, now_s: float) -> Out:
        out: Out = []
        for job in list(self._jobs.values()):
            if now_s >= job.deadline_s and not job.life.ended:
                out += self._end(job, DecodeEvent.TIMEOUT, "deadline", now_s)
            if job.session is not None:
                out += self._session(job, transfer_events.Tick(), now_s)
        return out

    def stop(self, reason: str, now_s: float) -> Out:
        """This worker shuts down: every attempt is lost here, and the gateways are told."""
        out: Out = []
        for job in list(self._jobs.values()):
            job.fault = Fault.PEER
            out += self._end(job, DecodeEvent.FAULT, reason, now_s)
        return out
