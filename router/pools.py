"""Which configured pools serve a prompt, by its length in tokens.

Every length must find a decode-capable pool: a hole is refused at start. Prefill pools may leave
lengths out on purpose (short prompts, say): those are prefilled on the decode worker, and
`prefilled_locally` tells which they are. Pools may overlap; then the prediction chooses.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from core.config import Config, PoolConfig, PoolRole
from core.errors import ConfigError
from wire.messages import Role

ROLES_OF: dict[PoolRole, frozenset[Role]] = {
    PoolRole.PREFILL: frozenset({Role.PREFILL}),
    PoolRole.DECODE: frozenset({Role.DECODE}),
    PoolRole.BOTH: frozenset({Role.PREFILL, Role.DECODE}),
}


@dataclass(frozen=True, slots=True)
class LengthRange:
    """Prompt lengths from `first` to `last` tokens, both included; None is without end."""

    first: int
    last: int | None

    def __str__(self) -> str:
        return (
            f"{self.first} tokens and more"
            if self.last is None
            else f"{self.first} to " + (f"{self.last} tokens")
        )


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of prompt lengths that the same pools serve; names in configured order."""

    lengths: LengthRange
    prefill: tuple[str, ...]
    decode: tuple[str, ...]


class Pools:
    """The configured pools, indexed by prompt length.

    Raises:
        ConfigError: some prompt length is served by no decode-capable pool, or two pools' KV
            blocks differ in size.
    """

    def __init__(self, config: Config) -> None:
        self.by_name = {pool.name: pool for pool in config.pools}
        limit = config.model.max_context
        # A pool without replicas serves nobody.
        pools = [pool for pool in config.pools if pool.replicas]
        self.segments = _segments(pools, limit)
        self._firsts = [segment.lengths.first for segment in self.segments]
        self._refuse_holes()
        self._refuse_unequal_blocks(config)

    def index_of(self, prompt_tokens: int) -> int:
        """Index in `segments` of the one that holds this length; beyond max_context, the last."""
        return max(0, bisect_right(self._firsts, prompt_tokens) - 1)

    @property
    def prefilled_locally(self) -> tuple[LengthRange, ...]:
        """Lengths that no prefill-capable pool serves although there are such pools."""
        if not any(segment.prefill for segment in self.segments):
            return ()
        return _merged(s.lengths for s in self.segments if not s.prefill)

    def _refuse_holes(self) -> None:
        holes = _merged(s.lengths for s in self.segments if not s.decode)
        if holes:
            raise ConfigError(
                "pools",
                f"no pool with role decode or both matches prompts of "
                f"{' and '.join(map(str, holes))}; widen a pool's match",
            )

    def _refuse_unequal_blocks(self, config: Config) -> None:
        first = config.pools[0]
        want = config.engine_of(first).block_tokens
        for index, pool in enumerate(config.pools):
            have = config.engine_of(pool).block_tokens
            if have != want:
                raise ConfigError(
                    f"pools[{index}].engine.block_tokens",
                    f"'{pool.name}' has {have} and '{first.name}' {want}; "
                    "KV moves between pools in whole blocks, so they must be equal",
                )


def _segments(pools: Iterable[PoolConfig], limit: int | None) -> tuple[Segment, ...]:
    """Cut the lengths from 1 to `limit` where any pool's rule begins or ends."""
    pools = tuple(pools)
    cuts = {1}
    for pool in pools:
        cuts.add(max(1, pool.match.min_prompt_tokens))
        if pool.match.max_prompt_tokens is not None:
            cuts.add(pool.match.max_prompt_tokens + 1)
    firsts = sorted(cut for cut in cuts if limit is None or cut <= limit)
    lasts = [after - 1 for after in firsts[1:]] + [limit]
    return tuple(
        Segment(
            LengthRange(first, last),
            prefill=tuple(p.name for p in pools if _serves(p, Role.PREFILL, first)),
            decode=tuple(p.name for p in pools if _serves(p, Role.DECODE, first)),
        )
        for first, last in zip(firsts, lasts, strict=True)
    )


def _serves(pool: PoolConfig, role: Role, prompt_tokens: int) -> bool:
    match = pool.match
    return (
        role in ROLES_OF[pool.role]
        and match.min_prompt_tokens <= prompt_tokens
        and (match.max_prompt_tokens is None or prompt_tokens <= match.max_prompt_tokens)
    )


def _merged(ranges: Iterable[LengthRange]) -> tuple[LengthRange, ...]:
    """Neighbouring ranges joined; `ranges` come in order."""
    merged: list[LengthRange] = []
    for this in ranges:
        if merged and merged[-1].last is not None and merged[-1].last + 1 == this.first:
            merged[-1] = LengthRange(merged[-1].first, this.last)
        else:
            merged.append(this)
    return tuple(merged)
