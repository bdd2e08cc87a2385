"""Two worker processes' insides in one process: real engines and channels, the memory transport."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.clock import MonotonicClock
from core.config import Config, EngineConfig, PoolConfig, PoolRole
from core.ids import Attempt, Epoch, ProcessId, RequestId, WorkerName, new_incarnation
from core.request import Request
from core.sampling import SamplingParams
from core.slo import Slo
from engine.prepared_model import prepare_model
from kv_transfer.region import region_at
from kv_transfer.transports.memory import MemoryHub, MemoryTransport
from launch.worker import Worker
from launch.worker_engine import build_engine
from wire.channel import Channel, Received
from wire.keys import DeploymentKeys
from wire.messages import (
    AttemptFailed,
    Cancel,
    Fault,
    HandoffReport,
    Heartbeat,
    KvAbort,
    KvReleased,
    Leaving,
    Peer,
    PrefillReport,
    Register,
    Registered,
    Role,
    Submit,
    Tokens,
)

SOURCE = "random:llama?layers=2,hidden=32,heads=2,kv_heads=1,vocab=320,max_context=512"
CONFIG = Config(engine=EngineConfig(kv_bytes=1 << 20))


def process(name: str) -> ProcessId:
    return ProcessId(WorkerName(name), new_incarnation())


class Office:
    """Router and gateway in one: hears everything, serves nobody."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.heard: list[tuple[ProcessId, Any]] = []

    @property
    def peer(self) -> Peer:
        return Peer(self.channel.process, self.channel.address)

    async def until(self, kind: type[Any], count: int = 1) -> list[Any]:
        """Listen until `count` messages of this kind have come."""
        while sum(isinstance(message, kind) for _, message in self.heard) < count:
            received = await self.channel.receive()
            if isinstance(received, Received):
                self.heard.append((received.sender, received.message))
                if isinstance(received.message, Register):
                    answer = Registered(self.channel.process)
                    self.channel.send(received.message.card.peer.address, answer)
        return [message for _, message in self.heard if isinstance(message, kind)]

    async def tokens(self, count: int) -> list[int]:
        """The request's tokens in order, once there are `count`."""
        found: dict[int, int] = {}
        while len(found) < count:
            await self.until(Tokens, len([m for _, m in self.heard if isinstance(m, Tokens)]) + 1)
            for _, message in self.heard:
                if isinstance(message, Tokens):
                    found |= {i.sampled.position: i.sampled.token for i in message.items}
        return [found[position] for position in sorted(found)]


@asynccontextmanager
async def workers(tmp_path: Path, *roles: PoolRole) -> AsyncIterator[tuple[Office, list[Peer]]]:
    keys, clock, hub = DeploymentKeys.create(), MonotonicClock(), MemoryHub()
    prepared = prepare_model(SOURCE, "float32", tmp_path, lambda *_: None).path
    office = Office(Channel(process("office"), keys, clock))
    await office.channel.bind()
    channels: list[Channel] = [office.channel]
    tasks, peers = [], []
    for role in roles:
        pool = PoolConfig(name=role.value, role=role)
        engine = build_engine(CONFIG, pool, prepared, 1, clock)
        transport = MemoryTransport(hub, f"{role}")
        region = region_at(
            engine.runner.pool_address, engine.runner.block_bytes, engine.runner.blocks
        )
        transport.register(region)
        channel = Channel(process(f"{role}-0"), keys, clock)
        await channel.bind()
        channels.append(channel)
        worker = Worker(
            process=channel.process,
            config=CONFIG,
            pool=pool,
            channel=channel,
            router_address=office.channel.address,
            engine=engine,
            transport=transport,
            region=region,
            clock=clock,
            report=lambda *_: None,
        )
        tasks.append(asyncio.create_task(worker.serve()))
        peers.append(Peer(channel.process, channel.address))
    try:
        async with asyncio.timeout(60):
            await office.until(Register, len(roles))
            yield office, peers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for channel in channels:
            await channel.close()


def request(number: int = 1, *, tokens: int = 40, max_tokens: int = 6) -> Request:
    return Request(
        attempt=Attempt(RequestId(f"req-{number}"), Epoch(1)),
        prompt=tuple(n % 250 for n in range(tokens)),
        sampling=SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True),
        slo=Slo(),
        deadline_left_ms=60_000.0,
    )


