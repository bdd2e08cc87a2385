import pytest
from hypothesis import given, strategies as st

from core.errors import TransportError
from kv_transfer.transports.tcp_frames import (
    HEADER,
    MAX_EXTRA_BYTES,
    Frame,
    Kind,
    client_mac,
    decode_frame,
    encode_frame,
    rest_bytes,
    server_mac,
    split_hello,
)

BLOCKS = 16
INDICES = st.lists(st.integers(0, BLOCKS - 1), min_size=1, max_size=BLOCKS).map(tuple)
POSTS = st.integers(0, 2**64 - 1)
FRAMES = st.one_of(
    st.builds(
        Frame,
        st.sampled_from([Kind.WRITE, Kind.READ]),
        POSTS,
        st.binary(max_size=600),
        INDICES,
    ),
    st.builds(
        Frame,
        st.sampled_from([Kind.CHALLENGE, Kind.HELLO, Kind.WELCOME, Kind.NOTE, Kind.DONE]),
        POSTS,
        st.binary(max_size=600),
    ),
    st.builds(Frame, st.just(Kind.DATA), POSTS, count=st.integers(1, BLOCKS)),
)


def decode(raw: bytes) -> Frame:
    header = raw[: HEADER.size]
    rest = raw[HEADER.size :]
    assert rest_bytes(header, BLOCKS) == len(rest)
    return decode_frame(header, rest, BLOCKS)


@given(FRAMES)
def test_round_trip(frame: Frame) -> None:
    decoded = decode(encode_frame(frame))
    assert (decoded.kind, decoded.post, decoded.extra) == (frame.kind, frame.post, frame.extra)
    assert decoded.blocks == frame.blocks
    assert decoded.count == frame.count


@given(st.binary(min_size=HEADER.size, max_size=HEADER.size), st.binary(max_size=64))
def test_any_header_is_bounded_or_refused(header: bytes, more: bytes) -> None:
    try:
        size = rest_bytes(header, BLOCKS)
    except TransportError:
        return
    assert size <= MAX_EXTRA_BYTES + 4 * BLOCKS
    rest = (more * (size // max(1, len(more)) + 1))[:size] if more else bytes(size)
    try:
        frame = decode_frame(header, rest, BLOCKS)
    except TransportError:
        return
    assert all(block < BLOCKS for block in frame.blocks)


@pytest.mark.parametrize("blocks", [(BLOCKS,), (0, 1, 2**32 - 1)])
def test_blocks_outside_of_the_region_are_refused(blocks: tuple[int, ...]) -> None:
    with pytest.raises(TransportError, match="outside"):
        decode(encode_frame(Frame(Kind.WRITE, 1, b"", blocks)))


def test_a_write_of_nothing_is_refused() -> None:
    with pytest.raises(TransportError):
        decode(encode_frame(Frame(Kind.WRITE, 1)))


def test_the_proofs_depend_on_everything() -> None:
    proofs = {
        client_mac(b"t", b"s", b"c", b"n"),
        client_mac(b"u", b"s", b"c", b"n"),
        client_mac(b"t", b"x", b"c", b"n"),
        client_mac(b"t", b"s", b"x", b"n"),
        client_mac(b"t", b"s", b"c", b"x"),
        server_mac(b"t", b"s", b"c"),
        server_mac(b"t", b"c", b"s"),
    }
    assert len(proofs) == 7


def test_a_short_hello_is_refused() -> None:
    assert split_hello(bytes(64) + b"me") == (bytes(32), bytes(32), b"me")
    with pytest.raises(TransportError):
        split_hello(bytes(64))
