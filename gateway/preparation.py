"""A checked body into generations: the prompt's tokens, its limits, its targets."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from core.config import Config
from core.errors import ClientError, PromptTooLong
from core.ids import RequestId, new_request_id
from gateway.generation import Generation
from gateway.openai_models import ChatBody, CompletionBody, GenerationBody
from gateway.sampling_fields import sampling_of
from gateway.served_model import ServedModel
from gateway.slo_fields import slo_of

COMPLETION_MAX_TOKENS = 16
"""OpenAI's default for /v1/completions."""
MAX_ANSWERS = 128
"""Of one HTTP request: prompts times choices."""
INLINE_CHARS = 4_096
"""Longer texts are tokenised in a thread: the loop has other streams to serve."""
MESSAGE_CHARS = 64
"""What a message costs the template by itself, in characters of text."""
TOKENISING_AT_ONCE = 2
"""Threads for that; further long texts wait their turn rather than take all cores."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Prepared:
    """One HTTP request: its id and one generation for each prompt. `echoes` has what is shown
    before each prompt's answers."""

    request_id: str
    generations: tuple[Generation, ...]
    echoes: tuple[str, ...]

    @property
    def choices(self) -> int:
        return self.generations[0].sampling.choices


class Preparation:
    """Knows the model and the configuration; holds nothing of any request."""

    def __init__(self, model: ServedModel, config: Config) -> None:
        self._model = model
        self._config = config
        self._tokenising = asyncio.Semaphore(TOKENISING_AT_ONCE)

    async def chat(self, body: ChatBody, headers: Mapping[str, str]) -> Prepared:
        """Raises:
        ClientError: what was asked for can't be given.
        """
        self._model.require(body.model)
        tokenizer = self._model.tokenizer

        def tokenise() -> list[int]:
            messages = [message.for_template() for message in body.messages]
            text = tokenizer.render_chat(messages, variables=body.chat_template_kwargs)
            return tokenizer.encode(text, add_special=False)

        prompt = await self._aside(tokenise, _chat_chars(body))
        asked = body.max_tokens
        if body.max_completion_tokens is not None:
            asked = body.max_completion_tokens
        request_id = new_request_id("chatcmpl")
        default = self._config.gateway.default_max_tokens
        generation = self._generation(
            request_id, prompt, body, headers, asked, default, param="messages"
        )
        return Prepared(request_id, (generation,), ("",))

    async def completion(self, body: CompletionBody, headers: Mapping[str, str]) -> Prepared:
        """Raises:
        ClientError: what was asked for can't be given.
        """
        self._model.require(body.model)
        if len(body.prompt) * (body.n or 1) > MAX_ANSWERS:
            raise ClientError(
                f"{len(body.prompt)} prompts with {body.n} choices each are more than the "
                f"{MAX_ANSWERS} answers one request may ask for.",
                param="prompt",
            )
        request_id = new_request_id("cmpl")
        chars = sum(len(prompt) for prompt in body.prompt)  # many short ones are a long one
        generations, echoes = [], []
        for index, prompt in enumerate(body.prompt):
            own_id = request_id if len(body.prompt) == 1 else RequestId(f"{request_id}-{index}")
            tokens = await self._prompt_tokens(prompt, chars)
            generations.append(
                self._generation(
                    own_id,
                    tokens,
                    body,
                    headers,
                    body.max_tokens,
                    COMPLETION_MAX_TOKENS,
                    param="prompt",
                )
            )
            echoes.append(self._echo(prompt) if body.echo else "")
        return Prepared(request_id, tuple(generations), tuple(echoes))

    def _generation(
        self,
        request_id: RequestId,
        prompt: Sequence[int],
        body: GenerationBody,
        headers: Mapping[str, str],
        asked_tokens: int | None,
        default_tokens: int,
        *,
        param: str,
    ) -> Generation:
        max_tokens = self._max_tokens(len(prompt), asked_tokens, default_tokens, param)
        return Generation(
            request=request_id,
            prompt=tuple(prompt),
            sampling=sampling_of(
                body,
                max_tokens=max_tokens,
                vocab=self._model.vocab,
                eos_token_ids=self._model.tokenizer.eos_token_ids,
            ),
            slo=slo_of(body.slo, headers, self._config.slo_classes),
            stop=tuple(dict.fromkeys(body.stop)),
            cache_salt=body.cache_salt or "",
            continues_prompt=isinstance(body, CompletionBody),
        )

    def _max_tokens(self, prompt_tokens: int, asked: int | None, default: int, param: str) -> int:
        """A default is cut to what fits; what the caller asked for either fits or is refused."""
        limit = self._model.max_context
        if prompt_tokens == 0:
            raise ClientError("The prompt is empty.", param=param)
        if prompt_tokens >= limit:
            raise PromptTooLong(
                f"This model's maximum context length is {limit} tokens. However, your prompt "
                f"has {prompt_tokens} tokens, which leaves no room for an answer. Please shorten "
                "it.",
                param=param,
            )
        if asked is None:
            return min(default, limit - prompt_tokens)
        if asked < 1:
            raise ClientError(f"max_tokens must be at least 1, not {asked}.", param="max_tokens")
        if prompt_tokens + asked > limit:
            raise PromptTooLong(
                f"This model's maximum context length is {limit} tokens. However, you requested "
                f"{prompt_tokens + asked} tokens ({prompt_tokens} in the prompt, {asked} for the "
                "answer). Please shorten the prompt or ask for fewer tokens.",
                param=param,
            )
        return asked

    async def _prompt_tokens(self, prompt: str | list[int], chars: int) -> list[int]:
        if isinstance(prompt, str):
            text = prompt
            return await self._aside(lambda: self._model.tokenizer.encode(text), chars)
        for token in prompt:
            if not 0 <= token < self._model.vocab:
                raise ClientError(
                    f"{token} is no token id of this model, whose ids are below "
                    f"{self._model.vocab}.",
                    param="prompt",
                )
        return prompt

    def _echo(self, prompt: str | list[int]) -> str:
        return prompt if isinstance(prompt, str) else self._model.tokenizer.decode(prompt)

    async def _aside(self, work: Callable[[], Result], chars: int) -> Result:
        if chars < INLINE_CHARS:
            return work()
        async with self._tokenising:
            return await asyncio.to_thread(work)


def _chat_chars(body: ChatBody) -> int:
    """How much work a chat is, in characters: whatever the template may look at counts. Stops
    counting where it's clear that the work goes aside."""
    chars = 0
    for name, value in (body.chat_template_kwargs or {}).items():
        # What lies inside may be of any size.
        chars += INLINE_CHARS if isinstance(value, list | dict) else len(name) + len(str(value))
        if chars >= INLINE_CHARS:
            return chars
    for message in body.messages:
        chars += MESSAGE_CHARS + len(message.role) + len(message.name or "")
        chars += len(message.content or "")
        if chars >= INLINE_CHARS:
            return chars
    return chars
