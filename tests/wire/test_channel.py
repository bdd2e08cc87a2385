import asyncio
import os
import threading
import time

import pytest
import uvloop

from core.clock import MonotonicClock
from core.errors import BugError, FrameTooLarge, SetupError
from core.ids import Attempt, Epoch, ProcessId, RequestId
from tests.wire.channel_kit import KEYS, PATIENCE_S, A, B, Make, cancel, chat, raw_peer, soon, until
from tests.wire.channel_peer import CHILD
from wire.channel import INBOX_FRAMES, Channel, PeerGone, Received
from wire.codec import MAX_FRAME_BYTES, encode
from wire.messages import KvRenew


async def test_two_processes_talk(make: Make) -> None:
    await chat(make)


async def test_a_process_can_write_to_itself(make: Make) -> None:
    a = await make(A)
    a.send(a.address, cancel(1))
    assert await soon(a.receive()) == Received(A, cancel(1))


async def test_ten_thousand_messages_each_way_keep_their_order(make: Make) -> None:
    a, b = await make(A), await make(B)
    count = 10_000
    for number in range(1, count + 1):
        a.send(b.address, cancel(number))
        b.send(a.address, cancel(number))

    async def drain(channel: Channel) -> list[int]:
        return [(await channel.receive()).message.attempt.epoch for _ in range(count)]  # type: ignore[union-attr]

    at_a, at_b = await soon(asyncio.gather(drain(a), drain(b)))
    assert at_a == at_b == list(range(1, count + 1))
    assert a.malformed_total == b.malformed_total == 0


async def test_a_flood_from_one_doesnt_shut_out_another(make: Make) -> None:
    loud, quiet, hearer = await make(A), await make(B), await make(CHILD)
    flood = 20_000
    for number in range(1, flood + 1):
        loud.send(hearer.address, cancel(number))
    first = await soon(hearer.receive())
    assert first.sender == A
    quiet.send(hearer.address, cancel(1))
    before = 0
    while (await soon(hearer.receive())).sender != B:
        before += 1
    assert before < flood - 1


async def test_reading_ahead_is_bounded(make: Make) -> None:
    a, b = await make(A), await make(B)
    for number in range(1, 10 * INBOX_FRAMES):
        a.send(b.address, cancel(number))
    await until(lambda: b._inbox.qsize() >= INBOX_FRAMES)
    for _ in range(20):
        await asyncio.sleep(0)
        assert b._inbox.qsize() <= INBOX_FRAMES
    for number in range(1, 10 * INBOX_FRAMES):
        assert (await soon(b.receive())).message == cancel(number)


async def test_garbage_is_counted_and_the_rest_goes_on(make: Make) -> None:
    b = await make(B)
    good = encode(A, cancel(1))
    garbage = [b"", b"\xc1", good[:-1], good + b"x", bytes(MAX_FRAME_BYTES + 1)]
    with raw_peer(b.address, KEYS) as (dealer, _):
        for frame in garbage:
            dealer.send(frame)
        dealer.send_multipart([good, good])
        dealer.send(good)
        assert await soon(b.receive()) == Received(A, cancel(1))
    assert b.malformed_total == len(garbage) + 1


async def test_a_monstrous_frame_costs_its_sender_the_connection(make: Make) -> None:
    a, b = await make(A), await make(B)
    with raw_peer(b.address, KEYS) as (dealer, monitor):
        dealer.send(bytes(3 * MAX_FRAME_BYTES))
        await until(lambda: monitor.poll(0) > 0)
    a.send(b.address, cancel(1))
    assert await soon(b.receive()) == Received(A, cancel(1))


async def test_too_large_or_foreign_messages_are_the_callers_error(make: Make) -> None:
    a = await make(A)
    with pytest.raises(FrameTooLarge):
        a.send(a.address, cancel(1, "x" * MAX_FRAME_BYTES))
    with pytest.raises(BugError):
        a.send(a.address, "text")


