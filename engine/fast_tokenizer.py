"""Reading a `tokenizer.json` of the `tokenizers` library, with our errors for its faults."""

from pathlib import Path

import tokenizers

from core.errors import ModelError


def read_fast_tokenizer(path: Path) -> tokenizers.Tokenizer:
    """The tokenizer in the file at `path`.

    Raises:
        ModelError: it is missing, or not a tokenizer this version of the library can read.
    """
    if not path.is_file():
        raise ModelError(f"{path}: no such tokenizer file")
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:
        raise ModelError(f"{path}: not a readable tokenizer.json: {error}") from error


def vocabulary_end(tokenizer: tokenizers.Tokenizer) -> int:
    """One past the highest token id (ids may have gaps)."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
