"""Reading tokenizer.json."""

from pathlib import Path

import pytest

from core.errors import ModelError
from engine.fast_tokenizer import read_fast_tokenizer, vocabulary_end
from engine.tokenizer_files import write_synthetic


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_synthetic(300, tmp_path)
    assert vocabulary_end(read_fast_tokenizer(tmp_path / "tokenizer.json")) == 300


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"version": "1.0", "model": {}}'])
def test_what_is_no_tokenizer_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "tokenizer.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        read_fast_tokenizer(path)
