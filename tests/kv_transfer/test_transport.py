import pytest

from core.errors import BugError
from kv_transfer.note import MAX_NOTE_BYTES
from kv_transfer.region import allocate_region
from kv_transfer.transport import check_post

REGION = allocate_region(block_bytes=8, blocks=4)


def test_a_post_inside_of_both_regions_passes() -> None:
    check_post(REGION, 10, [(0, 9), (3, 0), (3, 9)], bytes(MAX_NOTE_BYTES))


@pytest.mark.parametrize(
    ("pairs", "note"),
    [
        ([], b""),
        ([(4, 0)], b""),
        ([(0, 10)], b""),
        ([(-1, 0)], b""),
        ([(0, 0), (0, -1)], b""),
        ([(0, 0)], bytes(MAX_NOTE_BYTES + 1)),
    ],
)
def test_anything_else_is_our_bug(pairs: list[tuple[int, int]], note: bytes) -> None:
    with pytest.raises(BugError):
        check_post(REGION, 10, pairs, note)
