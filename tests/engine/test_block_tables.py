import pytest

from core.errors import PoolCorrupt
from engine.block_pool import BlockPool, BlockState
from engine.block_tables import BlockTables
from engine.group_lifecycle import GroupAction, GroupEvent
from engine.sequence import Group, Purpose
from tests.engine.engine_cases import make_request


def make_tables(prompt: int, choices: int = 3) -> tuple[BlockTables, Group]:
    """A group whose trunk is computed in ten blocks' pool."""
    group = Group(
        make_request(0, prompt, choices=choices),
        Purpose.LOCAL,
        now_s=0.0,
        arrival=0,
        eos_token_ids=(),
        max_context=500,
    )
    tables = BlockTables(BlockPool(10), 16)
    tables.take(group, prompt)
    group.life.fire(GroupEvent.START, 0.0)
    group.leader.advance(prompt)
    return tables, group


def check(tables: BlockTables, group: Group) -> None:
    tables.check_integrity({group.attempt: group})


def test_fork_shares_and_growth_makes_the_tail_private() -> None:
    tables, group = make_tables(20)
    tables.fork(group)
    check(tables, group)
    full, tail = group.leader.table
    assert [tables.pool.references(block) for block in (full, tail)] == [3, 3]
    copies = []
    for sequence, missing in zip(group.live, (1, 1, 0), strict=True):
        sequence.output.append(1)
        assert tables.missing(sequence) == missing
        copies += tables.grow(group, sequence)
        check(tables, group)
    assert [source for source, _ in copies] == [tail, tail]
    assert len({sequence.table[1] for sequence in group.live}) == 3
    assert {sequence.table[0] for sequence in group.live} == {full}
    assert tables.pool.free_blocks == 10 - 4


def test_fork_at_a_block_border_shares_all_and_copies_nothing() -> None:
    tables, group = make_tables(32)
    tables.fork(group)
    for sequence in group.live:
        sequence.output.append(1)
        assert tables.missing(sequence) == 1
        assert tables.grow(group, sequence) == []
    check(tables, group)
    assert tables.pool.free_blocks == 10 - 2 - 3


def test_choices_end_one_by_one() -> None:
    tables, group = make_tables(20)
    tables.fork(group)
    for left in (8, 8, 10):
        tables.end(group, group.leader)
        assert tables.pool.free_blocks == left
        check(tables, group)
    assert group.live == []


def test_receiving_blocks_are_owned_or_fenced() -> None:
    for action, state in (
        (GroupAction.OWN, BlockState.OWNED),
        (GroupAction.FENCE, BlockState.QUARANTINED),
    ):
        tables, group = make_tables(20)
        tables.carry_out(group, GroupAction.FREE)
        tables.reserve(group, 33)
        assert tables.pool.count(BlockState.RECEIVING) == 3
        tables.carry_out(group, action)
        assert tables.pool.count(state) == 3
    tables.carry_out(group, GroupAction.UNFENCE)
    assert tables.pool.free_blocks == 10


def test_integrity_check_compares_tables_and_pool() -> None:
    tables, group = make_tables(20)
    check(tables, group)
    with pytest.raises(PoolCorrupt, match="that are gone"):
        tables.check_integrity({})
    group.leader.table = group.leader.table[:1]
    with pytest.raises(PoolCorrupt, match="has tables"):
        check(tables, group)
    tables, group = make_tables(20)
    group.leader.computed = 33
    with pytest.raises(PoolCorrupt, match="computed"):
        check(tables, group)
    tables, group = make_tables(20)
    tables.pool._states[group.leader.table[0]] = BlockState.RECEIVING
    tables.pool._counts[BlockState.RECEIVING] += 1
    tables.pool._counts[BlockState.OWNED] -= 1
    with pytest.raises(PoolCorrupt, match="aren't"):
        check(tables, group)
