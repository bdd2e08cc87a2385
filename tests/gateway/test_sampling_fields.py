"""Sampling fields with the API's defaults."""

import pytest
from hypothesis import given, strategies as st

from core.errors import ClientError
from gateway.openai_models import ChatBody, CompletionBody
from gateway.sampling_fields import sampling_of

MESSAGES = [{"role": "user", "content": "hi"}]


def chat(**fields: object) -> ChatBody:
    return ChatBody.model_validate({"messages": MESSAGES, **fields})


def test_defaults_are_openais() -> None:
    params = sampling_of(chat(), max_tokens=9, vocab=300)
    assert (params.temperature, params.top_p, params.choices, params.max_tokens) == (1, 1, 1, 9)
    assert (params.top_k, params.min_p, params.repetition_penalty) == (0, 0, 1)
    assert params.logprobs is None


def test_a_seed_is_drawn_where_none_is_given() -> None:
    seeds = {sampling_of(chat(), max_tokens=1, vocab=300).seed for _ in range(8)}
    assert len(seeds) == 8
    for given_seed, seed in ((0, 0), (-1, (1 << 64) - 1), (1 << 64, 0)):
        assert sampling_of(chat(seed=given_seed), max_tokens=1, vocab=300).seed == seed


def test_logprobs_of_both_endpoints() -> None:
    def of(body: ChatBody | CompletionBody) -> int | None:
        return sampling_of(body, max_tokens=1, vocab=300).logprobs

    assert of(chat(logprobs=True)) == 0
    assert of(chat(logprobs=True, top_logprobs=4)) == 4
    assert of(chat(logprobs=False)) is None
    assert of(CompletionBody.model_validate({"prompt": "x", "logprobs": 3})) == 3
    with pytest.raises(ClientError) as refused:
        of(CompletionBody.model_validate({"prompt": "x", "logprobs": -1}))
    assert refused.value.param == "logprobs"


@given(name=st.text(max_size=6))
def test_only_plain_numbers_are_token_ids(name: str) -> None:
    body = chat(logit_bias={name: 1.0})
    plain = name in {str(token) for token in range(300)} or (
        name.isascii() and name.isdecimal() and int(name) < 300
    )
    if plain:
        assert sampling_of(body, max_tokens=1, vocab=300).logit_bias == ((int(name), 1.0),)
    else:
        with pytest.raises(ClientError):
            sampling_of(body, max_tokens=1, vocab=300)
