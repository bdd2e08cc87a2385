"""The shapes of answers."""

from core.request import FinishReason, SampledToken
from engine.tokenizer import Tokenizer
from gateway.choice_stream import Delta
from gateway.responses import ChatShape, CompletionShape, Envelope, WholeChoice, usage_json
from gateway.session_actions import Usage

USAGE = Usage(3, 4, 2)
TEXT = Delta(0, "hi", (SampledToken(0, 0, 104),), None)
END = Delta(0, "", (), FinishReason.STOP)


def envelope(include_usage: bool = False) -> Envelope:
    return Envelope(id="x", model="m", fingerprint="fp", created_s=7, include_usage=include_usage)


def test_usage() -> None:
    assert usage_json(USAGE) == {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 2},
    }


def test_a_chat_chunk(tokenizer: Tokenizer) -> None:
    shape = ChatShape(envelope(), tokenizer, logprobs=False)
    assert shape.chunks(1, TEXT) == [
        {
            "id": "x",
            "object": "chat.completion.chunk",
            "created": 7,
            "model": "m",
            "system_fingerprint": "fp",
            "choices": [
                {"index": 1, "delta": {"content": "hi"}, "logprobs": None, "finish_reason": None}
            ],
        }
    ]
    (end,) = shape.chunks(0, END)
    assert end["choices"][0]["delta"] == {}
    assert end["choices"][0]["finish_reason"] == "stop"
    assert shape.chunks(0, Delta(0, "", (SampledToken(0, 0, 104),), None)) == []


def test_text_and_end_in_one_delta_are_two_chunks(tokenizer: Tokenizer) -> None:
    both = Delta(0, "hi", (), FinishReason.LENGTH)
    for shape in (
        ChatShape(envelope(), tokenizer, False),
        CompletionShape(envelope(), tokenizer, False, [""]),
    ):
        text, end = shape.chunks(0, both)
        assert text["choices"][0]["finish_reason"] is None
        assert end["choices"][0]["finish_reason"] == "length"


def test_usage_in_a_stream_is_null_but_in_the_last_chunk(tokenizer: Tokenizer) -> None:
    shape = ChatShape(envelope(include_usage=True), tokenizer, False)
    assert shape.opening(0)[0]["usage"] is None
    last = shape.usage_chunk(USAGE)
    assert (last["choices"], last["usage"]) == ([], usage_json(USAGE))


def test_whole_answers(tokenizer: Tokenizer) -> None:
    choice = WholeChoice()
    for delta in (TEXT, END):
        choice.add(delta)
    chat = ChatShape(envelope(), tokenizer, False).whole([choice], USAGE)
    assert chat["object"] == "chat.completion"
    assert chat["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hi", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    shape = CompletionShape(envelope(), tokenizer, False, ["say "])
    assert shape.opening(0)[0]["choices"][0]["text"] == "say "
    completion = shape.whole([choice], USAGE)
    assert completion["object"] == "text_completion"
    assert completion["choices"][0]["text"] == "say hi"
