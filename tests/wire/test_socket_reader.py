import asyncio
from collections.abc import Iterator

import pytest
import zmq

from tests.wire.channel_kit import soon
from wire.socket_reader import BATCH, SocketReader

Pair = tuple["zmq.Socket[bytes]", "zmq.Socket[bytes]"]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with zmq.Context() as context:
        ends = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
        ends[0].bind("inproc://pair")
        ends[1].connect("inproc://pair")
        yield ends
        for end in ends:
            end.close(0)


async def test_everything_is_read_whenever_it_came(pair: Pair) -> None:
    here, there = pair
    heard: asyncio.Queue[list[bytes]] = asyncio.Queue()
    total = 3 * BATCH
    for number in range(total):  # before anybody reads
        there.send_multipart([b"x", str(number).encode()])
    reader = SocketReader(here, heard.put_nowait)
    for number in range(total):
        assert await soon(heard.get()) == [b"x", str(number).encode()]
    there.send(b"later")
    assert await soon(heard.get()) == [b"later"]
    reader.close()


async def test_a_batch_leaves_the_loop_its_turn(pair: Pair) -> None:
    here, there = pair
    heard: list[bytes] = []
    for _ in range(10 * BATCH):
        there.send(b"x")
    reader = SocketReader(here, lambda frames: heard.extend(frames))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 0 < len(heard) <= 4 * BATCH  # both the descriptor and our own call may have run
    reader.close()


async def test_pause_stops_in_the_middle_of_a_batch_and_resume_goes_on(pair: Pair) -> None:
    here, there = pair
    heard: asyncio.Queue[list[bytes]] = asyncio.Queue()

    def hear(frames: list[bytes]) -> None:
        heard.put_nowait(frames)
        reader.pause()

    for _ in range(3):
        there.send(b"x")
    reader = SocketReader(here, hear)
    for _ in range(3):
        await soon(heard.get())
        for _ in range(5):
            await asyncio.sleep(0)
        assert heard.empty()
        reader.resume()
    reader.close()


async def test_nothing_is_called_after_close(pair: Pair) -> None:
    here, there = pair
    heard: list[list[bytes]] = []
    reader = SocketReader(here, heard.append)
    there.send(b"x")
    reader.close()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not heard
