"""One step's content within its budgets: tokens, sequences and predicted time.

Decodes first, then prefill chunks (Sarathi-Serve, Agrawal et al. 2024). A chunk is cut so that the
step is predicted to stay below `max_step_ms` and, where decodes are in it, below the tightest
`tpot_ms` among them: a prefill must not be felt as a pause in somebody's stream.
"""

from collections.abc import Iterable

from core.config import EngineConfig
from core.cost_model import CostModel
from engine.finish import banned_tokens
from engine.sequence import Group, Sequence
from engine.step_plan import Chunk, SampleSpec

MIN_CHUNK_TOKENS = 16
"""The step's first prefill chunk has this many tokens whatever the prediction says, so that
prefills go on beside decodes that alone use up the time."""

Member = tuple[Group, Sequence]


class StepBuilder:
    """Collects the chunks of one step. `members` are their groups and sequences, in order."""

    def __init__(
        self,
        config: EngineConfig,
        cost: CostModel,
        eos_token_ids: tuple[int, ...],
    ) -> None:
        self.chunks: list[Chunk] = []
        self.members: list[Member] = []
        self._cost = cost
        self._eos_token_ids = eos_token_ids
        self._tokens_left = config.step_tokens
        self._slots_left = config.max_batch
        self._limit_s = config.max_step_ms / 1_000
        self._decodes = 0
        self._decode_context_tokens = 0
        self._prefills: list[tuple[int, int]] = []

    def add_decodes(self, ready: list[Member], prefill_waits: bool) -> None:
        """Add the decodes, as many as fit; those that waited longest where not all do.

        Args:
            prefill_waits: whether to leave a chunk's worth of tokens and one place free.
        """
        room = min(self._slots_left, self._tokens_left)
        if prefill_waits and room > 1:
            kept_tokens = min(MIN_CHUNK_TOKENS, self._tokens_left // 2)
            room = max(1, min(self._slots_left - 1, self._tokens_left - kept_tokens))
        if len(ready) > room:
            ready = sorted(ready, key=lambda member: member[1].last_step)[:room]
        for group, sequence in ready:
            self._add(group, sequence, 1)
            self._decodes += 1
            self._decode_context_tokens += sequence.length
            self._limit_s = min(self._limit_s, group.tpot_s)

    def add_prefill(self, group: Group, sequence: Sequence) -> bool:
        """Add the next chunk of `sequence` towards its target, cut to what fits.

        Returns whether anything fitted; if not, the step is full for all prefills.
        """
        wanted = group.target(sequence) - sequence.computed
        tokens = min(wanted, self._tokens_left, self._tokens_in_time(sequence.computed))
        if tokens <= 0 or not self._slots_left:
            return False
        self._prefills.append((tokens, sequence.computed))
        self._add(group, sequence, tokens)
        return True

    def _tokens_in_time(self, context_tokens: int) -> int:
        """Prefill tokens that fit into what is left of the step's time."""
        start = [*self._prefills, (0, context_tokens)]
        seconds = self._cost.step_seconds(start, self._decodes, self._decode_context_tokens)
        tokens = self._cost.prefill.tokens_within(self._limit_s - seconds, context_tokens)
        return tokens if self._prefills else max(tokens, MIN_CHUNK_TOKENS)

    def _add(self, group: Group, sequence: Sequence, tokens: int) -> None:
        start, end = sequence.computed, sequence.computed + tokens
        self.chunks.append(
            Chunk(
                attempt=group.attempt,
                choice=sequence.choice,
                tokens=sequence.tokens(start, end),
                start=start,
                block_table=sequence.table,
                samples=self._samples(group, sequence, end),
            )
        )
        self.members.append((group, sequence))
        self._tokens_left -= tokens
        self._slots_left -= 1

    def _samples(self, group: Group, sequence: Sequence, end: int) -> tuple[SampleSpec, ...]:
        """What the logits after position `end` - 1 are for: the next token of the sequence, or of
        every choice that has the same tokens so far."""
        sequences = (sequence,) if group.forked else group.live
        return tuple(self._spec(group, each) for each in sequences if each.length == end)

    def _spec(self, group: Group, sequence: Sequence) -> SampleSpec:
        params = group.request.sampling
        history = params.uses_history
        position = len(sequence.output)
        return SampleSpec(
            attempt=group.attempt,
            choice=sequence.choice,
            position=position,
            params=params,
            prompt=group.request.prompt if history else (),
            output=tuple(sequence.output) if history else (),
            banned=banned_tokens(position, params, self._eos_token_ids),
        )


def build_step(
    running: Iterable[Group],
    stalled: frozenset[Sequence],
    config: EngineConfig,
    cost: CostModel,
    eos_token_ids: tuple[int, ...],
) -> StepBuilder:
    """Fill a step from the running groups, given in order of urgency; `stalled` sequences skip."""
    decodes: list[Member] = []
    prefills: list[Member] = []
    for group in running:
        for sequence in group.computing():
            if sequence not in stalled:
                (decodes if sequence.decoding else prefills).append((group, sequence))
    builder = StepBuilder(config, cost, eos_token_ids)
    builder.add_decodes(decodes, prefill_waits=bool(prefills))
    for group, sequence in prefills:
        if not builder.add_prefill(group, sequence):
            break
    return builder
