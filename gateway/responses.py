"""Answers in the OpenAI API's shapes, whole and in chunks.

`ChatShape` and `CompletionShape` have the same methods, so that one handler writes both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from core.request import FinishReason, SampledToken
from engine.tokenizer import Tokenizer
from gateway.choice_stream import Delta
from gateway.session_actions import Usage
from gateway.token_logprobs import chat_logprobs, completion_logprobs

Json = dict[str, Any]


@dataclass(slots=True)
class WholeChoice:
    """One choice, collected until its end."""

    pieces: list[str] = field(default_factory=list)
    tokens: list[SampledToken] = field(default_factory=list)
    finish: FinishReason | None = None

    def add(self, delta: Delta) -> None:
        self.pieces.append(delta.text)
        self.tokens.extend(delta.tokens)
        self.finish = delta.finish or self.finish

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Shape(Protocol):
    """How an endpoint says things."""

    def opening(self, index: int) -> list[Json]:
        """Chunks that begin choice `index`."""
        ...

    def chunks(self, index: int, delta: Delta) -> list[Json]: ...

    def usage_chunk(self, usage: Usage) -> Json: ...

    def whole(self, choices: Sequence[WholeChoice], usage: Usage) -> Json: ...


def usage_json(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What every object of one answer has in common."""

    id: str
    model: str
    fingerprint: str
    created_s: int
    include_usage: bool
    """Whether the client wants usage in a stream; then every chunk has the field."""

    def wrap(self, kind: str, choices: list[Json]) -> Json:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created_s,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }

    def chunk(self, kind: str, choices: list[Json]) -> Json:
        wrapped = self.wrap(kind, choices)
        if self.include_usage:
            wrapped["usage"] = None
        return wrapped

    def final_chunk(self, kind: str, usage: Usage) -> Json:
        return {**self.wrap(kind, []), "usage": usage_json(usage)}


class ChatShape:
    """chat.completion and chat.completion.chunk"""

    def __init__(self, envelope: Envelope, tokenizer: Tokenizer, logprobs: bool) -> None:
        self._envelope = envelope
        self._tokenizer = tokenizer
        self._logprobs = logprobs

    def opening(self, index: int) -> list[Json]:
        return [self._chunk(index, {"role": "assistant", "content": ""}, (), None)]

    def chunks(self, index: int, delta: Delta) -> list[Json]:
        chunks = []
        if delta.text or (self._logprobs and delta.tokens):
            chunks.append(self._chunk(index, {"content": delta.text}, delta.tokens, None))
        if delta.finish is not None:
            chunks.append(self._chunk(index, {}, (), delta.finish))
        return chunks

    def usage_chunk(self, usage: Usage) -> Json:
        return self._envelope.final_chunk("chat.completion.chunk", usage)

    def whole(self, choices: Sequence[WholeChoice], usage: Usage) -> Json:
        answers = [
            {
                "index": index,
                "message": {"role": "assistant", "content": choice.text, "refusal": None},
                "logprobs": self._logprobs_of(choice.tokens),
                "finish_reason": choice.finish,
            }
            for index, choice in enumerate(choices)
        ]
        return {**self._envelope.wrap("chat.completion", answers), "usage": usage_json(usage)}

    def _chunk(
        self,
        index: int,
        delta: Json,
        tokens: Sequence[SampledToken],
        finish: FinishReason | None,
    ) -> Json:
        logprobs = self._logprobs_of(tokens) if tokens else None
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return self._envelope.chunk("chat.completion.chunk", [choice])

    def _logprobs_of(self, tokens: Sequence[SampledToken]) -> Json | None:
        return chat_logprobs(self._tokenizer, tokens) if self._logprobs else None


class CompletionShape:
    """text_completion, whole and in chunks (of the same name). `echoes` has, per choice, the text
    that is shown before it."""

    def __init__(
        self, envelope: Envelope, tokenizer: Tokenizer, logprobs: bool, echoes: Sequence[str]
    ) -> None:
        self._envelope = envelope
        self._tokenizer = tokenizer
        self._logprobs = logprobs
        self._echoes = echoes
        self._shown_chars = [0] * len(echoes)

    def opening(self, index: int) -> list[Json]:
        echo = self._echoes[index]
        return [self._chunk(index, echo, None, None)] if echo else []

    def chunks(self, index: int, delta: Delta) -> list[Json]:
        chunks = []
        if delta.text or (self._logprobs and delta.tokens):
            logprobs = self._logprobs_of(delta.tokens, self._shown_chars[index])
            chunks.append(self._chunk(index, delta.text, logprobs, None))
            self._shown_chars[index] += len(delta.text)
        if delta.finish is not None:
            chunks.append(self._chunk(index, "", None, delta.finish))
        return chunks

    def usage_chunk(self, usage: Usage) -> Json:
        return self._envelope.final_chunk("text_completion", usage)

    def whole(self, choices: Sequence[WholeChoice], usage: Usage) -> Json:
        answers = [
            _completion_choice(
                index,
                self._echoes[index] + choice.text,
                self._logprobs_of(choice.tokens, 0),
                choice.finish,
            )
            for index, choice in enumerate(choices)
        ]
        return {**self._envelope.wrap("text_completion", answers), "usage": usage_json(usage)}

    def _chunk(
        self, index: int, text: str, logprobs: Json | None, finish: FinishReason | None
    ) -> Json:
        choice = _completion_choice(index, text, logprobs, finish)
        return self._envelope.chunk("text_completion", [choice])

    def _logprobs_of(self, tokens: Sequence[SampledToken], offset: int) -> Json | None:
        return completion_logprobs(self._tokenizer, tokens, offset) if self._logprobs else None


def _completion_choice(
    index: int, text: str, logprobs: Json | None, finish: FinishReason | None
) -> Json:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}
