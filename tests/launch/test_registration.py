"""A worker's standing with the router, over a channel that only records."""

import asyncio
from typing import Any

import pytest

from core.clock import VirtualClock
from core.cost_model import CostModel
from core.errors import SetupError
from core.ids import Incarnation, ProcessId, WorkerName
from launch.registration import Registration
from tests.decode_node.two_workers import LAYOUT, D
from wire.messages import (
    Heartbeat,
    KvAck,
    Register,
    Registered,
    RegisterRefused,
    Reregister,
    Role,
    WorkerCard,
    WorkerLoad,
)

ROUTER = ProcessId(WorkerName("router"), Incarnation(1))
CARD = WorkerCard(
    peer=D,
    pool="decode",
    roles=(Role.DECODE,),
    model="m",
    fingerprint="f",
    max_context=100,
    layout=LAYOUT,
    blocks_total=4,
    transport="memory",
    cost=CostModel(),
)


class RecordingChannel:
    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.arrived = asyncio.Event()

    def send(self, address: str, message: Any) -> None:
        assert address == "tcp://router"
        self.sent.append(message)
        self.arrived.set()


def registration(channel: Any, registered: list[None], period_s: float = 0.001) -> Registration:
    return Registration(
        channel,
        "tcp://router",
        CARD,
        period_s=period_s,
        load=lambda: WorkerLoad(running=3),
        on_registered=lambda: registered.append(None),
        clock=VirtualClock(),
    )


async def test_registers_then_beats_then_registers_again_when_the_router_is_gone() -> None:
    channel, registered = RecordingChannel(), list[None]()
    standing = registration(channel, registered)
    task = asyncio.create_task(standing.run())
    await channel.arrived.wait()
    assert channel.sent == [Register(CARD)]
    assert standing.hear(Registered(ROUTER))
    assert standing.hear(Registered(ROUTER))
    assert len(registered) == 1
    channel.sent.clear()
    channel.arrived.clear()
    await channel.arrived.wait()
    assert channel.sent[0] == Heartbeat(WorkerLoad(running=3), D.address)
    standing.gone("tcp://someone-else")
    standing.gone("tcp://router")
    standing.hear(Registered(ROUTER))
    assert len(registered) == 2
    task.cancel()


def test_an_unknown_worker_introduces_itself_at_once() -> None:
    channel = RecordingChannel()
    assert registration(channel, []).hear(Reregister())
    assert channel.sent == [Register(CARD)]


def test_a_refusal_ends_the_worker_with_the_reason() -> None:
    with pytest.raises(SetupError, match="another model"):
        registration(RecordingChannel(), []).hear(RegisterRefused("another model"))


def test_other_messages_are_somebody_elses() -> None:
    assert not registration(RecordingChannel(), []).hear(KvAck)
