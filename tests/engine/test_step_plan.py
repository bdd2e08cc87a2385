from core.sampling import SamplingParams
from engine.step_plan import Chunk, SampleSpec, StepPlan
from tests.engine.engine_cases import attempt_of


def test_a_plan_counts_its_tokens_and_lists_its_draws_in_order() -> None:
    attempt = attempt_of(0)
    draws = tuple(
        SampleSpec(attempt=attempt, choice=choice, position=0, params=SamplingParams())
        for choice in range(3)
    )
    first = Chunk(
        attempt=attempt, choice=0, tokens=(1, 2, 3), start=16, block_table=(4, 9), samples=draws[:2]
    )
    middle = Chunk(attempt=attempt, choice=1, tokens=(5,), start=0, block_table=(2,))
    last = Chunk(
        attempt=attempt, choice=2, tokens=(5,), start=7, block_table=(3,), samples=draws[2:]
    )
    plan = StepPlan(chunks=(first, middle, last))
    assert plan.tokens == 5
    assert tuple(plan.samples()) == draws
    assert [chunk.end for chunk in plan.chunks] == [19, 1, 8]
