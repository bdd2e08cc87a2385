"""Every block has one story, whatever is done in whatever order."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core.errors import BugError, PoolCorrupt
from engine.block_pool import BlockPool, BlockState

OWNERS = ("a", "b", "c")


def test_last_freed_is_first_out() -> None:
    pool = BlockPool(8)
    first = pool.allocate("a", 3)
    assert first == (0, 1, 2)
    pool.free("a", first)
    assert pool.allocate("a", 3) == first


def test_shared_block_is_free_after_its_last_reference() -> None:
    pool = BlockPool(4)
    blocks = pool.allocate("a", 2)
    pool.share("b", blocks)
    pool.share("a", blocks[:1])
    pool.free("a", blocks)
    assert pool.free_blocks == 2
    pool.free("b", blocks)
    assert (pool.free_blocks, pool.references(blocks[0])) == (3, 1)
    pool.free("a", blocks[:1])
    assert pool.free_blocks == 4
    pool.check_integrity()


def test_quarantined_blocks_come_back_only_at_its_end() -> None:
    pool = BlockPool(4)
    blocks = pool.reserve("a", 3)
    pool.quarantine("a", blocks)
    assert pool.count(BlockState.QUARANTINED) == 3
    with pytest.raises(BugError):
        pool.free("a", blocks)
    with pytest.raises(BugError):
        pool.own("a", blocks)
    with pytest.raises(BugError):
        pool.allocate("b", 2)
    assert pool.end_quarantine("b") == 0
    assert pool.end_quarantine("a") == 3
    assert pool.free_blocks == 4
    pool.check_integrity()


def test_wrong_moves_raise_and_change_nothing() -> None:
    pool = BlockPool(6)
    owned = pool.allocate("a", 2)
    receiving = pool.reserve("b", 2)
    wrong: list[Callable[[], object]] = [
        lambda: pool.free("a", (owned[0], owned[0])),
        lambda: pool.free("b", owned),
        lambda: pool.free("a", (5,)),
        lambda: pool.share("a", receiving),
        lambda: pool.share("a", (5,)),
        lambda: pool.share("a", (99,)),
        lambda: pool.own("a", receiving),
        lambda: pool.own("a", owned),
        lambda: pool.quarantine("a", owned),
        lambda: pool.allocate("a", 3),
        lambda: pool.reserve("a", -1),
    ]
    for move in wrong:
        with pytest.raises(BugError):
            move()
        pool.check_integrity()
        assert (pool.free_blocks, dict(pool.held_by("a"))) == (2, dict.fromkeys(owned, 1))
    pool.free("a", owned)
    with pytest.raises(BugError, match="gives up 1 reference"):
        pool.free("a", owned)


def test_integrity_check_finds_each_kind_of_damage() -> None:
    def damaged() -> BlockPool:
        pool = BlockPool(4)
        pool.allocate("a", 2)
        return pool

    pool = damaged()
    pool._free.append(pool._free[0])
    with pytest.raises(PoolCorrupt, match="twice"):
        pool.check_integrity()
    pool = damaged()
    pool._free.append(0)
    with pytest.raises(PoolCorrupt, match="block 0 is owned"):
        pool.check_integrity()
    pool = damaged()
    pool._references[0] = 2
    with pytest.raises(PoolCorrupt, match="2 reference"):
        pool.check_integrity()
    pool = damaged()
    pool._free.pop()
    with pytest.raises(PoolCorrupt, match="not in the free list"):
        pool.check_integrity()
    pool = damaged()
    pool._states[1] = BlockState.RECEIVING
    with pytest.raises(PoolCorrupt, match="counted"):
        pool.check_integrity()


class PoolMachine(RuleBasedStateMachine):
    """Any order of legal moves against a model of plain dictionaries."""

    TOTAL = 12

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(self.TOTAL)
        self.owned = {owner: Counter[int]() for owner in OWNERS}
        self.receiving: dict[str, list[int]] = {owner: [] for owner in OWNERS}
        self.quarantined: dict[str, list[int]] = {owner: [] for owner in OWNERS}

    def _used(self) -> set[int]:
        used = {block for owned in self.owned.values() for block in owned.elements()}
        for lists in (self.receiving, self.quarantined):
            used |= {block for blocks in lists.values() for block in blocks}
        return used

    @rule(owner=st.sampled_from(OWNERS), count=st.integers(0, 5), receive=st.booleans())
    def take(self, owner: str, count: int, receive: bool) -> None:
        take = self.pool.reserve if receive else self.pool.allocate
        if count > self.TOTAL - len(self._used()):
            with pytest.raises(BugError):
                take(owner, count)
            return
        used = self._used()
        blocks = take(owner, count)
        assert len(set(blocks)) == count
        assert not used & set(blocks)
        if receive:
            self.receiving[owner] += blocks
        else:
            self.owned[owner].update(blocks)

    @precondition(lambda self: any(self.owned.values()))
    @rule(data=st.data(), owner=st.sampled_from(OWNERS))
    def share(self, data: st.DataObject, owner: str) -> None:
        blocks = sorted({block for owned in self.owned.values() for block in owned})
        chosen = data.draw(st.lists(st.sampled_from(blocks), unique=True, min_size=1))
        self.pool.share(owner, chosen)
        self.owned[owner].update(chosen)

    @rule(data=st.data(), owner=st.sampled_from(OWNERS))
    def free(self, data: st.DataObject, owner: str) -> None:
        held = sorted(self.owned[owner].elements())
        if not held:
            with pytest.raises(BugError):
                self.pool.free("nobody", (0,))
            return
        chosen = data.draw(st.lists(st.sampled_from(held), unique=True))
        self.pool.free(owner, chosen)
        self.owned[owner] -= Counter(chosen)

    @rule(owner=st.sampled_from(OWNERS), end=st.sampled_from(["own", "free", "quarantine"]))
    def end_receiving(self, owner: str, end: str) -> None:
        blocks, self.receiving[owner] = self.receiving[owner], []
        getattr(self.pool, end)(owner, blocks)
        if end == "own":
            self.owned[owner].update(blocks)
        elif end == "quarantine":
            self.quarantined[owner] += blocks

    @rule(owner=st.sampled_from(OWNERS))
    def end_quarantine(self, owner: str) -> None:
        assert self.pool.end_quarantine(owner) == len(self.quarantined[owner])
        self.quarantined[owner] = []

    @invariant()
    def sound(self) -> None:
        self.pool.check_integrity()
        assert self.pool.free_blocks == self.TOTAL - len(self._used())
        for owner in OWNERS:
            held = self.owned[owner] + Counter(self.receiving[owner] + self.quarantined[owner])
            assert Counter(self.pool.held_by(owner)) == held


PoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestPoolMachine = PoolMachine.TestCase
