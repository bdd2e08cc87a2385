"""Log probabilities in both shapes."""

import math

from core.request import SampledToken, TokenLogprobs
from engine.tokenizer import Tokenizer
from gateway.token_logprobs import LEAST_LOGPROB, chat_logprobs, completion_logprobs

A = SampledToken(0, 0, ord("a"), None, TokenLogprobs(-0.5, ((ord("b"), -0.25), (ord("a"), -0.5))))
HALF = SampledToken(0, 1, 0xC3, None, TokenLogprobs(-1.0, ((0xC3, -1.0), (0xC4, -math.inf))))
BARE = SampledToken(0, 2, ord("c"))


def test_chat(tokenizer: Tokenizer) -> None:
    content = chat_logprobs(tokenizer, [A, HALF, BARE])["content"]
    assert [entry["token"] for entry in content] == ["a", "\ufffd"]
    assert content[0]["top_logprobs"] == [
        {"token": "b", "logprob": -0.25, "bytes": [98]},
        {"token": "a", "logprob": -0.5, "bytes": [97]},
    ]
    assert content[1]["bytes"] == [0xC3]
    assert content[1]["top_logprobs"][1]["logprob"] == LEAST_LOGPROB


def test_completion(tokenizer: Tokenizer) -> None:
    assert completion_logprobs(tokenizer, [A, HALF], 10) == {
        "tokens": ["a", "\ufffd"],
        "token_logprobs": [-0.5, -1.0],
        "top_logprobs": [{"b": -0.25, "a": -0.5}, {"\ufffd": -1.0}],
        "text_offset": [10, 11],
    }


def test_without_alternatives_the_drawn_token_is_the_only_one(tokenizer: Tokenizer) -> None:
    alone = SampledToken(0, 0, ord("a"), None, TokenLogprobs(-0.5))
    assert completion_logprobs(tokenizer, [alone], 0)["top_logprobs"] == [{"a": -0.5}]
    assert chat_logprobs(tokenizer, [alone])["content"][0]["top_logprobs"] == []
