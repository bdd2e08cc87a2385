"""Measures a worker's cost model at its start, on its own runner and KV pool.

Few points, each as often as the time allows. Noise of a shared machine only ever adds time, so of
a point's repeats the least counts, and no point counts as slower than one that includes its work.
The rest is non-negative least squares on relative errors.
"""

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from core.clock import Clock
from core.cost_model import CostModel, DecodeCost, PrefillCost
from core.ids import Attempt, Epoch, RequestId
from core.kv_layout import KvLayout
from core.sampling import SamplingParams
from engine.step_plan import Chunk, SampleSpec, StepOutput, StepPlan

_log = logging.getLogger(__name__)

_ATTEMPT = Attempt(RequestId("profiling"), Epoch(1))
_PREFILLS = ((16, 0), (64, 0), (16, 512), (128, 0), (64, 1_024), (256, 0), (512, 0))
"""(new tokens, context before them), each row costlier than those before it."""
_DECODES = ((1, 32), (4, 32), (1, 1_024), (16, 32), (8, 1_024))
"""(sequences, context of each)."""
_NEEDED = 3
"""Points of each kind measured whatever the time: one per coefficient."""


class MeasuredRunner(Protocol):
    """What the profiler needs of a model runner."""

    @property
    def layout(self) -> KvLayout: ...

    @property
    def blocks(self) -> int: ...

    def run(self, plan: StepPlan) -> StepOutput: ...


@dataclass(eq=False)
class _Point:
    """One kind of step: `size` and `context` as in the tables above."""

    plan: StepPlan
    size: int
    context: int
    seconds: float = field(default=float("inf"))


def measure_cost(
    runner: MeasuredRunner,
    clock: Clock,
    *,
    step_tokens: int,
    max_batch: int,
    max_context: int,
    budget_s: float = 1.2,
) -> CostModel:
    """Run dummy steps and fit prefill and decode costs to them; writes over the whole pool.

    To be called before the pool holds anything. Takes about `budget_s`, or what the few points
    that are needed take where that is longer.

    Args:
        step_tokens, max_batch, max_context: limits of the steps that will be asked for.
    """
    capacity = min(max_context, runner.blocks * runner.layout.block_tokens)
    prefills = [
        _Point(_plan(runner, 1, size, context), size, context)
        for size, context in _PREFILLS
        if size <= step_tokens and size + context <= capacity
    ]
    decodes = [
        _Point(_plan(runner, size, 1, context - 1), size, context)
        for size, context in _DECODES
        if size <= max_batch and context <= capacity
    ]
    steps = _measure(runner, clock, prefills, decodes, budget_s)
    cost = CostModel(prefill=_fit_prefill(prefills), decode=_fit_decode(decodes))
    _log.info(
        "cost model of %d steps: prefill %.2f ms + %.3f ms/token + %.2f ns/token/context token; "
        "decode %.2f ms + %.3f ms/sequence + %.2f ns/context token",
        steps,
        cost.prefill.base_s * 1e3,
        cost.prefill.per_token_s * 1e3,
        cost.prefill.per_token_context_s * 1e9,
        cost.decode.base_s * 1e3,
        cost.decode.per_sequence_s * 1e3,
        cost.decode.per_context_token_s * 1e9,
    )
    return cost


def _plan(runner: MeasuredRunner, sequences: int, tokens: int, start: int) -> StepPlan:
    """A step of equal sequences. Each has blocks of its own as far as the pool goes, so that they
    share no cache lines; then they wrap around (all of it is scratch)."""
    blocks = runner.layout.blocks_for(start + tokens)
    tables = [
        tuple((index * blocks + i) % runner.blocks for i in range(blocks))
        for index in range(sequences)
    ]
    draw = SampleSpec(
        attempt=_ATTEMPT, choice=0, position=0, params=SamplingParams(temperature=0.0)
    )
    chunks = (
        Chunk(
            attempt=_ATTEMPT,
            choice=0,
            tokens=(0,) * tokens,
            start=start,
            block_table=table,
            samples=(draw,),
        )
        for table in tables
    )
    return StepPlan(chunks=tuple(chunks))


