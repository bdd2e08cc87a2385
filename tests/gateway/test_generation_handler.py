"""Generations over HTTP: what reaches the workers, what comes back, who may leave when."""

import asyncio
import io
import json
import time
from typing import Any

import pytest

from tests.gateway.conftest import Gateway
from tests.gateway.fake_deployment import D, P, text_tokens, token_text
from tests.gateway.http_calls import CHAT, HELLO, TEXT, events, post, refused
from wire.messages import Fault, RefusalKind


async def test_headers_tell_who_served_and_how_long_it_took(gateway: Gateway) -> None:
    _, answer, headers = await post(gateway, CHAT, messages=HELLO)
    assert headers["x-request-id"] == answer["id"]
    assert headers["x-baton-prefill"] == "prefill-0"
    assert headers["x-baton-decode"] == "decode-0"
    assert headers["x-baton-cached-tokens"] == "4"
    spans = dict(span.split(";dur=") for span in headers["server-timing"].split(", "))
    assert list(spans) == ["route", "queue", "prefill", "first-token"]
    assert float(spans["prefill"]) == 12.25
    _, _, local = await post(gateway, TEXT, prompt="hi")
    assert local["x-baton-prefill"] == "local"


async def test_the_prompt_reaches_the_worker_as_the_template_says(gateway: Gateway) -> None:
    messages = [{"role": "developer", "content": [{"type": "text", "text": "be brief"}]}, *HELLO]
    await post(gateway, CHAT, messages=messages)
    prompt = gateway.deployment.submits[0].request.prompt
    assert token_text(prompt) == "system\nbe brief\nuser\nhello there\nassistant\n"


async def test_all_sampling_fields_reach_the_worker(gateway: Gateway) -> None:
    await post(
        gateway,
        CHAT,
        messages=HELLO,
        temperature=0.5,
        top_p=0.9,
        top_k=-1,
        min_p=0.1,
        seed=5,
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        logit_bias={"65": -100, "7": 1.5},
        stop_token_ids=[9, 9],
        min_tokens=1,
        max_completion_tokens=7,
        ignore_eos=True,
        n=1,
        cache_salt="pepper",
        slo={"class": "batch", "ttft_ms": 77},
    )
    request = gateway.deployment.submits[0].request
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (
        0.5,
        0.9,
        0,
        0.1,
    )
    assert (sampling.seed, sampling.max_tokens, sampling.min_tokens) == (5, 7, 1)
    assert sampling.logit_bias == ((7, 1.5), (65, -100.0))
    assert sampling.stop_token_ids == (9,)
    assert sampling.ignore_eos
    assert request.cache_salt == "pepper"
    assert (request.slo.slo_class, request.slo.ttft_ms, request.slo.tpot_ms) == (
        "batch",
        77.0,
        1_000.0,
    )


async def test_slo_headers_fill_in_what_the_body_does_not_say(gateway: Gateway) -> None:
    headers = {"x-slo-class": "interactive", "x-slo-ttft-ms": "123", "x-slo-tpot-ms": "45"}
    await post(gateway, CHAT, headers, messages=HELLO, slo={"tpot_ms": 6})
    slo = gateway.deployment.routes[0].slo
    assert (slo.slo_class, slo.ttft_ms, slo.tpot_ms) == ("interactive", 123.0, 6.0)
    status, answer, _ = await post(gateway, CHAT, {"x-slo-ttft-ms": "soon"}, messages=HELLO)
    assert (status, answer["error"]["param"]) == (400, "x-slo-ttft-ms")


