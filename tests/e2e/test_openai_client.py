"""The unmodified `openai` client against a real deployment."""

import asyncio

import openai

from tests.e2e.running import Running


def test_chat(disaggregated: Running) -> None:
    with openai.OpenAI(base_url=f"{disaggregated.url}/v1", api_key="none") as client:
        answer = client.chat.completions.create(
            model="default",
            messages=[{"role": "user", "content": "Hello there"}],
            max_tokens=12,
            temperature=0,
            extra_body={"ignore_eos": True},
        )
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12
    assert answer.choices[0].message.content


def test_streaming_equals_the_whole_answer(disaggregated: Running) -> None:
    with openai.OpenAI(base_url=f"{disaggregated.url}/v1", api_key="none") as client:
        asked = {
            "model": "default",
            "messages": [{"role": "user", "content": "Tell me of the sea"}],
            "max_tokens": 24,
            "seed": 11,
        }
        whole = client.chat.completions.create(**asked)  # type: ignore[call-overload]
        stream = client.chat.completions.create(  # type: ignore[call-overload]
            **asked, stream=True, stream_options={"include_usage": True}
        )
        pieces = list(stream)
    text = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
    assert text == whole.choices[0].message.content
    assert pieces[-1].usage is not None
    assert pieces[-1].usage.completion_tokens == whole.usage.completion_tokens


async def test_async_calls_in_parallel(disaggregated: Running) -> None:
    async with openai.AsyncOpenAI(base_url=f"{disaggregated.url}/v1", api_key="none") as client:
        answers = await asyncio.gather(
            *(
                client.completions.create(
                    model="default", prompt=f"number {n}", max_tokens=8, temperature=0, n=2
                )
                for n in range(8)
            )
        )
        models = await client.models.list()
    assert all(len(answer.choices) == 2 for answer in answers)
    assert "default" in [model.id for model in models.data]
