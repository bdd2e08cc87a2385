"""Bodies as clients send them, right and wrong."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from core.errors import ClientError
from gateway.body_reader import parse_body
from gateway.openai_models import ChatBody, CompletionBody

HELLO = [{"role": "user", "content": "hello"}]


def chat(**fields: Any) -> ChatBody:
    return parse_body(ChatBody, json.dumps({"messages": HELLO, **fields}).encode())


def completion(**fields: Any) -> CompletionBody:
    return parse_body(CompletionBody, json.dumps({"prompt": "hello", **fields}).encode())


def refused(make: Any, **fields: Any) -> tuple[str, str | None]:
    with pytest.raises(ClientError) as caught:
        make(**fields)
    return caught.value.message, caught.value.param


def test_unknown_fields_are_ignored_and_null_is_not_given() -> None:
    body = chat(temperature=None, stop=None, n=None, store=True, metadata={"a": "b"}, tools=[])
    assert body.temperature is None
    assert body.stop == []


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"temperature": "hot"}, "temperature", "expected a number, but got a string"),
        ({"max_tokens": 1.5}, "max_tokens", "expected an integer, but got a decimal number"),
        ({"max_tokens": True}, "max_tokens", "expected an integer, but got a boolean"),
        ({"stream": "yes"}, "stream", "expected true or false"),
        ({"n": [1]}, "n", "expected an integer, but got a list"),
        ({"messages": "hi"}, "messages", "expected a list"),
        ({"messages": []}, "messages", "at least 1 item"),
        ({"messages": [{"content": "x"}]}, "messages.0.role", "Missing required"),
        ({"messages": [{"role": "king"}]}, "messages.0.role", "'system'"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content", "a string or"),
        ({"messages": ["hi"]}, "messages.0", "expected an object"),
        ({"stop": 5}, "stop", "a string or a list"),
        ({"stop": ["a", 5]}, "stop.1", "expected a string"),
        ({"stop": ""}, "stop.0", "at least 1 character"),
        ({"stop": ["x"] * 17}, "stop", "at most 16"),
        ({"logit_bias": {"1": "x"}}, "logit_bias.1", "expected a number"),
        ({"slo": {"ttft_ms": "x"}}, "slo.ttft_ms", "expected a number"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream"),
        ({"top_logprobs": 2}, "top_logprobs", "needs logprobs"),
        ({"tools": [{"type": "function"}]}, "tools", "not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format", "text"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str, words: str) -> None:
    message, named = refused(chat, **fields)
    assert named == param
    assert words in message


def test_an_image_is_refused() -> None:
    parts = [{"type": "text", "text": "what is"}, {"type": "image_url", "image_url": {"url": "x"}}]
    message, param = refused(chat, messages=[{"role": "user", "content": parts}])
    assert param == "messages.0.content"
    assert "image_url" in message


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]
    body = chat(messages=[{"role": "developer", "content": parts}])
    assert body.messages[0].for_template() == {"role": "system", "content": "a b"}


@pytest.mark.parametrize(
    ("prompt", "as_list"),
    [
        ("hi", ["hi"]),
        ("", [""]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
def test_the_four_forms_of_a_prompt(prompt: Any, as_list: list[Any]) -> None:
    assert completion(prompt=prompt).prompt == as_list


@pytest.mark.parametrize("prompt", [[], 5, {"a": 1}, [[]], [[1, "a"]], [True], [None], ["a"] * 129])
def test_other_prompts_are_refused(prompt: Any) -> None:
    assert refused(completion, prompt=prompt)[1] == "prompt"


def test_what_completions_do_not_do_is_refused() -> None:
    assert refused(completion, suffix="x")[1] == "suffix"
    assert refused(completion, best_of=3)[1] == "best_of"
    assert refused(completion, echo=True, logprobs=1)[1] == "logprobs"
    assert completion(best_of=2, n=2, echo=True).echo


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"nonsense", b'"\xff"', b"[" * 5000, b'{"user": "\\ud800"}'],
)
def test_what_is_not_json_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(ClientError, match="not valid JSON"):
        parse_body(ChatBody, data)


@pytest.mark.parametrize("data", [b"[]", b"5", b"null", b'"x"'])
def test_what_is_no_object_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(ClientError, match="must be a JSON object"):
        parse_body(ChatBody, data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(
    fields=st.dictionaries(
        st.sampled_from([*ChatBody.model_fields, *CompletionBody.model_fields, "suffix", "tools"]),
        JSON,
    )
)
def test_any_json_is_read_or_refused(fields: dict[str, Any]) -> None:
    for model in (ChatBody, CompletionBody):
        with suppress(ClientError):
            parse_body(model, json.dumps(fields).encode())
