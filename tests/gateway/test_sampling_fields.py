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
    params = sampling_of(chat(), max_tokens=9, vocab=300, eos_token_ids=(258,))
    assert (params.temperature, params.top_p, params.choices, params.max_tokens) == (1, 1, 1, 9)
    assert (params.top_k, params.min_p, params.repetition_penalty) == (0, 0, 1)
    assert params.logprobs is None


def test_a_seed_is_drawn_where_none_is_given() -> None:
    seeds = {
        sampling_of(chat(), max_tokens=1, vocab=300, eos_token_ids=(258,)).seed for _ in range(8)
    }
    assert len(seeds) == 8
    for given_seed, seed in ((0, 0), (-1, (1 << 64) - 1), (1 << 64, 0)):
        assert (
            sampling_of(chat(seed=given_seed), max_tokens=1, vocab=300, eos_token_ids=(258,)).seed
            == seed
        )


def test_logprobs_of_both_endpoints() -> None:
    def of(body: ChatBody | CompletionBody) -> int | None:
        return sampling_of(body, max_tokens=1, vocab=300, eos_token_ids=(258,)).logprobs

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
        assert sampling_of(body, max_tokens=1, vocab=300, eos_token_ids=(258,)).logit_bias == (
            (int(name), 1.0),
        )
    else:
        with pytest.raises(ClientError):
            sampling_of(body, max_tokens=1, vocab=300, eos_token_ids=(258,))


@pytest.mark.parametrize(
    ("ignore_eos", "stops", "refused"), [(0, 6, 0), (0, 7, 1), (1, 7, 0), (1, 8, 1)]
)
def test_an_answer_must_have_a_token_to_begin_with(
    ignore_eos: int, stops: int, refused: int
) -> None:
    """With min_tokens, what would end the answer is banned: some token must be left."""

    def of(min_tokens: int) -> object:
        body = chat(
            min_tokens=min_tokens, stop_token_ids=list(range(stops)), ignore_eos=bool(ignore_eos)
        )
        return sampling_of(body, max_tokens=4, vocab=8, eos_token_ids=(7, 99))

    of(0)
    if not refused:
        of(2)
        return
    with pytest.raises(ClientError, match="min_tokens") as error:
        of(2)
    assert error.value.param == "stop_token_ids"
