from dataclasses import fields
from typing import Any

import pytest

from core.errors import ClientError
from core.sampling import (
    FIELD_NAMES,
    MAX_CHOICES,
    MAX_LOGIT_BIAS,
    MAX_STOP_TOKENS,
    MAX_TOP_LOGPROBS,
    SamplingParams,
)

LIMITS: dict[str, tuple[list[Any], list[Any]]] = {
    # field: the outermost values that are taken, and those just beyond
    "temperature": ([0.0, 100.0], [-0.1, 100.1]),
    "top_k": ([0, 1 << 30], [-1, (1 << 30) + 1]),
    "top_p": ([1e-9, 1.0], [0.0, 1.1]),
    "min_p": ([0.0, 1.0], [-0.1, 1.1]),
    "seed": ([0, (1 << 64) - 1], [-1, 1 << 64]),
    "repetition_penalty": ([1e-3, 1e3], [0.0, 1001.0]),
    "presence_penalty": ([-2.0, 2.0], [-2.1, 2.1]),
    "frequency_penalty": ([-2.0, 2.0], [-2.1, 2.1]),
    "logit_bias": ([(), ((1, -100.0), (2, 100.0))], [((1, 101.0),), ((1, float("nan")),)]),
    "min_tokens": ([0, 1 << 30], [-1, (1 << 30) + 1]),
    "max_tokens": ([1, 1 << 30], [0, (1 << 30) + 1]),
    "logprobs": ([None, 0, MAX_TOP_LOGPROBS], [-1, MAX_TOP_LOGPROBS + 1]),
    "choices": ([1, MAX_CHOICES], [0, MAX_CHOICES + 1]),
}
ACCEPTED = [(name, value) for name, (good, _) in LIMITS.items() for value in good]
REFUSED = [(name, value) for name, (_, bad) in LIMITS.items() for value in bad] + [
    (name, float("nan")) for name in ("temperature", "top_p", "min_p", "repetition_penalty")
]


@pytest.mark.parametrize(("name", "value"), ACCEPTED)
def test_the_outermost_values_are_taken(name: str, value: Any) -> None:
    assert getattr(SamplingParams(**{name: value}), name) == value


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_what_lies_beyond_is_the_callers_error(name: str, value: Any) -> None:
    with pytest.raises(ClientError) as caught:
        SamplingParams(**{name: value})
    assert caught.value.param == {"logprobs": "top_logprobs"}.get(name, name)


def test_a_table_of_biases_is_bounded() -> None:
    SamplingParams(logit_bias=tuple((token, 1.0) for token in range(MAX_LOGIT_BIAS)))
    with pytest.raises(ClientError, match="at most"):
        SamplingParams(logit_bias=tuple((token, 1.0) for token in range(MAX_LOGIT_BIAS + 1)))


def test_stop_tokens_are_bounded() -> None:
    SamplingParams(stop_token_ids=tuple(range(MAX_STOP_TOKENS)))
    with pytest.raises(ClientError, match="at most") as caught:
        SamplingParams(stop_token_ids=tuple(range(MAX_STOP_TOKENS + 1)))
    assert caught.value.param == "stop_token_ids"


def test_every_number_has_limits() -> None:
    free = {"stop_token_ids", "ignore_eos"}
    assert {field.name for field in fields(SamplingParams)} == set(LIMITS) | free == FIELD_NAMES


def test_what_the_parameters_imply() -> None:
    assert SamplingParams(temperature=0.0).greedy
    assert not SamplingParams(temperature=1e-6).greedy
    assert not SamplingParams().uses_history
    for name, value in (
        ("repetition_penalty", 1.1),
        ("presence_penalty", 0.1),
        ("frequency_penalty", -0.1),
    ):
        assert SamplingParams(**{name: value}).uses_history  # type: ignore[arg-type]
