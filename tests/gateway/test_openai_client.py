"""The real openai client, unmodified: sync, streaming, async."""

import asyncio

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.gateway.conftest import Gateway
from tests.gateway.fake_deployment import text_tokens
from wire.messages import RefusalKind

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello there"}]


def client(gateway: Gateway) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0)


def async_client(gateway: Gateway) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0)


async def test_chat_sync(gateway: Gateway) -> None:
    def ask() -> None:
        with client(gateway) as api:
            answer = api.chat.completions.create(model="default", messages=HELLO)
        assert answer.object == "chat.completion"
        assert answer.model == "org/fake-1b"
        choice = answer.choices[0]
        assert choice.message.role == "assistant"
        assert choice.message.content == "Hello, world."
        assert choice.finish_reason == "stop"
        usage = answer.usage
        assert usage is not None
        assert usage.completion_tokens == 14
        assert usage.total_tokens == 14 + usage.prompt_tokens
        assert usage.prompt_tokens_details is not None
        assert usage.prompt_tokens_details.cached_tokens == 4

    await asyncio.to_thread(ask)


async def test_chat_stream_sync(gateway: Gateway) -> None:
    def ask() -> None:
        with client(gateway) as api:
            stream = api.chat.completions.create(
                model="org/fake-1b",
                messages=HELLO,
                stream=True,
                stream_options={"include_usage": True},
            )
            chunks = list(stream)
        assert chunks[0].choices[0].delta.role == "assistant"
        assert len({chunk.id for chunk in chunks}) == 1
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert text == "Hello, world."
        finishes = [c.choices[0].finish_reason for c in chunks if c.choices]
        assert finishes[-1] == "stop"
        assert finishes.count(None) == len(finishes) - 1
        assert chunks[-1].choices == []
        usage = chunks[-1].usage
        assert usage is not None
        assert usage.completion_tokens == 14
        assert all(chunk.usage is None for chunk in chunks[:-1])

    await asyncio.to_thread(ask)


async def test_chat_async_stream_helper(gateway: Gateway) -> None:
    async with (
        async_client(gateway) as api,
        api.chat.completions.stream(model="default", messages=HELLO, n=2, seed=-1) as stream,
    ):
        async for _ in stream:
            pass
        final = await stream.get_final_completion()
    assert [choice.message.content for choice in final.choices] == ["Hello, world."] * 2
    assert gateway.deployment.submits[0].request.sampling.seed == (1 << 64) - 1


async def test_chat_logprobs(gateway: Gateway) -> None:
    gateway.deployment.script = lambda _: text_tokens("é!")
    async with async_client(gateway) as api:
        answer = await api.chat.completions.create(
            model="default",
            messages=HELLO,
            logprobs=True,
            top_logprobs=3,
        )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert [entry.bytes for entry in logprobs.content] == [[0xC3], [0xA9], [0x21]]
    assert logprobs.content[2].token == "!"
    assert [top.logprob for top in logprobs.content[2].top_logprobs] == [-0.25, -1.5, -9999.0]


async def test_completions(gateway: Gateway) -> None:
    async with async_client(gateway) as api:
        answer = await api.completions.create(
            model="default", prompt=["first", "second"], n=2, echo=True, max_tokens=5
        )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in answer.choices] == ["firstHello"] * 2 + ["secondHello"] * 2
    assert {choice.finish_reason for choice in answer.choices} == {"length"}
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 20


async def test_completion_stream_with_logprobs(gateway: Gateway) -> None:
    async with async_client(gateway) as api:
        stream = await api.completions.create(
            model="default", prompt=[104, 105], logprobs=2, max_tokens=3, stream=True
        )
        chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks) == "Hel"
    logprobs = [chunk.choices[0].logprobs for chunk in chunks]
    shown = [each for each in logprobs if each is not None]
    assert [each.tokens for each in shown] == [["H"], ["e"], ["l"]]
    assert [each.text_offset for each in shown] == [[0], [1], [2]]
    assert shown[0].top_logprobs == [{"H": -0.25, "<|im_end|>": -1.5}]


async def test_models(gateway: Gateway) -> None:
    async with async_client(gateway) as api:
        assert [model.id async for model in api.models.list()] == ["org/fake-1b", "default"]
        assert (await api.models.retrieve("org/fake-1b")).id == "org/fake-1b"
        assert (await api.models.retrieve("default")).id == "default"
        with pytest.raises(openai.NotFoundError):
            await api.models.retrieve("gpt-4o")


async def test_the_clients_errors(gateway: Gateway) -> None:
    async with async_client(gateway) as api:
        with pytest.raises(openai.NotFoundError) as unknown:
            await api.chat.completions.create(model="gpt-4o", messages=HELLO)
        assert unknown.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError) as wrong:
            await api.completions.create(model="default", prompt="x", temperature=-1)
        assert wrong.value.param == "temperature"
        gateway.deployment.refusal = (RefusalKind.OVERLOADED, "full", 2.2)
        with pytest.raises(openai.RateLimitError) as busy:
            await api.completions.create(model="default", prompt="x")
        assert busy.value.response.headers["retry-after"] == "3"


async def test_a_stream_that_breaks_raises(gateway: Gateway) -> None:
    gateway.deployment.hold_at = 3
    async with async_client(gateway) as api:
        stream = await api.completions.create(
            model="default", prompt="x", stream=True, extra_body={"slo": {"deadline_ms": 300}}
        )
        texts = []

        async def read() -> None:
            async for chunk in stream:
                texts.append(chunk.choices[0].text)

        with pytest.raises(openai.APIError, match="deadline"):
            await read()
    assert "".join(texts) == "Hel"
