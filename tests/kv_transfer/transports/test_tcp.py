"""Who may write into a region over tcp, and who may not."""

import socket
from collections.abc import Callable, Iterator

import pytest

from kv_transfer.region import allocate_region
from kv_transfer.transport import LinkLost, Op, PostFailed, TransportEvent
from kv_transfer.transports.pool_address import PoolAddress, decode_address, encode_address
from kv_transfer.transports.tcp import TcpTransport
from kv_transfer.transports.tcp_frames import Frame, Kind, client_mac, encode_frame
from kv_transfer.transports.tcp_inbound import MAX_STRANGERS
from tests.contracts.polling import poll_until

BLOCK_BYTES = 64
BLOCKS = 8
WRITE = encode_frame(Frame(Kind.WRITE, 1, b"", (3,))) + b"\x55" * BLOCK_BYTES
WRITE_OUTSIDE = encode_frame(Frame(Kind.WRITE, 1, b"", (BLOCKS,))) + b"\x55" * BLOCK_BYTES


@pytest.fixture
def victim() -> Iterator[TcpTransport]:
    transport = TcpTransport("victim")
    region = allocate_region(BLOCK_BYTES, BLOCKS)
    transport.register(region)
    yield transport
    assert not any(region.buffer)
    transport.abort()


def where(transport: TcpTransport) -> PoolAddress:
    return decode_address(transport.address(), "tcp")


def stranger(transport: TcpTransport) -> socket.socket:
    address = where(transport)
    sock = socket.create_connection((address.text("host"), address.number("port")))
    sock.setblocking(False)
    return sock


def stepping(transport: TcpTransport) -> Callable[[], None]:
    def step() -> None:
        assert transport.poll() == []

    return step


def is_closed(sock: socket.socket) -> bool:
    try:
        while sock.recv(4096):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


def hello(challenge: bytes, token: bytes) -> bytes:
    nonce = bytes(32)
    proof = client_mac(token, challenge[16:], nonce, b"me")
    return encode_frame(Frame(Kind.HELLO, extra=proof + nonce + b"me"))


def receive(transport: TcpTransport, sock: socket.socket, size: int) -> bytes:
    got = bytearray()

    def step() -> None:
        transport.poll()
        try:
            got.extend(sock.recv(size - len(got)))
        except BlockingIOError:
            return

    poll_until(step, lambda: len(got) >= size)
    return bytes(got)


@pytest.mark.parametrize("first", [WRITE, b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", bytes(64)])
def test_a_stranger_that_does_not_greet_is_shown_out(victim: TcpTransport, first: bytes) -> None:
    with stranger(victim) as sock:
        sock.sendall(first)
        poll_until(stepping(victim), lambda: is_closed(sock))


def test_a_stranger_that_does_not_know_the_token_is_shown_out(victim: TcpTransport) -> None:
    with stranger(victim) as sock:
        challenge = receive(victim, sock, 48)
        sock.sendall(hello(challenge, bytes(32)) + WRITE)
        poll_until(stepping(victim), lambda: is_closed(sock))


def test_who_knows_it_may_not_write_outside(victim: TcpTransport) -> None:
    with stranger(victim) as sock:
        challenge = receive(victim, sock, 48)
        sock.sendall(hello(challenge, where(victim).data("token")))
        receive(victim, sock, 48)  # welcome
        sock.sendall(WRITE_OUTSIDE)
        poll_until(stepping(victim), lambda: is_closed(sock))


def test_a_proof_is_good_for_one_connection(victim: TcpTransport) -> None:
    with stranger(victim) as first, stranger(victim) as second:
        challenge = receive(victim, first, 48)
        receive(victim, second, 48)
        second.sendall(hello(challenge, where(victim).data("token")))
        poll_until(stepping(victim), lambda: is_closed(second))


def test_strangers_are_few(victim: TcpTransport) -> None:
    socks = [stranger(victim) for _ in range(MAX_STRANGERS + 1)]
    poll_until(stepping(victim), lambda: is_closed(socks[0]))
    assert not is_closed(socks[-1])
    for sock in socks:
        sock.close()


def failing_post(address: bytes, victim: TcpTransport | None) -> list[TransportEvent]:
    sender = TcpTransport("sender")
    region = allocate_region(BLOCK_BYTES, BLOCKS)
    region.buffer[:] = b"\x55" * len(region.buffer)
    sender.register(region)
    sender.post(sender.connect(address), Op.WRITE, [(0, 0)], b"")
    told: list[TransportEvent] = []

    def step() -> None:
        if victim is not None:
            victim.poll()
        told.extend(sender.poll())

    poll_until(step, lambda: len(told) == 2)
    sender.abort()
    return told


def test_an_address_of_an_earlier_start_is_of_no_use(victim: TcpTransport) -> None:
    """The port may be another process's by now, or the same worker's next life."""
    now = where(victim)
    old = PoolAddress("tcp", now.name, BLOCK_BYTES, BLOCKS, {**now.details, "token": bytes(32)})
    failed, lost = failing_post(encode_address(old), victim)
    assert isinstance(failed, PostFailed)
    assert isinstance(lost, LinkLost)


def test_an_impostor_at_the_port_gets_no_bytes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as impostor:
        details = {"host": "127.0.0.1", "port": impostor.getsockname()[1], "token": bytes(32)}
        address = encode_address(PoolAddress("tcp", "victim", BLOCK_BYTES, BLOCKS, details))
        sender = TcpTransport("sender")
        region = allocate_region(BLOCK_BYTES, BLOCKS)
        region.buffer[:] = b"\x55" * len(region.buffer)
        sender.register(region)
        sender.post(sender.connect(address), Op.WRITE, [(0, 0)], b"")
        sock, _ = impostor.accept()
        sock.sendall(encode_frame(Frame(Kind.CHALLENGE, extra=bytes(32))))
        sock.sendall(encode_frame(Frame(Kind.WELCOME, extra=bytes(32))))
        told: list[TransportEvent] = []
        poll_until(lambda: told.extend(sender.poll()), lambda: len(told) == 2)
        assert "another process" in str(told[0])
        received = bytearray()
        while piece := sock.recv(4096):
            received += piece
        assert b"\x55" * 8 not in received
        sock.close()
        sender.abort()


def test_nobody_listens_there_any_more() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    details = {"host": "127.0.0.1", "port": port, "token": bytes(32)}
    failed, lost = failing_post(
        encode_address(PoolAddress("tcp", "victim", BLOCK_BYTES, BLOCKS, details)), None
    )
    assert isinstance(failed, PostFailed)
    assert isinstance(lost, LinkLost)