async def test_a_stop_string_is_never_shown_and_cancels(gateway: Gateway) -> None:
    *chunks, _ = await events(gateway, messages=HELLO, stop=["o, w"])
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == "Hell"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    cancels = gateway.deployment.cancels
    assert [(address, cancel.reason) for address, cancel in cancels] == [
        (D.address, "stop"),
        (P.address, "stop"),
    ]


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "param"),
    [
        (CHAT, {"messages": HELLO, "model": "gpt-4o"}, 404, "model_not_found", "model"),
        (CHAT, {"messages": "hi"}, 400, "invalid_request", "messages"),
        (CHAT, {}, 400, "invalid_request", "messages"),
        (CHAT, {"messages": HELLO, "n": 0}, 400, "invalid_request", "n"),
        (CHAT, {"messages": HELLO, "n": 65}, 400, "invalid_request", "n"),
        (TEXT, {"prompt": ["x"] * 65, "n": 2}, 400, "invalid_request", "prompt"),
        (TEXT, {"prompt": "x", "logprobs": 21}, 400, "invalid_request", "logprobs"),
        (CHAT, {"messages": HELLO, "temperature": 1e9}, 400, "invalid_request", "temperature"),
        (CHAT, {"messages": HELLO, "max_tokens": 0}, 400, "invalid_request", "max_tokens"),
        (CHAT, {"messages": HELLO, "min_tokens": 99}, 400, "invalid_request", "min_tokens"),
        (CHAT, {"messages": HELLO, "logit_bias": {"x": 1}}, 400, "invalid_request", "logit_bias"),
        (CHAT, {"messages": HELLO, "logit_bias": {"300": 1}}, 400, "invalid_request", "logit_bias"),
        (CHAT, {"messages": HELLO, "stop_token_ids": [300]}, 400, "invalid_request", None),
        (CHAT, {"messages": HELLO, "slo": {"class": "x"}}, 400, "invalid_request", "slo.class"),
        (CHAT, {"messages": HELLO, "slo": {"ttft_ms": 0}}, 400, "invalid_request", "slo.ttft_ms"),
        (TEXT, {"prompt": [300]}, 400, "invalid_request", "prompt"),
        (TEXT, {"prompt": [-1]}, 400, "invalid_request", "prompt"),
        (TEXT, {"prompt": ""}, 400, "invalid_request", "prompt"),
        (TEXT, {"prompt": "x", "suffix": "y"}, 400, "invalid_request", "suffix"),
        (TEXT, {"prompt": "x" * 512}, 400, "context_length_exceeded", "prompt"),
        (TEXT, {"prompt": "x" * 9000}, 400, "context_length_exceeded", "prompt"),
        (TEXT, {"prompt": "x", "max_tokens": 512}, 400, "context_length_exceeded", "prompt"),
    ],
)
async def test_what_can_not_be_asked_for(
    gateway: Gateway, path: str, body: dict[str, Any], status: int, code: str, param: str | None
) -> None:
    answered, error = await refused(gateway, path, **body)
    assert (answered, error["code"]) == (status, code)
    assert error["type"] == "invalid_request_error"
    if param is not None:
        assert error["param"] == param
    assert gateway.deployment.routes == []


async def test_a_context_that_is_too_short_is_told_with_both_numbers(gateway: Gateway) -> None:
    _, error = await refused(gateway, TEXT, prompt="x" * 600)
    assert "512 tokens" in error["message"]
    assert "600 tokens" in error["message"]
    _, error = await refused(gateway, TEXT, prompt="x" * 500, max_tokens=13)
    assert "513 tokens" in error["message"]


async def test_a_default_of_max_tokens_is_cut_to_the_context(gateway: Gateway) -> None:
    await post(gateway, TEXT, prompt="x" * 505)
    assert gateway.deployment.submits[0].request.sampling.max_tokens == 7
    await post(gateway, TEXT, prompt="x" * 500, max_tokens=12)
    assert gateway.deployment.submits[1].request.sampling.max_tokens == 12


async def test_what_is_not_the_encoding_it_says(gateway: Gateway) -> None:
    headers = {"Content-Encoding": "gzip"}
    async with gateway.http.post(CHAT, data=b"xxxx", headers=headers) as response:
        assert response.status == 400
        assert "not valid 'gzip'" in (await response.json())["error"]["message"]


async def test_what_is_not_json(gateway: Gateway) -> None:
    async with gateway.http.post(CHAT, data=b"{nonsense") as response:
        assert response.status == 400
        assert "not valid JSON" in (await response.json())["error"]["message"]


