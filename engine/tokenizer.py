"""Text to token ids and back, and chat messages to text. Loads no torch."""

import codecs
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from core.errors import ClientError, ModelError
from engine.chat_template import ChatTemplate
from engine.fast_tokenizer import read_fast_tokenizer
from engine.token_table import TokenTable, build_token_table

_TOKEN_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")


class Tokenizer:
    """A prepared model's tokenizer; immutable, and safe to use from several threads.

    Attributes:
        table: bytes by token id, for `engine.detokenizer.IncrementalDetokenizer`.
        bos_token_id: the beginning-of-sequence id, if there is one.
        eos_token_ids: the ids that end a text.
        vocab_size: one past the highest id; a model's logits may have more rows (padding).
    """

    def __init__(self, fast: tokenizers.Tokenizer, config: Mapping[str, Any]) -> None:
        self._fast = fast
        self.table: TokenTable = build_token_table(fast)
        self.vocab_size: int = len(self.table.token_bytes)
        self.bos_token_id: int | None = config.get("bos_token_id")
        self.eos_token_ids: tuple[int, ...] = tuple(config.get("eos_token_ids", ()))
        specials = {name: config[name] for name in _TOKEN_NAMES if config.get(name) is not None}
        self._templates = {
            name: ChatTemplate(source, specials)
            for name, source in _template_sources(config.get("chat_template")).items()
        }

    @classmethod
    def load(cls, directory: Path) -> "Tokenizer":
        """The tokenizer that `engine.tokenizer_files` wrote to `directory`.

        Raises:
            ModelError: a file is missing or faulty.
        """
        path = directory / "tokenizer_config.json"
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelError(f"{path}: {error}") from error
        return cls(read_fast_tokenizer(directory / "tokenizer.json"), config)

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """Token ids of `text`. Special tokens' names in it count as those tokens.

        Args:
            add_special: add BOS and the like where the model has them. False for the text of
                `render_chat`: templates write them themselves.

        Raises:
            ClientError: the text holds half a surrogate pair, which no UTF-8 can carry.
        """
        try:
            # A batch of one: unlike `encode` it lets other Python threads run meanwhile, and a
            # long text takes seconds. "fast" leaves out the character offsets.
            batch = self._fast.encode_batch_fast([text], add_special_tokens=add_special)
            ids: list[int] = batch[0].ids
        except TypeError as error:
            if not isinstance(text, str):
                raise
            raise ClientError("the text holds half a surrogate pair: not Unicode text") from error
        return ids

    def decode(self, ids: Iterable[int], *, keep_leading_space: bool = False) -> str:
        """Text of `ids`, without special tokens. Bytes that make no character become U+FFFD; an
        unfinished character at the end is left out.

        Args:
            keep_leading_space: see IncrementalDetokenizer.
        """
        table = self.table
        size = len(table.token_bytes)
        data = b"".join(
            table.token_bytes[token]
            for token in ids
            if 0 <= token < size and token not in table.special
        )
        if table.strips_space and not keep_leading_space:
            data = data.removeprefix(b" ")
        return codecs.getincrementaldecoder("utf-8")(errors="replace").decode(data)

    def token_bytes(self, token: int) -> bytes:
        """What `token` stands for; a special token's name, nothing for an id without a token."""
        return self.table.token_bytes[token] if 0 <= token < self.vocab_size else b""

    def token_text(self, token: int) -> str:
        """`token_bytes` as text; parts of a character become U+FFFD."""
        return self.token_bytes(token).decode("utf-8", errors="replace")

    @property
    def has_chat_template(self) -> bool:
        return bool(self._templates)

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt's text (to be encoded with `add_special=False`); see ChatTemplate.render.

        Raises:
            ClientError: the model has no chat template, or its template refuses the messages.
        """
        template = self._templates.get("tool_use") if tools else None
        template = template or self._templates.get("default")
        if template is None:
            raise ClientError(
                "this model has no chat template; use /v1/completions", param="messages"
            )
        return template.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            tools=tools,
            variables=variables,
        )


def _template_sources(entry: Any) -> dict[str, str]:
    if entry is None:
        return {}
    if isinstance(entry, str):
        return {"default": entry}
    return {named["name"]: named["template"] for named in entry}
