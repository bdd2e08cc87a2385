"""What each token id stands for, as bytes: the base of decoding, whole or token by token.

Text is the UTF-8 reading of the concatenated bytes, so a character may lie across tokens and a
prefix of the bytes is always a prefix of the answer. (`tokenizers` itself decodes whole id lists
only, and replaces a whole run of byte tokens when any part of it is invalid; on valid text the two
agree.)
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tokenizers

from core.errors import ModelError
from engine.fast_tokenizer import vocabulary_end

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True)
class TokenTable:
    """Bytes by id. `special` ids are control marks: they have bytes but no place in the text.
    `strips_space`: a text's first space is the SentencePiece prefix, not part of the text."""

    token_bytes: tuple[bytes, ...]
    special: frozenset[int]
    strips_space: bool


@dataclass(frozen=True, slots=True)
class _Spelling:
    """How a tokenizer's decoder reads its vocabulary's strings."""

    read: Callable[[str], bytes]
    read_added: Callable[[str], bytes]
    strips_space: bool


def byte_spelling() -> dict[int, str]:
    """GPT-2's printable spelling of every byte: itself where printable Latin-1, else shifted
    to U+0100 and up in order (Radford et al. 2019, `bytes_to_unicode`)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in printable]
    spelling = {byte: chr(byte) for byte in printable}
    spelling.update({byte: chr(0x100 + place) for place, byte in enumerate(hidden)})
    return spelling


def build_token_table(tokenizer: tokenizers.Tokenizer) -> TokenTable:
    """The table of every id of `tokenizer`; ids without a token have no bytes.

    Raises:
        ModelError: its decoder is of a kind that isn't known here.
    """
    spelling = _spelling(tokenizer)
    table = [b""] * vocabulary_end(tokenizer)
    for token, token_id in tokenizer.get_vocab(with_added_tokens=False).items():
        table[token_id] = spelling.read(token)
    special: set[int] = set()
    for token_id, added in tokenizer.get_added_tokens_decoder().items():
        table[token_id] = spelling.read_added(added.content)
        if added.special:
            special.add(token_id)
    return TokenTable(tuple(table), frozenset(special), spelling.strips_space)


def _spelling(tokenizer: tokenizers.Tokenizer) -> _Spelling:
    decoder = tokenizer.decoder
    steps: list[Mapping[str, Any]] = []
    if decoder is not None:
        state: dict[str, Any] = json.loads(decoder.__getstate__())
        steps = state["decoders"] if state["type"] == "Sequence" else [state]
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return _Spelling(_byte_level_reader(), str.encode, strips_space=False)
    if not kinds or not set(kinds) <= {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}:
        raise ModelError(
            f"tokenizer.json: a decoder of {' + '.join(kinds) or 'no steps'} is not supported "
            "(ByteLevel and SentencePiece's are)"
        )
    replacements, strips = [], False
    for step in steps:
        if step["type"] == "Replace":
            replacements.append((_literal(step["pattern"]), step["content"]))
        elif step["type"] == "Metaspace":
            replacements.append((step["replacement"], " "))
            strips = strips or step.get("prepend_scheme", "always") != "never"
        elif step["type"] == "Strip":
            if (step["content"], step["start"], step["stop"]) != (" ", 1, 0):
                raise ModelError("tokenizer.json: a Strip decoder of this kind is not supported")
            strips = True
    read = _sentencepiece_reader(tuple(replacements), "ByteFallback" in kinds)
    return _Spelling(read, read, strips)


def _literal(pattern: Mapping[str, str]) -> str:
    if "String" not in pattern:
        raise ModelError("tokenizer.json: a Replace decoder with a regular expression")
    return pattern["String"]


def _byte_level_reader() -> Callable[[str], bytes]:
    value_of = {char: byte for byte, char in byte_spelling().items()}

    def read(token: str) -> bytes:
        try:
            return bytes([value_of[char] for char in token])
        except KeyError:  # not spelled in bytes: stands for itself
            return token.encode()

    return read


def _sentencepiece_reader(
    replacements: tuple[tuple[str, str], ...], byte_fallback: bool
) -> Callable[[str], bytes]:
    def read(token: str) -> bytes:
        if byte_fallback and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        for old, new in replacements:
            token = token.replace(old, new)
        return token.encode()

    return read
