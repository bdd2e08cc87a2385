import pytest
from hypothesis import given, strategies as st

from core.cost_model import UNBOUNDED_TOKENS, CostModel, DecodeCost, PrefillCost, TransferCost

TOKENS = st.integers(1, 100_000)
SECONDS = st.floats(0.0, 10.0)
COSTS = st.builds(
    PrefillCost,
    base_s=st.floats(0.0, 0.1),
    per_token_s=st.floats(1e-5, 1e-2),
    per_token_context_s=st.sampled_from([0.0, 1e-8, 1e-6]),
)


def test_prefill_is_base_plus_tokens_plus_attention() -> None:
    cost = PrefillCost(base_s=1.0, per_token_s=0.1, per_token_context_s=0.01)
    # 10 new tokens after 100 cached ones: each attends to 100 + 5 on average.
    assert cost.seconds(10, 100) == pytest.approx(1.0 + 1.0 + 0.01 * 10 * 105)
    assert cost.seconds(0, 100) == cost.seconds(-1) == 0.0


@given(TOKENS, TOKENS, st.floats(0.0, 1e-6))
def test_a_prefill_in_two_chunks_costs_one_base_more(
    first: int, second: int, per_token_context_s: float
) -> None:
    cost = PrefillCost(per_token_context_s=per_token_context_s)
    chunks = cost.seconds(first) + cost.seconds(second, first)
    assert chunks == pytest.approx(cost.seconds(first + second) + cost.base_s, rel=1e-9)


def test_decode_and_transfer_are_linear() -> None:
    decode = DecodeCost(base_s=1.0, per_sequence_s=0.1, per_context_token_s=0.01)
    assert decode.seconds(4, 200) == pytest.approx(1.0 + 0.4 + 2.0)
    transfer = TransferCost(latency_s=0.5, bytes_per_s=1e6)
    assert transfer.seconds(2_000_000) == pytest.approx(2.5)


def test_an_unmeasured_model_has_parts_of_its_own() -> None:
    assert CostModel() == CostModel()
    assert CostModel().prefill.seconds(1) > 0


@given(cost=COSTS, seconds=SECONDS, context=st.integers(0, 100_000))
def test_tokens_within_is_the_most_that_fits(
    cost: PrefillCost, seconds: float, context: int
) -> None:
    tokens = cost.tokens_within(seconds, context)
    slack = 1e-6 * (1.0 + seconds)
    if tokens:
        assert cost.seconds(tokens, context) - cost.base_s <= seconds + slack
    assert cost.seconds(tokens + 1, context) - cost.base_s >= seconds - slack


def test_free_tokens_are_unbounded_and_no_time_fits_none() -> None:
    free = PrefillCost(base_s=0.1, per_token_s=0.0)
    assert free.tokens_within(0.001) == UNBOUNDED_TOKENS
    assert free.tokens_within(0.0) == 0
    assert free.tokens_within(-1.0) == 0


def test_a_mixed_step_pays_the_larger_base_once() -> None:
    cost = CostModel(
        prefill=PrefillCost(base_s=0.005, per_token_s=0.001),
        decode=DecodeCost(base_s=0.02, per_sequence_s=0.002, per_context_token_s=1e-5),
    )
    assert cost.step_seconds([]) == 0.0
    assert cost.step_seconds([(50, 0)]) == pytest.approx(0.055)
    assert cost.step_seconds([(50, 0), (10, 7)]) == pytest.approx(0.065)
    assert cost.step_seconds([], 4, 1_000) == pytest.approx(0.02 + 0.008 + 0.01)
    assert cost.step_seconds([(50, 0)], 4, 1_000) == pytest.approx(0.038 + 0.05)
    assert cost.step_seconds([(0, 300)]) == pytest.approx(0.005)
