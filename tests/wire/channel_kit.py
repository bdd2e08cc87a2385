"""What the tests of the channel's parts share."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import zmq

from core.clock import MonotonicClock
from core.ids import Attempt, Epoch, Incarnation, ProcessId, RequestId, WorkerName
from wire.channel import Channel, Received
from wire.keys import DeploymentKeys
from wire.messages import Cancel

KEYS = DeploymentKeys.create()
A = ProcessId(WorkerName("a"), Incarnation(1))
B = ProcessId(WorkerName("b"), Incarnation(2))
PATIENCE_S = 20.0
"""For what happens at once on a quiet machine."""


def cancel(number: int, reason: str = "") -> Cancel:
    return Cancel(Attempt(RequestId("r"), Epoch(number)), reason)


async def soon(receiving: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(receiving, PATIENCE_S)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until `condition` holds: for what foreign sockets do, who tell nobody."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


Make = Callable[..., Coroutine[Any, Any, Channel]]


@asynccontextmanager
async def channels() -> AsyncIterator[Make]:
    made: list[Channel] = []

    async def one(process: ProcessId, keys: DeploymentKeys = KEYS) -> Channel:
        channel = Channel(process, keys, MonotonicClock())
        made.append(channel)
        await channel.bind()
        return channel

    yield one
    for channel in made:
        await channel.close()


Socket = zmq.Socket[bytes]


@contextmanager
def raw_peer(address: str, keys: DeploymentKeys | None) -> Iterator[tuple[Socket, Socket]]:
    """A peer that speaks ZMTP but not through our channel, and the monitor of its end."""
    context: zmq.Context[Socket] = zmq.Context.instance()
    dealer = context.socket(zmq.DEALER)
    dealer.linger = 0
    if keys is not None:
        dealer.curve_serverkey = KEYS.public
        dealer.curve_publickey = keys.public
        dealer.curve_secretkey = keys.secret
    monitor = dealer.get_monitor_socket(
        zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    )
    dealer.connect(address)
    try:
        yield dealer, monitor
    finally:
        dealer.disable_monitor()
        monitor.close()
        dealer.close()


async def chat(make: Make) -> None:
    a, b = await make(A), await make(B)
    a.send(b.address, cancel(1, "hello"))
    assert await soon(b.receive()) == Received(A, cancel(1, "hello"))
    b.send(a.address, cancel(2, "hello yourself"))
    assert await soon(a.receive()) == Received(B, cancel(2, "hello yourself"))
