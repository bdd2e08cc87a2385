"""The memory that a transport may read and be written to: one KV pool, in blocks."""

import ctypes
from dataclasses import dataclass

import numpy as np

from core.errors import BugError


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A pool of `blocks` blocks of `block_bytes` bytes, back to back in writable host memory.

    Ownership: the Region keeps the buffer's memory alive. It must neither move nor be freed while
    it is registered with a transport: a peer may write to it (see `Transport.close`).
    """

    buffer: memoryview
    block_bytes: int
    blocks: int

    def __post_init__(self) -> None:
        view = self.buffer
        if view.readonly or not view.c_contiguous or view.format != "B" or view.ndim != 1:
            raise BugError("a region's buffer must be writable, contiguous, flat bytes")
        if self.block_bytes < 1 or self.blocks < 1:
            raise BugError(f"a region needs blocks, not {self.blocks} of {self.block_bytes} bytes")
        if view.nbytes != self.block_bytes * self.blocks:
            raise BugError(
                f"a region of {self.blocks} blocks of {self.block_bytes} bytes needs "
                f"{self.blocks * self.block_bytes} bytes, not {view.nbytes}"
            )

    @property
    def address(self) -> int:
        """Where it starts in this process's memory."""
        return int(np.frombuffer(self.buffer, dtype=np.uint8).ctypes.data)

    def block(self, index: int) -> memoryview:
        """The bytes of one block; writing to it writes to the pool. Raises BugError."""
        return self.run(index, 1)

    def run(self, first: int, count: int) -> memoryview:
        """The bytes of `count` neighbouring blocks from `first` on. Raises BugError."""
        if not (first >= 0 and count > 0 and first + count <= self.blocks):
            raise BugError(f"blocks {first}..{first + count - 1} of a region of {self.blocks}")
        start = first * self.block_bytes
        return self.buffer[start : start + count * self.block_bytes]


def region_at(address: int, block_bytes: int, blocks: int) -> Region:
    """The region over memory that someone else owns, such as a torch tensor's (`data_ptr()`).

    The caller keeps the owner alive as long as the region is registered or in use.
    """
    raw = (ctypes.c_ubyte * (block_bytes * blocks)).from_address(address)
    return Region(memoryview(raw).cast("B"), block_bytes, blocks)


def allocate_region(block_bytes: int, blocks: int) -> Region:
    """A zeroed region of its own."""
    return Region(memoryview(bytearray(block_bytes * blocks)), block_bytes, blocks)


def block_runs(indices: list[int]) -> list[tuple[int, int]]:
    """Neighbours in the list that are neighbours in the pool, as (first block, count)."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and index == runs[-1][0] + runs[-1][1]:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((index, 1))
    return runs
