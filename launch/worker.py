"""A worker process: one engine, hosting the prefill role, the decode role or both. An edge.

Everything but the forward pass and the checksums happens on one event loop: messages, the
engine's actions and the transport's reports become events of the pure roles, and the roles'
actions become messages, engine events and writes.
"""

import asyncio
import gc
import logging
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

from core.clock import Clock, MonotonicClock
from core.config import Config, PoolConfig, PoolRole
from core.errors import BugError
from core.ids import Attempt, ProcessId
from decode_node.decode_role import DecodeRole, DecodeRoleAction
from engine.actions import Action
from engine.engine_loop import EngineLoop
from kv_transfer.checksum import ALGORITHM, block_checksums
from kv_transfer.node_actions import (
    AddressGone,
    BlocksVerified,
    Checksummed,
    ComputeChecksums,
    DropPeerLink,
    FromEngine,
    FromPeer,
    NoteArrived,
    RoleTick,
    SendTo,
    Stale,
    ToEngine,
    TransferEnded,
    VerifyBlocks,
    WriteBlocks,
    WriteEnded,
)
from kv_transfer.open_transport import open_transport
from kv_transfer.region import Region, region_at
from kv_transfer.transport import Inbound, Transport
from launch.registration import Registration
from launch.transfer_pump import TransferPump
from launch.worker_engine import WorkerEngine, build_engine
from launch.worker_figures import WorkerFigures
from prefill_node.prefill_role import PrefillRole, PrefillRoleAction
from wire.channel import Channel, PeerGone
from wire.keys import DeploymentKeys
from wire.messages import (
    Cancel,
    KvAbort,
    KvAck,
    KvRenew,
    Leaving,
    Peer,
    Prefill,
    Role,
    WorkerCard,
    WorkerLost,
)

Report: TypeAlias = Callable[[str, str, str], None]
AnyEvent: TypeAlias = (
    FromPeer
    | AddressGone
    | FromEngine[Action]
    | WriteEnded
    | NoteArrived
    | Checksummed
    | BlocksVerified
    | RoleTick
)
AnyAction: TypeAlias = PrefillRoleAction | DecodeRoleAction

TICKS_PER_LEASE = 8
TO_BOTH = (Cancel, WorkerLost)
TO_PREFILL = (Prefill, KvAck)
TO_OWNER = (KvAbort, KvRenew)
"""Said by either side of a transfer: whoever has the attempt here is meant."""

_log = logging.getLogger(__name__)


async def run(
    *,
    process: ProcessId,
    config: Config,
    pool: PoolConfig,
    keys: DeploymentKeys,
    router_address: str,
    prepared_model: Path,
    bind_host: str,
    report: Report,
) -> None:
    """Serve until cancelled, then end in order.

    Raises:
        SetupError: the pool is too small, no transport can be opened, or the router refuses us.
    """
    clock = MonotonicClock()
    report("loading", "mapping weights, measuring the cost model", "")
    threads = len(os.sched_getaffinity(0)) if config.launch.pin_cores else None
    engine = await asyncio.to_thread(build_engine, config, pool, prepared_model, threads, clock)
    transport = open_transport(config.transport, str(process), _log.warning, bind_host)
    channel = Channel(process, keys, clock)
    try:
        runner = engine.runner
        region = region_at(runner.pool_address, runner.block_bytes, runner.blocks)
        transport.register(region)
        await channel.bind(bind_host)
        # What was built so far lives as long as the process: the collector needn't look again.
        gc.collect()
        gc.freeze()
        worker = Worker(
            process=process,
            config=config,
            pool=pool,
            channel=channel,
            router_address=router_address,
            engine=engine,
            transport=transport,
            region=region,
            clock=clock,
            report=report,
        )
        await worker.serve()
    finally:
        await channel.close()
        transport.close()


