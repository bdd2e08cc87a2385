import pytest
from hypothesis import given, strategies as st

from core.errors import TransportError
from kv_transfer.region import allocate_region
from kv_transfer.transports.pool_address import (
    MAX_ADDRESS_BYTES,
    PoolAddress,
    check_fits,
    decode_address,
    encode_address,
)

DETAILS = st.dictionaries(
    st.text(max_size=8),
    st.one_of(st.binary(max_size=64), st.text(max_size=16), st.integers(0, 2**63)),
    max_size=4,
)


@given(st.text(min_size=1, max_size=60), st.integers(1, 2**40), st.integers(1, 2**31), DETAILS)
def test_round_trip(
    name: str, block_bytes: int, blocks: int, details: dict[str, bytes | str | int]
) -> None:
    address = PoolAddress("tcp", name, block_bytes, blocks, details)
    assert decode_address(encode_address(address), "tcp") == address


@given(st.binary(max_size=200))
def test_anything_else_is_refused_without_a_crash(data: bytes) -> None:
    with pytest.raises(TransportError):
        decode_address(data, "tcp")


@given(st.data(), st.integers(0, 255))
def test_a_changed_byte_is_another_address_or_refused(data: st.DataObject, value: int) -> None:
    address = PoolAddress("tcp", "d", 4096, 4, {"port": 9, "token": b"x" * 8})
    raw = bytearray(encode_address(address))
    at = data.draw(st.integers(0, len(raw) - 1))
    same = raw[at] == value
    raw[at] = value
    try:
        assert (decode_address(bytes(raw), "tcp") == address) == same
    except TransportError:
        assert not same


def test_sizes_are_bounded_for_both() -> None:
    large = PoolAddress("tcp", "d", 1, 1, {"agent": bytes(MAX_ADDRESS_BYTES)})
    with pytest.raises(TransportError, match="over"):
        encode_address(large)
    with pytest.raises(TransportError):
        encode_address(PoolAddress("tcp", "", 1, 1, {}))
    with pytest.raises(TransportError):
        encode_address(PoolAddress("tcp", "d", 0, 1, {}))


def test_another_scheme_is_named() -> None:
    raw = encode_address(PoolAddress("tcp", "d", 1, 1, {}))
    with pytest.raises(TransportError, match="'tcp', not nixl"):
        decode_address(raw, "nixl")


def test_details_have_the_type_that_is_asked_for() -> None:
    address = PoolAddress("tcp", "d", 1, 1, {"a": 1, "b": "x", "c": b"y"})
    assert (address.number("a"), address.text("b"), address.data("c")) == (1, "x", b"y")
    for wrong in (address.number, address.text, address.data):
        with pytest.raises(TransportError):
            wrong("missing")
    with pytest.raises(TransportError, match="'b' is no number"):
        address.number("b")


def test_blocks_of_another_size_do_not_fit() -> None:
    region = allocate_region(8, 2)
    check_fits(region, PoolAddress("tcp", "d", 8, 99, {}))
    with pytest.raises(TransportError, match="8 bytes here and 16 at d"):
        check_fits(region, PoolAddress("tcp", "d", 16, 2, {}))
