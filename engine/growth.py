"""Blocks for the next tokens of running groups; preemption where there aren't enough."""

from collections.abc import Callable
from dataclasses import dataclass

from core.ids import Attempt
from engine.block_tables import BlockTables
from engine.group_queue import GroupQueue
from engine.sequence import Group, Sequence


@dataclass(frozen=True, slots=True)
class Grown:
    """`copies` (source, target) to make before the next forward, for the attempts in `copied`;
    `stalled` sequences found no block: they keep what they have and skip the step."""

    copies: tuple[tuple[int, int], ...]
    copied: tuple[Attempt, ...]
    stalled: frozenset[Sequence]


def grow_running(
    running: GroupQueue, tables: BlockTables, preempt: Callable[[Group], None]
) -> Grown:
    """Give every running sequence the blocks for its known tokens, tightest deadline first.

    Where blocks run out, the group with the loosest deadline gives up its own (`preempt` takes it
    out of `running` and frees them), provided it is looser than the one in need: else that one
    stalls. So the tightest group always advances, unless all blocks are with groups that aren't
    running (receiving, held for a hand-over, quarantined), which end without its help.

    Groups still at their trunk need nothing: they got its blocks when they were admitted.
    """
    copies: list[tuple[int, int]] = []
    copied: list[Attempt] = []
    stalled: set[Sequence] = set()
    for group in tuple(running):
        if not (group.grows and group.forked and group.leader.table):
            continue  # without a table it was preempted in this very round
        for sequence in group.live:
            missing = tables.missing(sequence)
            if not missing:
                continue
            while missing > tables.pool.free_blocks:
                victim = _loosest_after(running, group)
                if victim is None:
                    break
                preempt(victim)
            if missing > tables.pool.free_blocks:
                stalled.add(sequence)
                continue
            made = tables.grow(group, sequence)
            copies += made
            copied += [group.attempt] * len(made)
    return Grown(tuple(copies), tuple(copied), frozenset(stalled))


def _loosest_after(running: GroupQueue, group: Group) -> Group | None:
    for candidate in reversed(running):
        if candidate is group:
            return None
        if candidate.grows:
            return candidate
    return None
