"""Who gets blocks next, and who never can.

Order: the return of preempted groups, then all others by deadline (and arrival), without
overtaking, so that a large request isn't starved by small ones. Deadlines are absolute, so an old
request becomes the tightest in time. Growth of running groups comes before all of it
(`engine/growth.py`).
"""

import math
from collections.abc import Callable

from core.config import EngineConfig
from engine.block_tables import BlockTables
from engine.group_queue import GroupQueue
from engine.sequence import Group, Purpose, Sequence

TokensOf = Callable[[Sequence], int]


class Admission:
    """The rule that lets the heads of the two queues of groups without blocks in."""

    def __init__(
        self, tables: BlockTables, config: EngineConfig, max_context: int, vocab: int | None
    ) -> None:
        self._tables = tables
        self._max_batch = config.max_batch
        self._max_context = max_context
        self._vocab = vocab
        self._watermark_blocks = math.ceil(config.watermark * tables.pool.total)

    def refusal(self, group: Group) -> str | None:
        """Why this group can never be served here, or None where it can."""
        tokens = group.trunk
        if not tokens:
            return "the prompt is empty"
        if self._vocab is not None and not _known(group, self._vocab):
            return f"a token isn't in the model's vocabulary of {self._vocab}"
        longest = max(sequence.length for sequence in group.live)
        if longest >= self._max_context:
            return (
                f"{longest} tokens leave no room for another one in a context of "
                f"{self._max_context}"
            )
        if group.purpose is not Purpose.LOCAL and not group.hands_over:
            return "several choices with tokens of their own can't be handed over"
        most = self._tables.blocks_for(tokens) if not group.grows else self._most_blocks(group)
        total = self._tables.pool.total
        if most > total:
            return f"it may need {most} KV blocks, and there are {total} in all"
        return None

    def first_tokens(self, group: Group) -> int:
        """Positions the leader's blocks must cover from the start: all that is computed, and the
        first output token that is computed here."""
        return self._next_tokens(group, group.trunk) if group.grows else group.trunk

    def next_to_start(
        self, preempted: GroupQueue, waiting: GroupQueue, slots_taken: int
    ) -> Group | None:
        """The group whose turn it is, if there is room for it now.

        Args:
            slots_taken: live choices of the admitted groups that decode here, now or soon.
        """
        group = preempted.head or waiting.head
        return group if group is not None and self._fits(group, slots_taken) else None

    def _fits(self, group: Group, slots_taken: int) -> bool:
        if group.grows and slots_taken and slots_taken + len(group.live) > self._max_batch:
            return False
        # The watermark is for the growth of others; where there are none it would be waste, and
        # keep out a group that needs the whole pool.
        margin = self._watermark_blocks if slots_taken else 0
        return self._blocks_soon(group) + margin <= self._tables.pool.free_blocks

    def _blocks_soon(self, group: Group) -> int:
        """Blocks for its first steps: the trunk's, and each choice's first own ones."""
        if not group.grows:
            return self._tables.blocks_for(group.trunk)
        return self._blocks(group, lambda sequence: self._next_tokens(group, sequence.length))

    def _most_blocks(self, group: Group) -> int:
        """Blocks at the end of the longest answer it may give."""
        return self._blocks(group, lambda _: self._last_tokens(group))

    def _blocks(self, group: Group, tokens_of: TokensOf) -> int:
        if len(group.live) == 1:
            return self._tables.blocks_for(tokens_of(group.leader))
        shared = group.trunk // self._tables.block_tokens  # the full blocks of the trunk
        own = (self._tables.blocks_for(tokens_of(sequence)) - shared for sequence in group.live)
        return shared + sum(own)

    def _next_tokens(self, group: Group, tokens: int) -> int:
        return min(tokens + 1, self._last_tokens(group))

    def _last_tokens(self, group: Group) -> int:
        """Positions with KV in the end: the very last token drawn never gets any."""
        longest = len(group.request.prompt) + group.request.sampling.max_tokens
        return min(longest, self._max_context) - 1


def _known(group: Group, vocab: int) -> bool:
    """Whether the model has an embedding for each of the group's tokens: one that it hasn't would
    end the whole worker."""
    parts = (group.request.prompt, *(sequence.output for sequence in group.live))
    return all(min(part) >= 0 and max(part) < vocab for part in parts if part)
