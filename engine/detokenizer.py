"""Token ids to text while they arrive."""

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.token_table import TokenTable


class IncrementalDetokenizer:
    """Turns a stream of token ids into a stream of text, in O(1) a token.

    What `push` returns, concatenated, is exactly `Tokenizer.decode` of all the ids. Bytes of an
    unfinished character are held back until it is whole, and never shown where the stream ends
    before that; U+FFFD stands only for bytes that can't become a character.

    Args:
        table: of the tokenizer (`tokenizer.table`).
        keep_leading_space: the text goes on from a prompt, so a SentencePiece vocabulary's first
            space belongs to it.
    """

    def __init__(self, table: "TokenTable", *, keep_leading_space: bool = False) -> None:
        self._bytes = table.token_bytes
        self._special = table.special
        self._strip = table.strips_space and not keep_leading_space
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The text that `token` completes; empty for special tokens and ids without a token."""
        if token in self._special or not 0 <= token < len(self._bytes):
            return ""
        data = self._bytes[token]
        if self._strip and data:
            self._strip = False
            data = data.removeprefix(b" ")
        return self._utf8.decode(data)
