import pytest

from core.request import FinishReason
from core.sampling import SamplingParams
from engine.finish import banned_tokens, finish_of

EOS = (2, 3)


def finish(
    token: int, position: int, params: SamplingParams, sequence_tokens: int = 10
) -> FinishReason | None:
    return finish_of(
        token,
        position=position,
        sequence_tokens=sequence_tokens,
        params=params,
        eos_token_ids=EOS,
        max_context=100,
    )


@pytest.mark.parametrize(
    ("token", "position", "params", "expected"),
    [
        (5, 0, SamplingParams(max_tokens=2), None),
        (5, 1, SamplingParams(max_tokens=2), FinishReason.LENGTH),
        (3, 0, SamplingParams(max_tokens=9), FinishReason.STOP),
        (3, 8, SamplingParams(max_tokens=9), FinishReason.STOP),
        (3, 0, SamplingParams(max_tokens=9, ignore_eos=True), None),
        (3, 0, SamplingParams(max_tokens=9, ignore_eos=True, stop_token_ids=(3,)), "stop"),
        (5, 0, SamplingParams(max_tokens=9, stop_token_ids=(4, 5)), FinishReason.STOP),
        (2, 3, SamplingParams(max_tokens=9, min_tokens=4), None),
        (2, 4, SamplingParams(max_tokens=9, min_tokens=4), FinishReason.STOP),
        (2, 3, SamplingParams(max_tokens=4, min_tokens=9), FinishReason.LENGTH),
    ],
)
def test_finish_rules(
    token: int, position: int, params: SamplingParams, expected: FinishReason | None
) -> None:
    assert finish(token, position, params) == expected


def test_context_limit_ends_with_the_token_that_fills_it() -> None:
    params = SamplingParams(max_tokens=1_000)
    assert finish(5, 50, params, sequence_tokens=99) is None
    assert finish(5, 51, params, sequence_tokens=100) is FinishReason.LENGTH


def test_banned_until_min_tokens() -> None:
    params = SamplingParams(min_tokens=2, stop_token_ids=(9,))
    assert banned_tokens(1, params, EOS) == (2, 3, 9)
    assert banned_tokens(2, params, EOS) == ()
    assert banned_tokens(0, SamplingParams(min_tokens=2, ignore_eos=True), EOS) == ()
