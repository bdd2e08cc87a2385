"""Log probabilities of shown tokens, in the shapes of the two endpoints."""

from collections.abc import Iterable
from typing import Any

from core.request import SampledToken
from engine.tokenizer import Tokenizer

LEAST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON doesn't have."""


def chat_logprobs(tokenizer: Tokenizer, tokens: Iterable[SampledToken]) -> dict[str, Any]:
    """`choices[].logprobs` of a chat completion and of its chunks."""
    content = []
    for sampled in tokens:
        if sampled.logprobs is None:
            continue
        entry = _entry(tokenizer, sampled.token, sampled.logprobs.logprob)
        entry["top_logprobs"] = [
            _entry(tokenizer, token, logprob) for token, logprob in sampled.logprobs.top
        ]
        content.append(entry)
    return {"content": content, "refusal": None}


def _entry(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    data = tokenizer.token_bytes(token)
    return {
        "token": data.decode("utf-8", "replace"),
        "logprob": max(logprob, LEAST_LOGPROB),
        "bytes": list(data),
    }


def completion_logprobs(
    tokenizer: Tokenizer, tokens: Iterable[SampledToken], text_offset: int
) -> dict[str, Any]:
    """`choices[].logprobs` of a completion: parallel lists, the drawn token among its
    alternatives. `text_offset`: characters of the choice's text before these tokens."""
    texts: list[str] = []
    logprobs: list[float] = []
    tops: list[dict[str, float]] = []
    offsets: list[int] = []
    for sampled in tokens:
        if sampled.logprobs is None:
            continue
        text = tokenizer.token_text(sampled.token)
        own = max(sampled.logprobs.logprob, LEAST_LOGPROB)
        top: dict[str, float] = {}
        for token, logprob in sampled.logprobs.top:
            # Parts of characters share a text; the likeliest of them stays.
            top.setdefault(tokenizer.token_text(token), max(logprob, LEAST_LOGPROB))
        top.setdefault(text, own)
        texts.append(text)
        logprobs.append(own)
        tops.append(top)
        offsets.append(text_offset)
        text_offset += len(text)
    return {
        "tokens": texts,
        "token_logprobs": logprobs,
        "top_logprobs": tops,
        "text_offset": offsets,
    }
