"""Answers as server-sent events."""

import json

from tests.gateway.conftest import Gateway
from tests.gateway.fake_deployment import text_tokens
from tests.gateway.http_calls import CHAT, HELLO, events, post, refused


async def test_a_stream_is_well_formed(gateway: Gateway) -> None:
    *chunks, done = await events(gateway, messages=HELLO, n=2)
    assert done == "[DONE]"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    for index in (0, 1):
        own = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(c["delta"].get("content", "") for c in own) == "Hello, world."
        assert [c["finish_reason"] for c in own if c["finish_reason"]] == ["stop"]
    assert all("usage" not in chunk for chunk in chunks)


async def test_line_ends_of_other_standards_do_not_cut_a_stream(gateway: Gateway) -> None:
    text = "a\u2028b\x85c\r\nd😀"
    gateway.deployment.script = lambda _: text_tokens(text)
    *chunks, _ = await events(gateway, messages=HELLO)
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == text
    assert all("\ufffd" not in json.dumps(chunk, ensure_ascii=False) for chunk in chunks)


async def test_an_error_after_the_first_token_is_the_streams_last_event(gateway: Gateway) -> None:
    gateway.deployment.hold_at = 3
    *_, last = await events(gateway, messages=HELLO, slo={"deadline_ms": 150})
    assert last["error"]["code"] == "deadline_exceeded"


async def test_shutting_down_ends_streams_with_a_reason(gateway: Gateway) -> None:
    gateway.deployment.hold_at = 3
    async with gateway.http.post(CHAT, json={"messages": HELLO, "stream": True}) as response:
        await response.content.readline()
        gateway.dispatcher.close()
        last = (await response.read()).decode().split("\n\n")[-2]
    assert "shutting down" in json.loads(last.removeprefix("data: "))["error"]["message"]
    status, error = await refused(gateway, CHAT, messages=HELLO)
    assert (status, error["code"]) == (503, "unavailable")


async def test_a_slow_reader_keeps_nobody_waiting(gateway: Gateway) -> None:
    gateway.deployment.script = lambda _: text_tokens("y" * 400)
    body = {"messages": HELLO, "stream": True, "max_tokens": 400, "n": 8}
    async with gateway.http.post(CHAT, json=body) as slow:
        await slow.content.readline()
        status, _, _ = await post(gateway, CHAT, messages=HELLO)
        assert status == 200
        await gateway.deployment.until(lambda: len(gateway.deployment.settled) == 2)
        text = (await slow.read()).decode()
    assert text.endswith("data: [DONE]\n\n")
