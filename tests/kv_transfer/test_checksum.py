from hypothesis import given, strategies as st

from core.ids import Attempt, Epoch, RequestId
from kv_transfer.checksum import block_checksums, checksums_match
from kv_transfer.region import allocate_region

A = Attempt(RequestId("req-1"), Epoch(1))
GOLDEN = 0x5509C8EB78B827B


@given(st.integers(0, 63), st.integers(0, 7))
def test_any_flipped_bit_is_seen(byte: int, bit: int) -> None:
    region = allocate_region(block_bytes=32, blocks=2)
    region.buffer[:] = bytes(range(64))
    sums = block_checksums(A, region, (0, 1))
    assert checksums_match(A, region, (0, 1), sums)
    region.buffer[byte] ^= 1 << bit
    assert not checksums_match(A, region, (0, 1), sums)


def test_sums_are_keyed_by_request_and_epoch() -> None:
    region = allocate_region(block_bytes=32, blocks=1)
    others = [A.next(), Attempt(RequestId("req-2"), Epoch(1)), Attempt(RequestId(""), Epoch(1))]
    sums = {block_checksums(attempt, region, (0,)) for attempt in [A, *others]}
    assert len(sums) == 4


def test_order_and_count_matter() -> None:
    region = allocate_region(block_bytes=4, blocks=2)
    region.block(1)[:] = b"1234"
    sums = block_checksums(A, region, (0, 1))
    assert checksums_match(A, region, (1, 0), sums[::-1])
    assert not checksums_match(A, region, (1, 0), sums)
    assert not checksums_match(A, region, (0,), sums)
    assert not checksums_match(A, region, (0, 1), ())


def test_the_same_on_every_host() -> None:
    """P and D may be different builds: the figures are part of the protocol."""
    region = allocate_region(block_bytes=4, blocks=1)
    assert block_checksums(A, region, (0,)) == (GOLDEN,)
