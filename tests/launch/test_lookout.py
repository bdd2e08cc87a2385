import asyncio
import contextlib
from collections.abc import AsyncIterator

from core.clock import MonotonicClock
from core.config import Config
from launch.child_lifecycle import ChildState
from launch.hang_watch import HangWatch, Verdict
from launch.lookout import Lookout
from launch.supervision import ChildView, Found, Lost, StopGroup
from tests.router.world import LAUNCHER, ROUTER, card, process
from wire.channel import Channel, Received
from wire.keys import DeploymentKeys
from wire.messages import Members, MemberState, MemberView, Peer, Subscribe, WorkerLoad, WorkerLost

P = process("prefill-0")
VIEWS = [
    ChildView("router", StopGroup.ROUTER, ChildState.READY, ROUTER, "", ""),
    ChildView("prefill-0", StopGroup.WORKER, ChildState.READY, P, "", ""),
]
ALIVE = Members((MemberView(card("prefill-0"), WorkerLoad(), MemberState.ALIVE),))
PATIENCE_S = 30.0


@contextlib.asynccontextmanager
async def mailbox(keys: DeploymentKeys, who: Peer | None = None) -> AsyncIterator[Channel]:
    channel = Channel(who.process if who else ROUTER, keys, MonotonicClock())
    await channel.bind()
    try:
        yield channel
    finally:
        await channel.close()


async def subscription(router: Channel) -> Peer:
    while True:
        heard = await router.receive()
        if isinstance(heard, Received) and isinstance(heard.message, Subscribe):
            return heard.message.gateway


async def test_it_subscribes_again_and_again_and_tells_what_it_hears() -> None:
    keys = DeploymentKeys.create()
    told: asyncio.Queue[Verdict] = asyncio.Queue()
    async with (
        asyncio.timeout(PATIENCE_S),
        mailbox(keys) as router,
        mailbox(keys, Peer(LAUNCHER, "")) as ours,
    ):
        watch = HangWatch(Config())
        lookout = Lookout(ours, router.address, watch, MonotonicClock(), told.put_nowait)
        lookout.update(VIEWS)
        running = asyncio.create_task(lookout.run())
        try:
            assert await subscription(router) == Peer(LAUNCHER, ours.address)
            router.send(ours.address, ALIVE)
            router.send(ours.address, WorkerLost(P, False))
            assert await told.get() == Lost(P, "no heartbeat for 5 s")
            router.send(ours.address, ALIVE)
            assert await told.get() == Found(P)
            assert await subscription(router) == Peer(LAUNCHER, ours.address)
        finally:
            running.cancel()
            await asyncio.wait({running})
