"""The pump over the memory transport: polls while something is open, sleeps otherwise."""

import asyncio
from typing import Any

from core.ids import Attempt, Epoch, RequestId
from kv_transfer.node_actions import NoteArrived, WriteBlocks, WriteEnded
from kv_transfer.note import ChunkNote, encode_note
from kv_transfer.region import allocate_region
from kv_transfer.transports.memory import MemoryHub, MemoryTransport
from launch.transfer_pump import TransferPump

ATTEMPT = Attempt(RequestId("req-1"), Epoch(1))


class CountingTransport(MemoryTransport):
    polls = 0

    def poll(self) -> list[Any]:
        self.polls += 1
        return super().poll()


class World:
    """Two ends, each with its pump."""

    def __init__(self) -> None:
        self.hub = MemoryHub()
        self.p, self.d = CountingTransport(self.hub, "p"), CountingTransport(self.hub, "d")
        self.regions = allocate_region(64, 4), allocate_region(64, 4)
        self.p.register(self.regions[0])
        self.d.register(self.regions[1])
        self.events: asyncio.Queue[Any] = asyncio.Queue()
        self.open = False
        self.pump_p = self.pump(self.p)
        self.pump_d = self.pump(self.d)

    def pump(self, transport: MemoryTransport) -> TransferPump:
        return TransferPump(
            transport,
            interval_s=0.0005,
            is_open=lambda: self.open,
            on_event=self.events.put_nowait,
        )

    def write(self, peer: bytes) -> None:
        note = encode_note(ChunkNote(ATTEMPT, 2))
        self.pump_p.write(WriteBlocks(ATTEMPT, 7, peer, ((0, 2), (1, 3)), note))


async def test_a_write_arrives_and_is_reported_on_both_sides() -> None:
    world = World()
    world.regions[0].block(0)[:] = b"a" * 64
    world.regions[0].block(1)[:] = b"b" * 64
    world.open = True
    tasks = [asyncio.create_task(pump.run()) for pump in (world.pump_p, world.pump_d)]
    world.write(world.d.address())
    seen = {await world.events.get(), await world.events.get()}
    assert seen == {WriteEnded(ATTEMPT, 7), NoteArrived(ATTEMPT, 2)}
    assert bytes(world.regions[1].run(2, 2)) == b"a" * 64 + b"b" * 64
    for task in tasks:
        task.cancel()


async def test_what_cannot_be_posted_is_reported_failed_not_raised() -> None:
    world = World()
    world.write(b"no address")
    assert world.events.empty()  # told from the loop, never from within
    task = asyncio.create_task(world.pump_p.run())
    ended = await world.events.get()
    assert isinstance(ended, WriteEnded)
    assert ended.failed
    task.cancel()


async def test_a_dropped_link_fails_later_writes_no_more_than_it_must() -> None:
    world = World()
    task = asyncio.create_task(world.pump_p.run())
    world.write(world.d.address())
    assert await world.events.get() == WriteEnded(ATTEMPT, 7)
    world.pump_p.drop(world.d.address(), "test")
    world.write(world.d.address())  # a new link
    assert await world.events.get() == WriteEnded(ATTEMPT, 7)
    task.cancel()


async def test_an_idle_pump_does_not_poll() -> None:
    world = World()
    task = asyncio.create_task(world.pump_p.run())
    await asyncio.sleep(0.02)
    assert world.p.polls == 1
    world.pump_p.wake()
    await asyncio.sleep(0.02)
    assert world.p.polls == 2
    task.cancel()