class Worker:
    """Joins the roles, the engine, the channel and the transport of one process."""

    def __init__(
        self,
        *,
        process: ProcessId,
        config: Config,
        pool: PoolConfig,
        channel: Channel,
        router_address: str,
        engine: WorkerEngine,
        transport: Transport,
        region: Region,
        clock: Clock,
        report: Report,
    ) -> None:
        self._config = config
        self._pool = pool
        self._channel = channel
        self._router_address = router_address
        self._built = engine
        self._clock = clock
        self._me = Peer(process, channel.address)
        self._transport = transport
        self._region = region
        self._engine = EngineLoop(engine.scheduler, engine.runner, clock, self._on_engine)
        self._prefill = self._prefill_role() if pool.role is not PoolRole.DECODE else None
        self._decode = self._decode_role() if pool.role is not PoolRole.PREFILL else None
        self._pump = TransferPump(
            transport,
            interval_s=config.transport.poll_interval_ms / 1e3,
            is_open=lambda: self._transfers_open() > 0,
            on_event=self._take,
        )
        self._events: deque[AnyEvent] = deque()
        self._draining = False
        self._sums: asyncio.Queue[ComputeChecksums | VerifyBlocks] = asyncio.Queue()
        self._figures = WorkerFigures()
        self._registration = Registration(
            channel,
            router_address,
            self._card(),
            period_s=config.router.heartbeat_ms / 1e3,
            load=lambda: self._figures.load(self._engine.load(), self._transfers_open()),
            on_registered=lambda: report("ready", self._readiness(), self._me.address),
            clock=clock,
        )

    def _prefill_role(self) -> PrefillRole:
        return PrefillRole(
            layout=self._built.layout,
            transport=self._transport.scheme,
            algorithm=ALGORITHM,
            blocks_of=self._built.scheduler.blocks_of,
        )

    def _decode_role(self) -> DecodeRole:
        return DecodeRole(
            me=self._me,
            layout=self._built.layout,
            transport=self._transport.scheme,
            transport_address=self._transport.address(),
            algorithm=ALGORITHM,
            lease_ms=self._config.transport.lease_ms,
        )

    async def serve(self) -> None:
        """Run until cancelled; then tell the router and the gateways, and let the step finish."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for job in (
                    self._receive(),
                    self._engine.run(),
                    self._pump.run(),
                    self._checksum(),
                    self._registration.run(),
                    self._tick(),
                ):
                    tasks.create_task(job)
        finally:
            self._leave()

    # ---- events in, actions out ----------------------------------------------------------------

    def _take(self, event: AnyEvent) -> None:
        """Handle an event and whatever follows from it at once, in order, never nested."""
        self._events.append(event)
        if self._draining:
            return
        self._draining = True
        try:
            while self._events:
                self._handle(self._events.popleft())
        finally:
            self._draining = False

    def _handle(self, event: AnyEvent) -> None:
        now_s = self._clock.now_s()
        if isinstance(event, FromPeer) and isinstance(event.message, WorkerLost):
            self._cut_off(event.message)
        actions: list[AnyAction] = []
        match event:
            case FromPeer(_, message) if not isinstance(message, TO_BOTH):
                actions += self._handle_by_one(event, now_s)
            case FromEngine(told):
                actions += self._handle_engine(told, now_s)
            case WriteEnded() | Checksummed():
                actions += self._prefill.handle(event, now_s) if self._prefill else []
            case NoteArrived() | BlocksVerified():
                actions += self._decode.handle(event, now_s) if self._decode else []
            case FromPeer() | AddressGone() | RoleTick():
                actions += self._prefill.handle(event, now_s) if self._prefill else []
                actions += self._decode.handle(event, now_s) if self._decode else []
        for action in actions:
            self._carry_out(action)
        if actions:
            self._pump.wake()

    def _cut_off(self, lost: WorkerLost) -> None:
        """A dead peer's last bytes may still wait in a socket of ours: they must not land in blocks
        that its proven death sets free."""
        if lost.proven:
            self._transport.disconnect(Inbound(str(lost.process)))

    def _handle_by_one(self, event: FromPeer, now_s: float) -> list[AnyAction]:
        message, prefill, decode = event.message, self._prefill, self._decode
        role = prefill if isinstance(message, TO_PREFILL) else decode
        if isinstance(message, TO_OWNER) and prefill is not None:
            # A stranger's goes to the prefill role: a decode worker may be waiting for its word.
            role = decode if decode is not None and decode.owns(message.attempt) else prefill
        if role is not None:
            return [*role.handle(event, now_s)]
        return [Stale(f"{type(message).__name__} at a worker without that role")]

    def _handle_engine(self, told: tuple[Action, ...], now_s: float) -> list[AnyAction]:
        """Each role hears of its own attempts, in the engine's order."""
        prefill = self._prefill
        if prefill is None or self._decode is None:
            role = prefill or self._decode
            return [*role.handle(FromEngine(told), now_s)] if role is not None else []
        of_prefill = tuple(action for action in told if prefill.owns(action.attempt))
        of_decode = tuple(action for action in told if not prefill.owns(action.attempt))
        return [
            *prefill.handle(FromEngine(of_prefill), now_s),
            *self._decode.handle(FromEngine(of_decode), now_s),
        ]

    def _carry_out(self, action: AnyAction) -> None:
        match action:
            case SendTo(address, message):
                self._channel.send(address, message)
            case ToEngine(event):
                self._engine.post(event)
            case WriteBlocks():
                self._pump.write(action)
            case DropPeerLink(peer, reason):
                self._pump.drop(peer, reason)
            case ComputeChecksums() | VerifyBlocks():
                self._sums.put_nowait(action)
            case Stale(what):
                self._figures.stale_messages_total += 1
                _log.debug("stale: %s", what)
            case TransferEnded(bytes_moved, failed):
                self._figures.transfer_ended(bytes_moved, failed)

    def _on_engine(self, actions: list[Action]) -> None:
        self._take(FromEngine(tuple(actions)))

    # ---- tasks ---------------------------------------------------------------------------------

    async def _receive(self) -> None:
        while True:
            heard = await self._channel.receive()
            if isinstance(heard, PeerGone):
                self._registration.gone(heard.address)
                self._take(AddressGone(heard.address))
            elif not self._registration.hear(heard.message):
                self._take(FromPeer(heard.sender, heard.message))

    async def _tick(self) -> None:
        period_s = self._config.transport.lease_ms / 1e3 / TICKS_PER_LEASE
        while True:
            await asyncio.sleep(period_s)
            self._take(RoleTick())

    async def _checksum(self) -> None:
        """Checksums beside the loop, one job after the other, in order."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="checksum") as thread:
            while True:
                job = await self._sums.get()
                sums = await loop.run_in_executor(thread, self._sum, job.attempt, job.blocks)
                match job:
                    case ComputeChecksums(attempt, blocks):
                        self._take(Checksummed(attempt, blocks, sums))
                    case VerifyBlocks(attempt, _, checksums):
                        self._take(BlocksVerified(attempt, sums == checksums))

    def _sum(self, attempt: Attempt, blocks: tuple[int, ...]) -> tuple[int, ...]:
        return block_checksums(attempt, self._region, blocks)

    # ---- standing ------------------------------------------------------------------------------

    def _card(self) -> WorkerCard:
        roles = {
            PoolRole.PREFILL: (Role.PREFILL,),
            PoolRole.DECODE: (Role.DECODE,),
            PoolRole.BOTH: (Role.PREFILL, Role.DECODE),
        }
        return WorkerCard(
            peer=self._me,
            pool=self._pool.name,
            roles=roles[self._pool.role],
            model=self._built.spec.name,
            fingerprint=self._built.fingerprint,
            max_context=self._built.max_context,
            layout=self._built.layout,
            blocks_total=self._built.runner.blocks,
            transport=self._transport.scheme,
            cost=self._built.cost,
        )

    def _readiness(self) -> str:
        built = self._built
        gib = built.runner.pool_bytes / (1 << 30)
        return f"{built.runner.blocks} KV blocks ({gib:.2f} GiB), {self._transport.scheme}"

    def _transfers_open(self) -> int:
        roles = (self._prefill, self._decode)
        return sum(role.open_transfers for role in roles if role is not None)

    def _leave(self) -> None:
        """Say goodbye: the router gives us no more work, the gateways try elsewhere."""
        now_s = self._clock.now_s()
        try:
            self._channel.send(self._router_address, Leaving())
            for role in (self._prefill, self._decode):
                for action in role.stop("the worker is shutting down", now_s) if role else []:
                    if isinstance(action, SendTo):
                        self._channel.send(action.address, action.message)
        except BugError as error:
            _log.warning("left without a goodbye: %s", error.message)
