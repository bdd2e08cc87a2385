import os
import signal
import socket as plain_socket
import time
from pathlib import Path

import pytest

from core.clock import MonotonicClock
from tests.wire.channel_kit import KEYS, A, B, Make, cancel, soon
from tests.wire.channel_peer import CHILD, child_peer
from wire.channel import Channel, PeerGone, Received


async def test_a_killed_process_is_gone_within_two_seconds(make: Make, tmp_path: Path) -> None:
    KEYS.save(tmp_path / "keys")
    a = await make(A)
    async with child_peer(tmp_path / "keys") as child:
        a.send(child.address, cancel(1, a.address))
        assert await soon(a.receive()) == Received(CHILD, cancel(1, a.address))
        os.kill(child.process.pid, signal.SIGKILL)
        start_s = time.monotonic()
        gone = await soon(a.receive())
        assert isinstance(gone, PeerGone)
        assert gone.address == child.address
        assert "broke" in gone.reason
        assert time.monotonic() - start_s < 2.0
        # Once per break: what is sent afterwards is a new connection, which can't be made.
        a.send(child.address, cancel(2))
        a.send(child.address, cancel(3))
        gone = await soon(a.receive())
        assert isinstance(gone, PeerGone)
        assert "reached" in gone.reason
        assert a.peers_gone_total == 2


async def test_a_stopped_process_is_gone_by_its_missing_heartbeats(
    make: Make, tmp_path: Path
) -> None:
    KEYS.save(tmp_path / "keys")
    a = await make(A)
    async with child_peer(tmp_path / "keys") as child:
        a.send(child.address, cancel(1, a.address))
        await soon(a.receive())
        os.kill(child.process.pid, signal.SIGSTOP)
        try:
            start_s = time.monotonic()
            gone = await soon(a.receive())
            assert isinstance(gone, PeerGone)
            assert time.monotonic() - start_s < 8.0
        finally:
            os.kill(child.process.pid, signal.SIGCONT)


async def test_nobody_there_is_gone_within_about_two_seconds(make: Make) -> None:
    with plain_socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"  # bound, and not listening
        a = await make(A)
        start_s = time.monotonic()
        a.send(address, cancel(1))
        gone = await soon(a.receive())
        assert isinstance(gone, PeerGone)
        assert gone.address == address
        assert time.monotonic() - start_s < 3.0


@pytest.mark.parametrize("address", ["", "nonsense", "tcp://", "tcp://127.0.0.1:x", "x" * 999])
async def test_a_senseless_address_is_a_lost_peer(make: Make, address: str) -> None:
    a = await make(A)
    a.send(address, cancel(1))
    gone = await soon(a.receive())
    assert isinstance(gone, PeerGone)
    assert gone.address == address


async def test_what_is_sent_before_the_peer_listens_waits_for_it(make: Make) -> None:
    with plain_socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    a = await make(A)
    a.send(f"tcp://127.0.0.1:{port}", cancel(1))
    late = Channel(B, KEYS, MonotonicClock())
    try:
        await late.bind(port=port)
        assert await soon(late.receive()) == Received(A, cancel(1))
    finally:
        await late.close()


async def test_a_peer_that_comes_back_is_reached_again(make: Make) -> None:
    a, b = await make(A), await make(B)
    address = b.address
    a.send(address, cancel(1))
    await soon(b.receive())
    await b.close()
    assert (await soon(a.receive())).address == address
    again = Channel(B, KEYS, MonotonicClock())
    try:
        await again.bind(port=int(address.rsplit(":", 1)[1]))
        a.send(address, cancel(2))
        assert await soon(again.receive()) == Received(A, cancel(2))
    finally:
        await again.close()


async def test_a_peer_that_never_reads_is_lost_in_the_end(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wire.link.QUEUE_FRAMES", 4)
    a, b = await make(A), await make(B)  # b receives nothing: nobody calls its receive()
    big = cancel(1, "x" * (1 << 20))
    for _ in range(1_000):
        a.send(b.address, big)
        if a.peers_gone_total:
            break
    gone = await soon(a.receive())
    assert gone.address == b.address
    assert "doesn't read" in gone.reason
