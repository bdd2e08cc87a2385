"""The groups' block tables over one pool: taking, growing, forking, giving back."""

from collections import Counter
from collections.abc import Mapping

from core.errors import PoolCorrupt
from core.ids import Attempt
from engine.block_pool import BlockPool, BlockState
from engine.group_lifecycle import GroupAction, GroupState
from engine.sequence import Group, Sequence

_STATE_OF_BLOCKS = {
    GroupState.RECEIVING: BlockState.RECEIVING,
    GroupState.QUARANTINED: BlockState.QUARANTINED,
}


class BlockTables:
    """Keeps every live sequence's `table` and the pool's references in agreement.

    Ownership: all blocks of a group are held in the name of its attempt, with one reference per
    table they occur in.
    """

    def __init__(self, pool: BlockPool, block_tokens: int) -> None:
        self.pool = pool
        self.block_tokens = block_tokens

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)

    def take(self, group: Group, tokens: int) -> None:
        """Give the leader blocks for `tokens` positions, to be computed here."""
        group.leader.table = self.pool.allocate(group.attempt, self.blocks_for(tokens))

    def reserve(self, group: Group, tokens: int) -> None:
        """Give the leader blocks for `tokens` positions, for a peer to write to."""
        group.leader.table = self.pool.reserve(group.attempt, self.blocks_for(tokens))

    def missing(self, sequence: Sequence) -> int:
        """Blocks to allocate before all known tokens of `sequence` can be computed."""
        more = self.blocks_for(sequence.length) - len(sequence.table)
        return max(0, more) + (1 if self._writes_shared(sequence) else 0)

    def grow(self, group: Group, sequence: Sequence) -> list[tuple[int, int]]:
        """Allocate what is missing. Returns the copies (source, target) to make before the next
        forward: a shared block about to be written to is replaced by a private one."""
        copies = []
        if self._writes_shared(sequence):
            index = sequence.computed // self.block_tokens
            shared = sequence.table[index]
            (private,) = self.pool.allocate(group.attempt, 1)
            table = list(sequence.table)
            table[index] = private
            sequence.table = tuple(table)
            # The source can't be handed out before the copy is made: another choice holds it.
            self.pool.free(group.attempt, (shared,))
            copies.append((shared, private))
        sequence.shares_tail = False
        more = self.blocks_for(sequence.length) - len(sequence.table)
        if more > 0:
            sequence.table += self.pool.allocate(group.attempt, more)
        return copies

    def fork(self, group: Group) -> None:
        """The trunk is computed: give each other live choice the same blocks, by reference. The
        partial last one is copied when it's about to be written to (`grow`)."""
        leader = group.leader
        shared = leader.table[: self.blocks_for(leader.computed)]
        partial = leader.computed % self.block_tokens != 0
        leader.shares_tail = partial
        for sequence in group.live[1:]:
            self.pool.share(group.attempt, shared)
            sequence.table = shared
            sequence.computed = leader.computed
            sequence.shares_tail = partial
        group.forked = True

    def end(self, group: Group, sequence: Sequence) -> None:
        """A choice is over: give back its references and take it out of the live ones."""
        self.pool.free(group.attempt, sequence.table)
        sequence.table = ()
        group.live.remove(sequence)

    def carry_out(self, group: Group, action: GroupAction) -> None:
        """What the group's life cycle demands for its blocks."""
        match action:
            case GroupAction.FREE:
                for sequence in group.live:
                    self.pool.free(group.attempt, sequence.table)
                group.forget_kv()
            case GroupAction.OWN:
                self.pool.own(group.attempt, group.leader.table)
            case GroupAction.FENCE:
                self.pool.quarantine(group.attempt, group.leader.table)
            case GroupAction.UNFENCE:
                self.pool.end_quarantine(group.attempt)
                group.forget_kv()

    def check_integrity(self, groups: Mapping[Attempt, Group]) -> None:
        """Prove that tables and pool agree, and that the pool is sound.

        Raises:
            PoolCorrupt: with the first contradiction found.
        """
        self.pool.check_integrity()
        strangers = self.pool.owners - groups.keys()
        if strangers:
            raise PoolCorrupt(f"blocks held by groups that are gone: {sorted(map(str, strangers))}")
        for group in groups.values():
            tables = Counter(block for sequence in group.live for block in sequence.table)
            held = dict(self.pool.held_by(group.attempt))
            if tables != held:
                raise PoolCorrupt(
                    f"{group.attempt} ({group.state}) has tables {dict(tables)} but holds {held}"
                )
            state = _STATE_OF_BLOCKS.get(group.state, BlockState.OWNED)
            wrong = [block for block in held if self.pool.state(block) is not state]
            if wrong:
                raise PoolCorrupt(f"{group.attempt} is {group.state}; blocks {wrong} aren't")
            for sequence in group.live:
                covered = len(sequence.table) * self.block_tokens
                if not 0 <= sequence.computed <= min(covered, sequence.length):
                    raise PoolCorrupt(
                        f"{group.attempt} choice {sequence.choice}: {sequence.computed} tokens "
                        f"computed of {sequence.length}, blocks for {covered}"
                    )

    def _writes_shared(self, sequence: Sequence) -> bool:
        return (
            sequence.shares_tail
            and self.pool.references(sequence.table[sequence.computed // self.block_tokens]) > 1
        )
