"""Checksums of blocks as they are written, keyed by the attempt.

XXH3 (Collet), 64 bits: faster than memory on one core, and a changed, missing or foreign block
passes with a chance of 2⁻⁶⁴. The key makes the right bytes of another attempt wrong ones. It
guards against faults, not against forgers; those are kept out by the channel's and the
transport's authentication.
"""

from collections.abc import Sequence

import xxhash

from core.ids import Attempt
from kv_transfer.region import Region

ALGORITHM = "xxh3_64"
"""As named in `KvDone.algorithm`."""


def block_checksums(attempt: Attempt, region: Region, blocks: Sequence[int]) -> tuple[int, ...]:
    """One unsigned 64-bit sum per block, in order. Reads the pool, allocates nothing per byte.

    Raises BugError for a block outside of the region.
    """
    key = xxhash.xxh3_64_intdigest(f"{attempt.epoch}:{attempt.request}".encode())
    return tuple(xxhash.xxh3_64_intdigest(region.block(block), seed=key) for block in blocks)


def checksums_match(
    attempt: Attempt, region: Region, blocks: Sequence[int], expected: Sequence[int]
) -> bool:
    """Whether every block is as its sender saw it. False too where the counts differ."""
    return block_checksums(attempt, region, blocks) == tuple(expected)
