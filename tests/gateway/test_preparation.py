"""Bodies into generations."""

import asyncio
import threading
import time
from dataclasses import replace

import pytest

from core.config import Config, GatewayConfig
from core.errors import ClientError, PromptTooLong, UnknownModel
from gateway.openai_models import ChatBody, CompletionBody
from gateway.preparation import INLINE_CHARS, MESSAGE_CHARS, Preparation
from gateway.served_model import ServedModel
from tests.gateway.fake_deployment import token_text


@pytest.fixture
def preparation(model: ServedModel) -> Preparation:
    return Preparation(model, Config(gateway=GatewayConfig(default_max_tokens=100)))


def chat(content: str = "hi", **fields: object) -> ChatBody:
    messages = [{"role": "user", "content": content}]
    return ChatBody.model_validate({"messages": messages, **fields})


def messages(count: int, **fields: object) -> ChatBody:
    """With nothing in them."""
    return ChatBody.model_validate(
        {"messages": [{"role": "user", "content": "", **fields} for _ in range(count)]}
    )


def text(prompt: object, **fields: object) -> CompletionBody:
    return CompletionBody.model_validate({"prompt": prompt, **fields})


async def test_a_chat_is_one_generation(preparation: Preparation) -> None:
    prepared = await preparation.chat(chat(), {})
    (generation,) = prepared.generations
    assert prepared.request_id == generation.request
    assert prepared.request_id.startswith("chatcmpl-")
    assert token_text(generation.prompt) == "user\nhi\nassistant\n"
    assert generation.sampling.max_tokens == 100
    assert not generation.continues_prompt


async def test_each_prompt_is_a_generation_with_its_own_id(preparation: Preparation) -> None:
    prepared = await preparation.completion(text(["a", [98, 99]], echo=True, n=2), {})
    assert [token_text(g.prompt) for g in prepared.generations] == ["a", "bc"]
    assert prepared.echoes == ("a", "bc")
    assert prepared.choices == 2
    assert len({prepared.request_id, *(g.request for g in prepared.generations)}) == 3
    assert all(g.continues_prompt and g.sampling.max_tokens == 16 for g in prepared.generations)


async def test_a_long_text_is_tokenised_aside(preparation: Preparation) -> None:
    with pytest.raises(PromptTooLong, match=f"{INLINE_CHARS} tokens"):
        await preparation.completion(text("x" * INLINE_CHARS), {})


class TracedTokenizer:
    """Notes in which threads it is used."""

    def __init__(self, model: ServedModel) -> None:
        self._tokenizer = model.tokenizer
        self.threads: set[threading.Thread] = set()

    def __getattr__(self, name: str) -> object:
        if name in ("render_chat", "encode"):
            self.threads.add(threading.current_thread())
        return getattr(self._tokenizer, name)


MANY = INLINE_CHARS // MESSAGE_CHARS


@pytest.mark.parametrize(
    ("body", "aside"),
    [
        (chat(), False),
        (chat("x" * INLINE_CHARS), True),
        (chat(chat_template_kwargs={"enable_thinking": False}), False),
        (chat(chat_template_kwargs={"a": "x" * INLINE_CHARS}), True),
        (chat(chat_template_kwargs={"x" * INLINE_CHARS: 1}), True),
        (chat(chat_template_kwargs={"documents": [{}]}), True),
        (messages(MANY // 2), False),
        (messages(MANY), True),
        (messages(1, name="x" * INLINE_CHARS), True),
        (text("x"), False),
        (text(["x" * 100] * 20), False),
        (text(["x" * 100] * 41), True),
    ],
)
async def test_all_that_makes_work_counts(
    model: ServedModel, body: ChatBody | CompletionBody, aside: bool
) -> None:
    tokenizer = TracedTokenizer(model)
    traced = replace(model, tokenizer=tokenizer)  # type: ignore[arg-type]  # has what is used
    preparation = Preparation(traced, Config())
    prepare = preparation.chat if isinstance(body, ChatBody) else preparation.completion
    try:
        await prepare(body, {})  # type: ignore[arg-type]  # each gets its own
    except PromptTooLong:
        assert aside
    assert (threading.current_thread() not in tokenizer.threads) is aside


async def test_a_very_long_text_does_not_stop_the_loop(preparation: Preparation) -> None:
    over = asyncio.Event()

    started = asyncio.Event()

    async def longest_gap_s() -> float:
        longest_s = 0.0
        started.set()
        while not over.is_set():
            before_s = time.perf_counter()
            await asyncio.sleep(0.001)
            longest_s = max(longest_s, time.perf_counter() - before_s)
        return longest_s

    others = asyncio.create_task(longest_gap_s())
    await started.wait()
    begun_s = time.perf_counter()
    with pytest.raises(PromptTooLong):
        await preparation.completion(text("x y" * 300_000), {})
    took_s = time.perf_counter() - begun_s
    over.set()
    assert await others < took_s / 2


async def test_the_larger_name_of_max_tokens_wins(preparation: Preparation) -> None:
    prepared = await preparation.chat(chat(max_tokens=3, max_completion_tokens=4), {})
    assert prepared.generations[0].sampling.max_tokens == 4


async def test_all_names_of_the_model(preparation: Preparation) -> None:
    for name in (None, "default", "org/fake-1b"):
        await preparation.chat(chat(model=name), {})
    with pytest.raises(UnknownModel):
        await preparation.chat(chat(model="fake-1b"), {})


async def test_stop_strings_are_told_once(preparation: Preparation) -> None:
    prepared = await preparation.chat(chat(stop=["a", "b", "a"]), {})
    assert prepared.generations[0].stop == ("a", "b")


async def test_what_a_template_refuses_is_the_callers(preparation: Preparation) -> None:
    with pytest.raises(ClientError):
        await preparation.chat(chat(chat_template_kwargs={"messages": []}), {})
