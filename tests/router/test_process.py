"""The router process on real channels over loopback; the peers are played by the test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from core.config import Config
from core.errors import ConfigError, SetupError
from core.ids import Attempt, Epoch, RequestId
from router import process as router_process
from router.policy import LeastTtft
from tests.router.world import ROUTER, card, config, pool, process, route
from tests.wire.channel_kit import KEYS, Make, channels, soon
from wire.channel import Channel, Received
from wire.messages import (
    Assignment,
    Heartbeat,
    KvAck,
    Members,
    MemberState,
    Message,
    Peer,
    ProcessExited,
    Refusal,
    RefusalKind,
    Register,
    Registered,
    Reregister,
    Route,
    Subscribe,
    WorkerCard,
    WorkerLoad,
    WorkerLost,
)

TREE = config(heartbeat_ms=100, suspect_after_ms=20_000, dead_after_ms=40_000)


class RunningRouter:
    def __init__(self) -> None:
        self.reports: list[tuple[str, str, str]] = []
        self.ready = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def report(self, state: str, detail: str, address: str) -> None:
        self.reports.append((state, detail, address))
        if state == "ready":
            self.ready.set()

    @property
    def address(self) -> str:
        return self.reports[-1][2]

    async def run(self, tree: Config = TREE, port: int = 0) -> None:
        await router_process.run(
            process=ROUTER,
            config=tree,
            keys=KEYS,
            bind_host="127.0.0.1",
            bind_port=port,
            report=self.report,
        )

    async def start(self, tree: Config = TREE, port: int = 0) -> None:
        self.task = asyncio.create_task(self.run(tree, port))
        await soon(self.ready.wait())

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(self.task)


@asynccontextmanager
async def running(tree: Config = TREE, port: int = 0) -> AsyncIterator[RunningRouter]:
    router = RunningRouter()
    await router.start(tree, port)
    yield router
    await router.stop()


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    async with channels() as make:
        yield make


async def hear(channel: Channel, kind: type[Message]) -> Message:
    """The next message of this class; others are passed over."""
    while True:
        item = await soon(channel.receive())
        if isinstance(item, Received) and type(item.message) is kind:
            assert item.sender == ROUTER
            return item.message


async def join(make: Make, router: RunningRouter, name: str) -> tuple[Channel, WorkerCard]:
    channel = await make(process(name))
    mine = replace(card(name), peer=Peer(channel.process, channel.address))
    channel.send(router.address, Register(mine))
    await hear(channel, Registered)
    return channel, mine


async def open_gateway(make: Make, router: RunningRouter) -> tuple[Channel, Peer]:
    channel = await make(process("gateway"))
    peer = Peer(channel.process, channel.address)
    channel.send(router.address, Subscribe(peer))
    await hear(channel, Members)
    return channel, peer


async def ask(gateway: Channel, router: RunningRouter, wanted: Route) -> Message:
    gateway.send(router.address, wanted)
    while True:
        item = await soon(gateway.receive())
        if isinstance(item, Received) and isinstance(item.message, Assignment | Refusal):
            assert item.message.attempt == wanted.attempt
            return item.message


async def test_a_pair_is_assigned_and_a_death_is_told(make: Make) -> None:
    async with running() as router:
        assert [state for state, _, _ in router.reports] == ["starting", "ready"]
        prefill, p = await join(make, router, "prefill-0")
        decode, d = await join(make, router, "decode-0")
        gateway, peer = await open_gateway(make, router)
        made = await ask(gateway, router, route("a", gateway=peer))
        assert (made.prefill, made.decode) == (p.peer, d.peer)

        gateway.send(router.address, ProcessExited(prefill.process))
        assert await hear(decode, WorkerLost) == WorkerLost(prefill.process, True)
        assert await hear(gateway, WorkerLost) == WorkerLost(prefill.process, True)
        made = await ask(gateway, router, route("b", gateway=peer))
        assert made.prefill is None


async def test_heartbeats_reach_the_gateways_as_members(make: Make) -> None:
    async with running() as router:
        decode, mine = await join(make, router, "decode-0")
        gateway, _ = await open_gateway(make, router)
        decode.send(router.address, Heartbeat(WorkerLoad(running=7), mine.peer.address))
        while True:
            (view,) = (await hear(gateway, Members)).members
            if view.load.running == 7:
                break


async def test_a_closed_mailbox_makes_a_suspect(make: Make) -> None:
    async with running() as router:
        decode, _ = await join(make, router, "decode-0")
        gateway, _ = await open_gateway(make, router)
        await decode.close()
        while True:
            (view,) = (await hear(gateway, Members)).members
            if view.state is MemberState.SUSPECT:
                break


async def test_what_makes_no_sense_doesnt_end_it(make: Make) -> None:
    async with running() as router:
        gateway, peer = await open_gateway(make, router)
        gateway.send(router.address, KvAck(Attempt(RequestId("x"), Epoch(1))))
        gateway.send(router.address, Heartbeat(WorkerLoad(), "no address"))
        gateway.send(router.address, Heartbeat(WorkerLoad(), ""))
        refused = await ask(gateway, router, route("a", gateway=peer))
        assert refused.kind is RefusalKind.NO_WORKER


async def test_a_fault_of_ours_ends_one_request_with_a_reason(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = LeastTtft.choose

    def broken(self: LeastTtft, route: Route, *workers: list[object]) -> object:
        if route.attempt.request == "bad":
            raise ZeroDivisionError("a bug")
        return whole(self, route, *workers)  # type: ignore[arg-type]

    monkeypatch.setattr(LeastTtft, "choose", broken)
    async with running() as router:
        await join(make, router, "decode-0")
        gateway, peer = await open_gateway(make, router)
        refused = await ask(gateway, router, route("bad", gateway=peer))
        assert "a bug" in refused.reason
        assert isinstance(await ask(gateway, router, route("good", gateway=peer)), Assignment)
    assert "the router failed on" in caplog.text


async def test_a_restarted_router_asks_whom_it_hears_to_register(make: Make) -> None:
    async with running() as first:
        decode, mine = await join(make, first, "decode-0")
        address = first.address
    async with running(port=int(address.rsplit(":", 1)[1])) as second:
        assert second.address == address
        decode.forget(address)
        decode.send(address, Heartbeat(WorkerLoad(), mine.peer.address))
        assert await hear(decode, Reregister) == Reregister()


async def test_a_taken_port_is_the_operators_to_mend() -> None:
    async with running() as first:
        port = int(first.address.rsplit(":", 1)[1])
        with pytest.raises(SetupError, match=str(port)):
            await RunningRouter().run(TREE, port)


async def test_a_hole_in_the_pools_is_said_before_any_port_is_open() -> None:
    router = RunningRouter()
    with pytest.raises(ConfigError, match="1 to 9 tokens"):
        await router.run(config(pool("decode", low=10)))
    assert [state for state, _, _ in router.reports] == ["starting"]
