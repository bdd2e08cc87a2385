"""The cost model is found again from steps of known cost, in noise and in little time."""

import random

import pytest

from core.clock import VirtualClock
from core.cost_model import CostModel, DecodeCost, PrefillCost
from core.kv_layout import KvLayout
from engine.profiler import measure_cost
from engine.step_plan import Drawn, StepOutput, StepPlan

TRUE = CostModel(
    prefill=PrefillCost(base_s=0.004, per_token_s=0.0011, per_token_context_s=4e-7),
    decode=DecodeCost(base_s=0.025, per_sequence_s=0.003, per_context_token_s=6e-6),
)


class CostedRunner:
    """Takes virtual time by a known cost model, times noise of 1 to `noise`."""

    def __init__(self, cost: CostModel, blocks: int = 512, noise: float = 1.0) -> None:
        self.layout = KvLayout(layers=1, kv_heads=1, head_dim=2, block_tokens=16, dtype="float32")
        self.blocks = blocks
        self.clock = VirtualClock()
        self.plans: list[StepPlan] = []
        self._cost = cost
        self._noise = noise
        self._random = random.Random(7)

    def run(self, plan: StepPlan) -> StepOutput:
        self.plans.append(plan)
        first = plan.chunks[0]
        if len(first.tokens) > 1:
            seconds = self._cost.prefill.seconds(len(first.tokens), first.start)
        else:
            context = sum(chunk.end for chunk in plan.chunks)
            seconds = self._cost.decode.seconds(len(plan.chunks), context)
        self.clock.advance(seconds * self._random.uniform(1.0, self._noise))
        return StepOutput(drawn=(Drawn(0),) * len(plan.chunks))


def measure(runner: CostedRunner, **limits: float) -> CostModel:
    settings = {"step_tokens": 512, "max_batch": 64, "max_context": 8_192, "budget_s": 1.2}
    return measure_cost(runner, runner.clock, **{**settings, **limits})  # type: ignore[arg-type]


@pytest.mark.parametrize(("noise", "tolerance"), [(1.0, 0.001), (1.5, 0.25)])
def test_predictions_are_right(noise: float, tolerance: float) -> None:
    cost = measure(CostedRunner(TRUE, noise=noise), budget_s=3.0)
    for tokens, context in ((32, 0), (200, 0), (500, 0), (64, 2_000)):
        expected = TRUE.prefill.seconds(tokens, context)
        assert cost.prefill.seconds(tokens, context) == pytest.approx(expected, rel=tolerance)
    for batch, context in ((1, 100), (8, 800), (32, 32_000)):
        expected = TRUE.decode.seconds(batch, context)
        assert cost.decode.seconds(batch, context) == pytest.approx(expected, rel=tolerance)


def test_coefficients_are_never_negative() -> None:
    for noise in (1.2, 2.0, 5.0):
        cost = measure(CostedRunner(TRUE, noise=noise))
        prefill, decode = cost.prefill, cost.decode
        assert min(prefill.base_s, prefill.per_token_s, prefill.per_token_context_s) >= 0.0
        assert min(decode.base_s, decode.per_sequence_s, decode.per_context_token_s) >= 0.0
        assert prefill.seconds(100) > 0.0
        assert decode.seconds(1, 100) > 0.0


def test_time_is_kept() -> None:
    runner = CostedRunner(TRUE)
    measure(runner, budget_s=1.2)
    assert runner.clock.now_s() < 1.4
    assert len(runner.plans) > 12


def test_slow_worker_is_measured_at_the_needed_points_only() -> None:
    slow = CostModel(
        prefill=PrefillCost(base_s=0.1, per_token_s=0.02), decode=DecodeCost(base_s=0.8)
    )
    runner = CostedRunner(slow)
    cost = measure(runner)
    assert len(runner.plans) == 2 + 6
    assert cost.prefill.seconds(300) == pytest.approx(slow.prefill.seconds(300), rel=0.01)


@pytest.mark.parametrize(("blocks", "max_context"), [(2, 8_192), (512, 40)])
def test_small_pools_and_contexts_are_respected(blocks: int, max_context: int) -> None:
    runner = CostedRunner(TRUE, blocks=blocks)
    cost = measure(runner, max_context=max_context, max_batch=4)
    for plan in runner.plans:
        assert len(plan.chunks) <= 4
        for chunk in plan.chunks:
            assert chunk.end <= min(max_context, blocks * 16)
            assert max(chunk.block_table) < blocks
            assert len(chunk.block_table) * 16 >= chunk.end
    assert cost.prefill.seconds(16) == pytest.approx(TRUE.prefill.seconds(16), rel=0.05)


def test_figures_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        measure(CostedRunner(TRUE))
    assert "cost model of" in caplog.text
