"""How busy an engine is."""

from collections.abc import Iterable
from dataclasses import dataclass

from engine.block_pool import BlockPool, BlockState
from engine.group_lifecycle import GroupState
from engine.sequence import Group, Purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """The engine's part of `wire.messages.WorkerLoad`, under the same names: a role makes that of
    `dataclasses.asdict(load)` and its transfers' figures. Counters only grow."""

    running: int
    """Attempts with blocks that are being computed or received here."""
    waiting: int
    """Attempts without blocks: new or preempted."""
    prefill_tokens_queued: int
    decode_batch: int
    """Sequences that have left their prefill behind."""
    decode_context_tokens: int
    blocks_free: int
    blocks_owned: int
    blocks_receiving: int
    blocks_quarantined: int
    preemptions_total: int
    steps_total: int
    step_seconds_total: float
    integrity_error: str = ""
    idle_checks_total: int = 0


def measure_load(
    *,
    running: Iterable[Group],
    receiving: Iterable[Group],
    waiting: Iterable[Group],
    pool: BlockPool,
    preemptions_total: int,
    steps_total: int,
    step_seconds_total: float,
) -> EngineLoad:
    """Count; O(attempts)."""
    running, waiting = tuple(running), tuple(waiting)
    computing = [(group, sequence) for group in running for sequence in group.computing()]
    decoding = [sequence for _, sequence in computing if sequence.decoding]
    queued = sum(
        group.target(sequence) - sequence.computed
        for group, sequence in computing
        if not sequence.decoding
    )
    queued += sum(
        group.trunk
        for group in waiting
        if group.purpose is not Purpose.REMOTE or group.state is GroupState.PREEMPTED
    )
    return EngineLoad(
        running=len(running) + len(tuple(receiving)),
        waiting=len(waiting),
        prefill_tokens_queued=queued,
        decode_batch=len(decoding),
        decode_context_tokens=sum(sequence.length for sequence in decoding),
        blocks_free=pool.free_blocks,
        blocks_owned=pool.count(BlockState.OWNED),
        blocks_receiving=pool.count(BlockState.RECEIVING),
        blocks_quarantined=pool.count(BlockState.QUARANTINED),
        preemptions_total=preemptions_total,
        steps_total=steps_total,
        step_seconds_total=step_seconds_total,
    )
