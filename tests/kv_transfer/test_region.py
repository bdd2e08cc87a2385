import ctypes

import pytest
from hypothesis import given, strategies as st

from core.errors import BugError
from kv_transfer.region import Region, allocate_region, block_runs, region_at


def test_blocks_are_windows_into_the_pool() -> None:
    region = allocate_region(block_bytes=4, blocks=3)
    region.block(1)[:] = b"abcd"
    region.run(1, 2)[4:] = b"efgh"
    assert bytes(region.buffer) == b"\0\0\0\0abcdefgh"


def test_a_region_over_foreign_memory() -> None:
    owner = ctypes.create_string_buffer(8)
    region = region_at(ctypes.addressof(owner), block_bytes=4, blocks=2)
    assert region.address == ctypes.addressof(owner)
    region.block(1)[:] = b"wxyz"
    assert owner.raw == b"\0\0\0\0wxyz"


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (3, 1), (2, 2), (0, 0)])
def test_outside_is_refused(first: int, count: int) -> None:
    with pytest.raises(BugError):
        allocate_region(4, 3).run(first, count)


@pytest.mark.parametrize(
    ("buffer", "block_bytes", "blocks"),
    [
        (memoryview(b"1234"), 2, 2),
        (memoryview(bytearray(4)), 3, 2),
        (memoryview(bytearray(4)), 0, 2),
        (memoryview(bytearray(8)).cast("I"), 4, 2),
        (memoryview(bytearray(8))[::2], 2, 2),
    ],
)
def test_a_wrong_buffer_is_refused(buffer: memoryview, block_bytes: int, blocks: int) -> None:
    with pytest.raises(BugError):
        Region(buffer, block_bytes, blocks)


@given(st.lists(st.integers(0, 20), max_size=12))
def test_runs_are_the_same_blocks_and_as_few_as_can_be(indices: list[int]) -> None:
    runs = block_runs(indices)
    assert [block for first, count in runs for block in range(first, first + count)] == indices
    assert all(runs[i][0] + runs[i][1] != runs[i + 1][0] for i in range(len(runs) - 1))
