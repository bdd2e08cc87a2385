"""Chat messages to prompt text, by the jinja2 template that came with the model.

The environment is the one Hugging Face documents for chat templates: trimmed blocks,
`raise_exception`, `strftime_now`, `tojson` that leaves characters as they are, loop controls and
the `generation` tag.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2.exceptions import SecurityError

from core.errors import ClientError, ModelError
from engine.template_sandbox import BoundedSandbox, TemplateOverrun

MAX_TEMPLATE_CHARS = 1 << 18
_MAX_INDENT = 16
_MAX_TIME_FORMAT = 64
_RESERVED = frozenset({"messages", "tools", "add_generation_prompt"})


class _Refused(Exception):
    """The template's own `raise_exception(message)`."""


class ChatTemplate:
    """One compiled template.

    Args:
        source: jinja2 text.
        special_tokens: `bos_token`, `eos_token`, … as the template may name them.
        now: the local time, for `strftime_now`.

    Raises:
        ModelError: the template is too long, or isn't a template.
    """

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str] | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        if len(source) > MAX_TEMPLATE_CHARS:
            raise ModelError(
                f"the chat template holds {len(source)} characters, more than {MAX_TEMPLATE_CHARS}"
            )
        self._special_tokens = dict(special_tokens or {})
        self._now = now
        self._sandbox = BoundedSandbox(
            filters={"tojson": _to_json},
            functions={"raise_exception": _raise_exception, "strftime_now": self._strftime_now},
        )
        try:
            self._template = self._sandbox.compile_bounded(source)
        except (jinja2.TemplateError, RecursionError, SyntaxError) as error:
            raise ModelError(f"the chat template is faulty: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt's text.

        Args:
            messages: as in the API; content is text, a list of text parts, or None.
            add_generation_prompt: end with the beginning of the assistant's answer.
            tools: function descriptions, for templates that know them.
            variables: further names for the template (`enable_thinking`, …).

        Raises:
            ClientError: the template refuses these messages or can't work with them.
            ModelError: the template does what none may: the model's fault, not the caller's.
        """
        extra = dict(variables or {})
        if taken := _RESERVED & extra.keys():
            raise ClientError(
                f"chat template variables may not be named {', '.join(sorted(taken))}",
                param="chat_template_kwargs",
            )
        names = {
            **self._special_tokens,
            **extra,
            "messages": [_plain(message) for message in messages],
            "tools": list(tools) if tools else None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return self._sandbox.render(self._template, names)
        except _Refused as refusal:
            raise ClientError(str(refusal), param="messages") from None
        except (TemplateOverrun, RecursionError) as error:
            raise ModelError(f"the model's chat template runs away: {error}") from error
        except SecurityError as error:
            raise ModelError(f"the model's chat template is not safe: {error}") from error
        except (
            jinja2.TemplateError,
            TypeError,
            ValueError,
            LookupError,
            AttributeError,
            ArithmeticError,
            AssertionError,
        ) as error:
            raise ClientError(
                f"the model's chat template can't render these messages: {error}",
                param="messages",
            ) from error

    def _strftime_now(self, form: str) -> str:
        # Digits would be field widths, without bound in the C library.
        if len(form) > _MAX_TIME_FORMAT or any(char.isdigit() for char in form):
            raise SecurityError(f"strftime_now can't take {form!r:.80}")
        return self._now().strftime(form)


def _raise_exception(message: str) -> str:
    raise _Refused(message)


def _to_json(
    value: Any,
    *,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without jinja2's escaping for HTML."""
    if indent is not None and not (type(indent) is int and 0 <= indent <= _MAX_INDENT):
        raise SecurityError(f"tojson can't indent by {indent!r:.80}")
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message with its text parts as one text: what templates of text models expect."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(_part_text(part) for part in content)
    return {**message, "content": "" if content is None else content}


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    text = part.get("text") if isinstance(part, Mapping) else None
    if not isinstance(text, str) or part.get("type", "text") != "text":
        raise ClientError(
            "this model reads text only: a message's content must be text or text parts",
            param="messages",
        )
    return text
