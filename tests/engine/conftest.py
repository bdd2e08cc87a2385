"""Fixtures of the engine's tests."""

import gguf
import pytest

from engine.tokenizer import Tokenizer
from engine.tokenizer_files import write_from_gguf
from tests.engine.tokenizer_cases import smollm2_file


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """The demo model's tokenizer; read once, since its GGUF file takes seconds to read."""
    out = tmp_path_factory.mktemp("smollm2-tokenizer")
    write_from_gguf(gguf.GGUFReader(smollm2_file()), out)
    return Tokenizer.load(out)