@pytest.mark.parametrize("tokens", [1, 16, 100])
async def test_handed_over_equals_local(tmp_path: Path, tokens: int) -> None:
    answers = []
    for remote in (True, False):
        async with workers(tmp_path, PoolRole.PREFILL, PoolRole.DECODE) as (office, (p, d)):
            submit = Submit(
                request=request(tokens=tokens), gateway=office.peer, prefill=p if remote else None
            )
            office.channel.send(d.address, submit)
            answers.append(await office.tokens(6))
            (report,) = await office.until(PrefillReport)
            assert report.prefill_ms > 0
            senders = {s for s, m in office.heard if isinstance(m, PrefillReport)}
            assert senders == {(p if remote else d).process}
            if remote:
                (handoff,) = await office.until(HandoffReport)
                assert handoff.transfer_bytes > 0
    assert answers[0] == answers[1]


async def test_one_worker_with_both_roles_registers_both(tmp_path: Path) -> None:
    async with workers(tmp_path, PoolRole.BOTH) as (office, (both,)):
        (register,) = await office.until(Register)
        assert register.card.roles == (Role.PREFILL, Role.DECODE)
        submit = Submit(request=request(), gateway=office.peer, prefill=None)
        office.channel.send(both.address, submit)
        assert len(await office.tokens(6)) == 6


async def test_heartbeats_tell_that_nothing_is_left(tmp_path: Path) -> None:
    async with workers(tmp_path, PoolRole.PREFILL, PoolRole.DECODE) as (office, (p, d)):
        office.channel.send(d.address, Submit(request=request(), gateway=office.peer, prefill=p))
        await office.tokens(6)
        idle: set[ProcessId] = set()
        while idle != {p.process, d.process}:
            office.heard.clear()
            (beat,) = await office.until(Heartbeat)
            load, sender = beat.load, office.heard[-1][0]
            busy = load.blocks_owned + load.blocks_receiving + load.blocks_quarantined
            if load.steps_total and load.transfers_total and not busy and not load.transfers_open:
                assert load.integrity_error == ""
                assert load.transfer_bytes_total > 0
                idle.add(sender)


async def test_cancel_frees_and_shutdown_hands_back(tmp_path: Path) -> None:
    long = replace(request(), sampling=SamplingParams(max_tokens=400, ignore_eos=True))
    async with workers(tmp_path, PoolRole.DECODE) as (office, (d,)):
        office.channel.send(d.address, Submit(request=long, gateway=office.peer, prefill=None))
        await office.tokens(1)
        office.channel.send(d.address, Cancel(long.attempt, "test"))
        blocks = -1
        while blocks:
            office.heard.clear()
            (beat,) = await office.until(Heartbeat)
            blocks = beat.load.blocks_owned


async def test_a_worker_that_shuts_down_sends_its_requests_elsewhere(tmp_path: Path) -> None:
    long = replace(request(), sampling=SamplingParams(max_tokens=400, ignore_eos=True))
    heard: list[Any] = []
    async with workers(tmp_path, PoolRole.DECODE) as (office, (d,)):
        office.channel.send(d.address, Submit(request=long, gateway=office.peer, prefill=None))
        await office.tokens(1)
        tasks = [t for t in asyncio.all_tasks() if "Worker.serve" in repr(t.get_coro())]
        assert len(tasks) == 1
        tasks[0].cancel()
        (failed,) = await office.until(AttemptFailed)
        await office.until(Leaving)
        heard.append(failed)
    assert heard[0].attempt == long.attempt
    assert heard[0].fault is Fault.PEER


@pytest.mark.parametrize("role", [PoolRole.PREFILL, PoolRole.BOTH])
async def test_an_abort_of_an_unknown_attempt_is_answered(tmp_path: Path, role: PoolRole) -> None:
    """A decode worker whose Prefill was lost with a connection waits for just this word."""
    async with workers(tmp_path, role) as (office, (p,)):
        stranger = Attempt(RequestId("lost"), Epoch(1))
        office.channel.send(p.address, KvAbort(stranger, "timeout", office.channel.address))
        (released,) = await office.until(KvReleased)
        assert released.attempt == stranger