async def test_a_forgotten_address_is_closed_without_a_word(make: Make) -> None:
    a, b = await make(A), await make(B)
    a.send(b.address, cancel(1))
    a.forget(b.address)  # what was sent still leaves
    a.forget(b.address)
    assert await soon(b.receive()) == Received(A, cancel(1))
    a.send(b.address, cancel(2))
    assert await soon(b.receive()) == Received(A, cancel(2))
    assert a.peers_gone_total == 0


async def test_close_lets_what_was_sent_leave(make: Make) -> None:
    a, b = await make(A), await make(B)
    for number in range(1, 101):
        a.send(b.address, cancel(number))
    await a.close()
    for number in range(1, 101):
        assert (await soon(b.receive())).message == cancel(number)


async def test_close_is_quick_idempotent_and_wakes_the_receiver(make: Make) -> None:
    a = await make(A)
    a.send("tcp://127.0.0.1:1", cancel(1))  # nobody there: lingers, but not for long
    waiting = asyncio.ensure_future(a.receive())
    await asyncio.sleep(0)
    start_s = time.monotonic()
    await a.close()
    await a.close()
    assert time.monotonic() - start_s < 5.0
    with pytest.raises(BugError, match="closed"):
        await waiting
    with pytest.raises(BugError, match="closed"):
        a.send("tcp://127.0.0.1:1", cancel(1))
    with pytest.raises(BugError, match="closed"):
        await a.bind()


async def test_a_taken_port_is_the_operators_error(make: Make) -> None:
    a = await make(A)
    port = int(a.address.rsplit(":", 1)[1])
    other = Channel(B, KEYS, MonotonicClock())
    with pytest.raises(SetupError, match=f"can't listen at 127.0.0.1:{port}"):
        await other.bind(port=port)
    assert (await other.bind()) == other.address != a.address
    with pytest.raises(BugError, match="already"):
        await other.bind()
    await other.close()


def test_nothing_leaks_under_either_loop() -> None:
    async def life() -> None:
        tasks = asyncio.all_tasks()
        channels = [Channel(who, KEYS, MonotonicClock()) for who in (A, B)]

        async def make(_: ProcessId) -> Channel:
            channel = channels[0 if _ is A else 1]
            await channel.bind()
            return channel

        await chat(make)
        assert asyncio.all_tasks() == tasks  # a channel needs none
        for channel in channels:
            await channel.close()
        assert asyncio.all_tasks() == tasks

    def held() -> tuple[int, int, int]:
        descriptors = len(os.listdir("/proc/self/fd"))
        return descriptors, len(os.listdir("/proc/self/task")), threading.active_count()

    asyncio.run(life())
    uvloop.run(life())  # opens two descriptors of its own for good, the first time
    before = held()
    lives = 6
    for _ in range(lives // 2):
        asyncio.run(life())
        uvloop.run(life())

    def leaked() -> bool:
        # One each would be `lives` more. Other libraries of this process may start a thread.
        return any(now - then >= lives for now, then in zip(held(), before, strict=True))

    deadline_s = time.monotonic() + PATIENCE_S
    while leaked() and time.monotonic() < deadline_s:
        os.sched_yield()  # an ended thread stays listed for a moment
    assert not leaked(), f"{held()} after {before}"


def test_the_whole_chat_works_under_uvloop() -> None:
    async def run() -> None:
        a, b = Channel(A, KEYS, MonotonicClock()), Channel(B, KEYS, MonotonicClock())
        await a.bind()
        await b.bind()
        for number in range(1, 2_001):
            a.send(b.address, cancel(number))
            b.send(a.address, KvRenew(Attempt(RequestId("r"), Epoch(number))))
        for number in range(1, 2_001):
            assert await soon(b.receive()) == Received(A, cancel(number))
            heard = await soon(a.receive())
            assert heard.message.attempt.epoch == number
        await b.close()
        assert isinstance(await soon(a.receive()), PeerGone)
        await a.close()

    uvloop.run(run())