def _measure(
    runner: MeasuredRunner,
    clock: Clock,
    prefills: list[_Point],
    decodes: list[_Point],
    budget_s: float,
) -> int:
    """Fill in the points' least times, round by round; returns how many steps that took."""
    needed = [*prefills[:_NEEDED], *decodes[:_NEEDED]]
    rest = [*decodes[_NEEDED:], *prefills[_NEEDED:]]
    end_s = clock.now_s() + budget_s
    steps = 0
    for warm_up in (*prefills[:1], *decodes[:1]):
        runner.run(warm_up.plan)
    for rounds in itertools.count():
        measured = 0
        for point in (*needed, *rest):
            must = rounds == 0 and point in needed
            if must or clock.now_s() + _guess(point, prefills, decodes) < end_s:
                start_s = clock.now_s()
                runner.run(point.plan)
                point.seconds = min(point.seconds, clock.now_s() - start_s)
                measured += 1
        steps += measured
        if not measured:
            return steps
    raise AssertionError("unreachable: itertools.count doesn't end")


def _guess(point: _Point, prefills: list[_Point], decodes: list[_Point]) -> float:
    """How long the point will take: as before, or in proportion to its smaller neighbours."""
    if np.isfinite(point.seconds):
        return point.seconds
    known = [
        other.seconds * max(1.0, point.size / other.size)
        for other in (prefills if point in prefills else decodes)
        if np.isfinite(other.seconds)
    ]
    return max(known, default=0.0)


def _fit_prefill(points: list[_Point]) -> PrefillCost:
    rows = [(1.0, float(p.size), p.size * (p.context + p.size / 2.0)) for p in _with_times(points)]
    base, per_token, per_token_context = _fit(rows, _least_times(points))
    return PrefillCost(base_s=base, per_token_s=per_token, per_token_context_s=per_token_context)


def _fit_decode(points: list[_Point]) -> DecodeCost:
    rows = [(1.0, float(p.size), float(p.size * p.context)) for p in _with_times(points)]
    base, per_sequence, per_context_token = _fit(rows, _least_times(points))
    return DecodeCost(
        base_s=base, per_sequence_s=per_sequence, per_context_token_s=per_context_token
    )


def _with_times(points: list[_Point]) -> list[_Point]:
    return [point for point in points if np.isfinite(point.seconds)]


def _least_times(points: list[_Point]) -> list[float]:
    """Each point's time, or that of a point that includes its work, if that was quicker."""
    measured = _with_times(points)
    return [
        min(
            other.seconds
            for other in measured
            if other.size >= point.size and other.context >= point.context
        )
        for point in measured
    ]


def _fit(rows: Sequence[tuple[float, ...]], seconds: Sequence[float]) -> tuple[float, ...]:
    """Non-negative coefficients of `rows` that give `seconds` with the least relative errors.

    Exact for so few columns: of all subsets of columns whose plain least squares come out
    non-negative, the best is the solution (Karush-Kuhn-Tucker).
    """
    times: NDArray[np.float64] = np.maximum(np.asarray(seconds, dtype=np.float64), 1e-9)
    weighted = np.asarray(rows, dtype=np.float64) / times[:, None]
    scale = np.maximum(np.abs(weighted).max(axis=0), 1e-30)
    columns = weighted.shape[1]
    best, best_error = np.zeros(columns), float("inf")
    for count in range(1, columns + 1):
        for chosen in itertools.combinations(range(columns), count):
            part = (weighted / scale)[:, chosen]
            found, *_ = np.linalg.lstsq(part, np.ones(len(times)), rcond=None)
            error = float(np.square(part @ found - 1.0).sum())
            if (found >= 0.0).all() and error < best_error - 1e-12:
                best_error = error
                best = np.zeros(columns)
                best[list(chosen)] = found
    return tuple(float(each) for each in best / scale)
