"""Frames and blocks over a socket pair, cut into any pieces."""

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given, settings, strategies as st

from core.errors import TransportError
from kv_transfer.region import Region, allocate_region
from kv_transfer.transports.tcp_connection import Connection
from kv_transfer.transports.tcp_frames import Frame, Kind, encode_frame
from kv_transfer.transports.tcp_inbound import views

BLOCK_BYTES = 64
BLOCKS = 8


def accept(region: Region, frame: Frame) -> list[memoryview]:
    if frame.kind is not Kind.WRITE:
        raise TransportError("not here")
    return views(region, frame.blocks)


def poll_for_ever(connection: Connection, got: list[Frame]) -> None:
    while True:
        got += connection.poll()


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    listener = socket.create_server(("127.0.0.1", 0))
    ours = socket.create_connection(listener.getsockname())
    theirs, _ = listener.accept()
    yield ours, theirs
    for each in (ours, theirs, listener):
        each.close()


@given(st.lists(st.integers(1, 90), min_size=1, max_size=30))
@settings(max_examples=50)
def test_frames_arrive_whole_however_they_are_cut(cuts: list[int]) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()) as ours:
        theirs, _ = listener.accept()
        region = allocate_region(BLOCK_BYTES, BLOCKS)
        connection = Connection(theirs, region, lambda frame: accept(region, frame))
        content = bytes(range(64)) + bytes(range(64, 128)) + bytes(range(128, 192))
        stream = (
            encode_frame(Frame(Kind.WRITE, 7, b"note", (5, 2, 3)))
            + content
            + encode_frame(Frame(Kind.DONE, 9))
        )
        got: list[Frame] = []
        at = 0
        for cut in [*cuts, len(stream)]:
            piece, at = stream[at : at + cut], at + cut
            ours.sendall(piece)
            got += connection.poll()
        while len(got) < 2:
            got += connection.poll()
        assert [(f.kind, f.post, f.extra, f.blocks) for f in got] == [
            (Kind.WRITE, 7, b"note", (5, 2, 3)),
            (Kind.DONE, 9, b"", ()),
        ]
        assert bytes(region.block(5)) + bytes(region.run(2, 2)) == content
        assert not any(region.block(4))
        connection.close()


def test_more_than_the_kernel_takes_at_once(sockets: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = sockets
    source, target = allocate_region(1 << 20, 16), allocate_region(1 << 20, 16)
    source.buffer[:] = bytes(range(256)) * (len(source.buffer) // 256)
    sender = Connection(ours, source, lambda frame: [])
    receiver = Connection(theirs, target, lambda frame: accept(target, frame))
    blocks = tuple(range(16))
    sender.send(Frame(Kind.WRITE, 1, b"", blocks), views(source, blocks))
    got: list[Frame] = []
    while not got:
        sender.poll()
        got = receiver.poll()
    assert target.buffer == source.buffer


def test_frames_before_the_end_count(sockets: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = sockets
    region = allocate_region(BLOCK_BYTES, BLOCKS)
    connection = Connection(theirs, region, lambda frame: accept(region, frame))
    ours.sendall(encode_frame(Frame(Kind.DONE, 1)))
    ours.close()
    got: list[Frame] = []
    with pytest.raises(TransportError, match="closed"):
        poll_for_ever(connection, got)
    assert [frame.post for frame in got] == [1]


@pytest.mark.parametrize(
    "bad",
    [
        b"\xff" * 16,
        encode_frame(Frame(Kind.WRITE, 1, b"", (BLOCKS,))),
        encode_frame(Frame(Kind.DATA, 1, count=1)),
        encode_frame(Frame(Kind.WRITE, 1, b"", tuple(range(8)) * 2)),
    ],
)
def test_a_broken_protocol_ends_the_connection_and_touches_nothing(
    sockets: tuple[socket.socket, socket.socket], bad: bytes
) -> None:
    ours, theirs = sockets
    region = allocate_region(BLOCK_BYTES, BLOCKS)
    connection = Connection(theirs, region, lambda frame: accept(region, frame))
    ours.sendall(bad + b"\x55" * 4096)
    with pytest.raises(TransportError):
        poll_for_ever(connection, [])
    assert not any(region.buffer)
