"""Request bodies of the OpenAI API, with the field's usual extensions.

Tolerant as OpenAI's: unknown fields are ignored, null is "not given". Strict as OpenAI's: a wrong
type is an error that names the field. What is known but not supported (images, tools, structured
output) is refused rather than ignored, because the answer would not be what was asked for.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

MAX_STOP_STRINGS = 16
MAX_PROMPTS = 128


class Body(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, protected_namespaces=())


def _unsupported(field: str, why: str) -> PydanticCustomError:
    return PydanticCustomError("unsupported", "{why}", {"why": why, "param": field})


def _stop_list(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return [] if value is None else [value]
    if not isinstance(value, list):
        raise PydanticCustomError("stop_type", "must be a string or a list of strings")
    return value


def _content_text(value: Any) -> Any:
    """A message's content as one text; parts are joined as they are."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise PydanticCustomError("content_type", "must be a string or a list of text parts")
    texts = []
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in ("text", "refusal"):
            named = f"'{kind}'" if isinstance(kind, str) else "without a type"
            raise PydanticCustomError(
                "content_part", "holds a part {named}: this model reads text only", {"named": named}
            )
        text = part.get(kind)
        if not isinstance(text, str):
            raise PydanticCustomError("content_part", "holds a text part without text")
        texts.append(text)
    return "".join(texts)


Prompts = list[str | list[int]]


def _prompt_list(value: Any) -> Prompts:
    """The four forms of a completion's prompt as one: a list of texts or token lists."""
    whole = [value] if isinstance(value, str) else value
    if isinstance(value, list) and value and all(_is_token(item) for item in value):
        whole = [value]
    if not isinstance(whole, list):
        raise _prompt_type()
    if not whole:
        raise PydanticCustomError("prompt_empty", "must not be empty")
    for item in whole:
        tokens = isinstance(item, list) and item and all(_is_token(token) for token in item)
        if not (isinstance(item, str) or tokens):
            raise _prompt_type()
    if len(whole) > MAX_PROMPTS:
        raise PydanticCustomError(
            "prompt_count",
            "holds {count} prompts, more than {limit}",
            {"count": len(whole), "limit": MAX_PROMPTS},
        )
    return whole


def _prompt_type() -> PydanticCustomError:
    return PydanticCustomError(
        "prompt_type",
        "must be a string, a list of strings, a list of token ids, or a list of those",
    )


def _is_token(value: Any) -> bool:
    return type(value) is int  # bool is an int to isinstance


Stop = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=1_024)]],
    BeforeValidator(_stop_list),
    Field(max_length=MAX_STOP_STRINGS),
]


class StreamOptions(Body):
    include_usage: bool | None = None


class SloFields(Body):
    """baton's extension: targets of this request; the class fills in what isn't given."""

    slo_class: str | None = Field(default=None, alias="class")
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    deadline_ms: float | None = None


class GenerationBody(Body):
    """What both endpoints share."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    stop: Stop = []
    seed: int | None = None
    user: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    # Extensions that most open servers share.
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    stop_token_ids: list[int] | None = None
    cache_salt: str | None = None
    slo: SloFields | None = None

    @model_validator(mode="after")
    def _options_belong_to_streams(self) -> "GenerationBody":
        if self.stream_options is not None and not self.stream:
            raise _unsupported("stream_options", "stream_options needs stream to be true")
        return self


class Message(Body):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Annotated[str | None, BeforeValidator(_content_text)] = None
    name: str | None = None

    def for_template(self) -> dict[str, str]:
        """As chat templates know messages; `developer` is OpenAI's newer word for `system`."""
        role = "system" if self.role == "developer" else self.role
        named = {} if self.name is None else {"name": self.name}
        return {"role": role, "content": self.content or "", **named}


class ChatBody(GenerationBody):
    """POST /v1/chat/completions"""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, raw: Any) -> Any:
        if not isinstance(raw, dict):
            return raw
        form = raw.get("response_format")
        if isinstance(form, dict) and form.get("type", "text") != "text":
            raise _unsupported("response_format", "only text answers are supported")
        for field in ("tools", "functions"):
            if raw.get(field) and raw.get("tool_choice") != "none":
                raise _unsupported(field, f"{field} are not supported")
        if raw.get("modalities") not in (None, [], ["text"]):
            raise _unsupported("modalities", "only text answers are supported")
        return raw

    @model_validator(mode="after")
    def _consistent(self) -> "ChatBody":
        if self.top_logprobs is not None and not self.logprobs:
            raise _unsupported("top_logprobs", "top_logprobs needs logprobs to be true")
        return self


class CompletionBody(GenerationBody):
    """POST /v1/completions"""

    prompt: Annotated[Prompts, BeforeValidator(_prompt_list)]
    logprobs: int | None = None
    echo: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, raw: Any) -> Any:
        if isinstance(raw, dict):
            if raw.get("suffix"):
                raise _unsupported("suffix", "this model can't fill in before a suffix")
            if raw.get("best_of") not in (None, raw.get("n") or 1):
                raise _unsupported("best_of", "best_of other than n is not supported")
        return raw

    @model_validator(mode="after")
    def _consistent(self) -> "CompletionBody":
        if self.echo and self.logprobs is not None:
            raise _unsupported(
                "logprobs",
                "log probabilities of the prompt are not supported: "
                "logprobs and echo exclude each other",
            )
        return self