@pytest.mark.parametrize(
    ("kind", "status", "code", "error_type"),
    [
        (RefusalKind.OVERLOADED, 429, "overloaded", "overloaded_error"),
        (RefusalKind.NO_WORKER, 503, "no_worker", "server_error"),
        (RefusalKind.TOO_LONG, 400, "context_length_exceeded", "invalid_request_error"),
    ],
)
async def test_refusals_of_the_router(
    gateway: Gateway,
    kind: RefusalKind,
    status: int,
    code: str,
    error_type: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.router_question.RESTART_PATIENCE_S", 0.2)
    gateway.deployment.refusal = (kind, "so it is", 6.5)
    for stream in (False, True):
        answered, answer, headers = await post(gateway, CHAT, messages=HELLO, stream=stream)
        assert answered == status
        assert answer["error"]["message"] == "so it is"
        assert (answer["error"]["code"], answer["error"]["type"]) == (code, error_type)
        assert headers.get("Retry-After") == (None if status == 400 else "7")
        assert headers["x-request-id"].startswith("chatcmpl-")


async def test_a_deadline_before_the_first_token_is_a_504(gateway: Gateway) -> None:
    gateway.deployment.hold_at = 0
    slo = {"deadline_ms": 150}
    for stream in (False, True):
        status, answer, _ = await post(gateway, CHAT, messages=HELLO, slo=slo, stream=stream)
        assert (status, answer["error"]["code"]) == (504, "deadline_exceeded")
    assert {address for address, _ in gateway.deployment.cancels} == {D.address, P.address}


async def test_a_fault_of_ours_is_a_500_that_tells_nothing(gateway: Gateway) -> None:
    gateway.deployment.fail_at = (0, Fault.US)
    status, error = await refused(gateway, CHAT, messages=HELLO)
    assert (status, error["type"]) == (500, "server_error")
    assert "no good" not in error["message"]


@pytest.mark.parametrize("lost", [True, False])
async def test_an_answer_goes_on_over_a_lost_worker(gateway: Gateway, lost: bool) -> None:
    if lost:
        gateway.deployment.lose_at = 4
    else:
        gateway.deployment.fail_at = (4, Fault.PEER)
    *chunks, _ = await events(gateway, messages=HELLO)
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == "Hello, world."
    first, second = gateway.deployment.submits
    assert second.request.attempt == first.request.attempt.next()
    assert second.request.prompt == first.request.prompt
    assert second.request.generated == (tuple(b"Hell"),)
    assert gateway.deployment.forgotten == ([D.address] if lost else [])


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("hold_at", [0, 3])
async def test_a_client_that_leaves_cancels_its_request(
    gateway: Gateway, stream: bool, hold_at: int
) -> None:
    deployment = gateway.deployment
    deployment.hold_at = hold_at
    asking = asyncio.create_task(post(gateway, CHAT, messages=HELLO, stream=stream))
    await deployment.until(lambda: deployment.submits)
    asking.cancel()
    await deployment.until(lambda: len(deployment.cancels) == 2 and deployment.settled)
    assert {address for address, _ in deployment.cancels} == {D.address, P.address}
    assert {cancel.reason for _, cancel in deployment.cancels} == {"client gone"}
    assert list(gateway.dispatcher.states()) == []


async def test_one_failing_prompt_ends_the_others(gateway: Gateway) -> None:
    deployment = gateway.deployment
    deployment.script = lambda request: text_tokens("x" * 30)
    deployment.fail_at = (2, Fault.CALLER)
    status, _ = await refused(gateway, TEXT, prompt=["one", "two", "three"], max_tokens=20)
    assert status == 400
    assert len({attempt.request for attempt in deployment.settled}) == 3
    assert list(gateway.dispatcher.states()) == []


async def test_many_at_once_end_once_each(gateway: Gateway) -> None:
    answers = await asyncio.gather(
        *(post(gateway, TEXT, prompt="x" * (1 + i % 40), max_tokens=1 + i % 20) for i in range(100))
    )
    assert {status for status, _, _ in answers} == {200}
    settled = gateway.deployment.settled
    assert len(settled) == len(set(settled)) == 100
    assert gateway.deployment.open_attempts == 0


async def test_health_answers_while_the_largest_chat_is_prepared(gateway: Gateway) -> None:
    """Messages with nothing in them are work for the template all the same."""
    body = io.BytesIO(json.dumps({"messages": [{"role": "user", "content": ""}] * 60_000}).encode())

    async def ask() -> int:
        json_type = {"content-type": "application/json"}
        async with gateway.http.post(CHAT, data=body, headers=json_type) as response:
            return response.status

    begun_s = time.perf_counter()
    asked = asyncio.create_task(ask())
    longest_s = 0.0
    while not asked.done():
        before_s = time.perf_counter()
        async with gateway.http.get("/health") as response:
            assert response.status == 200
        longest_s = max(longest_s, time.perf_counter() - before_s)
    took_s = time.perf_counter() - begun_s
    assert await asked == 400
    assert longest_s < took_s / 3


async def test_an_answer_that_may_begin_with_nothing_is_refused(gateway: Gateway) -> None:
    """Such a request would leave the sampler no token to draw, or the caller a table too long."""
    stops = list(range(257))
    status, error = await refused(
        gateway, TEXT, prompt=[1] * 40, min_tokens=2, stop_token_ids=stops
    )
    assert (status, error["param"]) == (400, "stop_token_ids")
    assert gateway.deployment.submits == []
