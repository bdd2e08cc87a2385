"""Which block of the KV pool belongs to whom: reference counts, owners, states, the free list.

Pure bookkeeping over block numbers 0 … total - 1; the memory itself is the model runner's. The pool
knows no watermark and no policy: whoever allocates asks `free_blocks` first.

    free ──allocate──> owned ──free (last reference)──> free
    free ──reserve──> receiving ──own──> owned
                      receiving ──free──> free            (no peer can write to it)
                      receiving ──quarantine──> quarantined ──end_quarantine──> free

A receiving or quarantined block is a possible target of a peer's one-sided write: it has exactly
one reference and is never shared. Reference-counted paging follows vLLM (Kwon et al. 2023).
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType

from core.errors import BugError, PoolCorrupt


class BlockState(StrEnum):
    FREE = "free"
    OWNED = "owned"
    RECEIVING = "receiving"
    QUARANTINED = "quarantined"


_NOTHING: Mapping[int, int] = MappingProxyType({})


class BlockPool:
    """`total` blocks. Every reference is held in some owner's name (an attempt, later a cache), so
    that a free by anybody else, or once too often, is found at once.

    Raises, all methods: BugError for a move the block's state doesn't have or a reference the owner
    doesn't hold; nothing has changed then.
    """

    def __init__(self, total: int) -> None:
        if total < 1:
            raise BugError(f"a pool needs at least one block, not {total}")
        self.total = total
        self._free = list(range(total - 1, -1, -1))  # LIFO: the last freed is the warmest in cache
        self._references = [0] * total
        self._states = [BlockState.FREE] * total
        self._held: dict[Hashable, dict[int, int]] = {}
        self._counts = dict.fromkeys(BlockState, 0)
        self._counts[BlockState.FREE] = total

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    def count(self, state: BlockState) -> int:
        """Blocks in `state`; a shared block counts once."""
        return self._counts[state]

    def state(self, block: int) -> BlockState:
        return self._states[block]

    def references(self, block: int) -> int:
        return self._references[block]

    def held_by(self, owner: Hashable) -> Mapping[int, int]:
        """The owner's blocks with its number of references to each: a view, don't keep it."""
        return MappingProxyType(self._held[owner]) if owner in self._held else _NOTHING

    @property
    def owners(self) -> frozenset[Hashable]:
        """Everybody who holds a block."""
        return frozenset(self._held)

    def allocate(self, owner: Hashable, count: int) -> tuple[int, ...]:
        """Take `count` free blocks as owned, one reference each."""
        return self._take(owner, count, BlockState.OWNED)

    def reserve(self, owner: Hashable, count: int) -> tuple[int, ...]:
        """Take `count` free blocks as receiving: a peer is going to write to them."""
        return self._take(owner, count, BlockState.RECEIVING)

    def share(self, owner: Hashable, blocks: Iterable[int]) -> None:
        """Add a reference of `owner` to each of these owned blocks (a fork, a prefix hit)."""
        blocks = tuple(blocks)
        self._demand(blocks, BlockState.OWNED, "share")
        held = self._held.setdefault(owner, {}) if blocks else {}
        for block in blocks:
            self._references[block] += 1
            held[block] = held.get(block, 0) + 1

    def free(self, owner: Hashable, blocks: Iterable[int]) -> None:
        """Drop one reference of `owner` per listed block (owned or receiving); without references
        a block is free. The first listed are handed out first again."""
        blocks = tuple(blocks)
        self._demand_held(owner, blocks)
        for block in blocks:
            if self._states[block] not in (BlockState.OWNED, BlockState.RECEIVING):
                raise BugError(f"free of block {block}, which is {self._states[block]}")
        for block in reversed(blocks):
            self._drop(owner, block)

    def own(self, owner: Hashable, blocks: Iterable[int]) -> None:
        """Receiving → owned: the content is verified and the peer writes no more."""
        self._turn(owner, tuple(blocks), BlockState.RECEIVING, BlockState.OWNED)

    def quarantine(self, owner: Hashable, blocks: Iterable[int]) -> None:
        """Receiving → quarantined: nobody wants the content, but the peer may still write."""
        self._turn(owner, tuple(blocks), BlockState.RECEIVING, BlockState.QUARANTINED)

    def end_quarantine(self, owner: Hashable) -> int:
        """Free all quarantined blocks of `owner`: no write can land any more. Returns how many."""
        blocks = [
            block
            for block in self._held.get(owner, {})
            if self._states[block] is BlockState.QUARANTINED
        ]
        for block in blocks:
            self._drop(owner, block)
        return len(blocks)

    def check_integrity(self) -> None:
        """Prove that every block has exactly one story.

        Raises:
            PoolCorrupt: with the first contradiction found.
        """
        held: Counter[int] = Counter()
        for owner, blocks in self._held.items():
            if not blocks:
                raise PoolCorrupt(f"{owner} holds an empty set of blocks")
            held.update(blocks)
        free = set(self._free)
        if len(free) != len(self._free):
            raise PoolCorrupt(f"the free list has {len(self._free) - len(free)} block(s) twice")
        for block, (references, state) in enumerate(
            zip(self._references, self._states, strict=True)
        ):
            story = (
                f"block {block} is {state} with {references} reference(s), {held[block]} of them "
                f"held by an owner, {'in' if block in free else 'not in'} the free list"
            )
            is_free = state is BlockState.FREE
            if references != held[block] or (references == 0) != is_free:
                raise PoolCorrupt(story)
            if is_free != (block in free):
                raise PoolCorrupt(story)
            if state in (BlockState.RECEIVING, BlockState.QUARANTINED) and references != 1:
                raise PoolCorrupt(story)
        if len(self._states) != self.total or free - set(range(self.total)):
            raise PoolCorrupt(f"blocks beyond the pool's {self.total}")
        counts = Counter(self._states)
        if any(counts[state] != count for state, count in self._counts.items()):
            raise PoolCorrupt(f"counted {dict(self._counts)} but there are {dict(counts)}")

    def _take(self, owner: Hashable, count: int, state: BlockState) -> tuple[int, ...]:
        if not 0 <= count <= len(self._free):
            raise BugError(f"{owner} asks for {count} block(s) of {len(self._free)} free ones")
        if not count:
            return ()
        blocks = tuple(self._free[: -count - 1 : -1])
        del self._free[-count:]
        held = self._held.setdefault(owner, {})
        for block in blocks:
            self._references[block] = 1
            self._states[block] = state
            held[block] = 1
        self._counts[BlockState.FREE] -= count
        self._counts[state] += count
        return blocks

    def _turn(
        self, owner: Hashable, blocks: tuple[int, ...], before: BlockState, after: BlockState
    ) -> None:
        self._demand_held(owner, blocks)
        self._demand(blocks, before, f"turn to {after}")
        for block in blocks:
            self._states[block] = after
        self._counts[before] -= len(blocks)
        self._counts[after] += len(blocks)

    def _drop(self, owner: Hashable, block: int) -> None:
        held = self._held[owner]
        held[block] -= 1
        if not held[block]:
            del held[block]
            if not held:
                del self._held[owner]
        self._references[block] -= 1
        if not self._references[block]:
            self._counts[self._states[block]] -= 1
            self._counts[BlockState.FREE] += 1
            self._states[block] = BlockState.FREE
            self._free.append(block)

    def _demand(self, blocks: tuple[int, ...], state: BlockState, move: str) -> None:
        for block in blocks:
            if not 0 <= block < self.total or self._states[block] is not state:
                now = self._states[block] if 0 <= block < self.total else "not in the pool"
                raise BugError(f"{move} of block {block}, which is {now} and not {state}")

    def _demand_held(self, owner: Hashable, blocks: tuple[int, ...]) -> None:
        held = self._held.get(owner, {})
        for block, times in Counter(blocks).items():
            if held.get(block, 0) < times:
                raise BugError(
                    f"{owner} gives up {times} reference(s) to block {block} but holds "
                    f"{held.get(block, 0)}"
                )
