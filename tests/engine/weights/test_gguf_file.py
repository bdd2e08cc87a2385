"""Damaged GGUF files are refused with their name and what is wrong."""

import os
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind, GGUFReader

from core.errors import ModelError
from engine.weights.gguf_file import open_gguf
from tests.engine.tokenizer_cases import sentencepiece_metadata
from tests.engine.weights.gguf_builder import write_gguf, write_tiny


def test_fields_and_tensors_are_those_of_the_package_s_reader(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    general = {**sentencepiece_metadata(), "some.flags": [True, False], "some.words": ["", "é"]}
    write_tiny(path, general=general)
    ours, theirs = open_gguf(path), GGUFReader(path)
    assert list(ours.fields) == list(theirs.fields)
    for name, field in theirs.fields.items():
        assert ours.fields[name].contents() == field.contents()
        assert ours.fields[name].types == field.types
    for mine, other in zip(ours.tensors, theirs.tensors, strict=True):
        assert (mine.name, mine.data_offset) == (other.name, other.data_offset)
        assert np.array_equal(mine.data, other.data)


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    whole, cut = tmp_path / "m.gguf", tmp_path / "cut.gguf"
    write_tiny(whole, general=sentencepiece_metadata())
    content = whole.read_bytes()
    last = max(tensor.data_offset + tensor.n_bytes for tensor in open_gguf(whole).tensors)
    for length in [*range(4, 60), *range(60, last, 4_001), last - 1]:
        cut.write_bytes(content[:length])
        with pytest.raises(ModelError, match=r"cut\.gguf: truncated"):
            open_gguf(cut)


def test_a_short_file_names_the_tensor_and_both_sizes(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_tiny(path)
    tensor = max(open_gguf(path).tensors, key=lambda tensor: tensor.data_offset)
    end = tensor.data_offset + tensor.n_bytes
    os.truncate(path, end - 1)
    with pytest.raises(ModelError, match=f"'{tensor.name}' ends at byte {end}.* has {end - 1}"):
        open_gguf(path)


@pytest.mark.parametrize("content", [b"", b"GG", b"PK\x03\x04 not a model at all"])
def test_something_else_is_not_a_gguf_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(ModelError, match=r"m\.gguf: not a GGUF file"):
        open_gguf(tmp_path / "m.gguf")


def test_an_unknown_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 99, 0, 0))
    with pytest.raises(ModelError, match=r"malformed.*version 99"):
        open_gguf(tmp_path / "m.gguf")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"gone\.gguf: can't be read"):
        open_gguf(tmp_path / "gone.gguf")


def test_an_unknown_tensor_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, "llama", {}, {"odd": (np.zeros(32, np.float32), Kind.F32)})
    content = bytearray(path.read_bytes())
    at = content.index(b"odd") + 3 + 4 + 8  # name, number of dimensions, one dimension
    content[at : at + 4] = struct.pack("<I", 777)
    path.write_bytes(content)
    with pytest.raises(ModelError, match="'odd' has the unknown type 777"):
        open_gguf(path)


def test_a_part_of_a_split_model_is_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path / "m.gguf", general={"split.count": 2})
    with pytest.raises(ModelError, match="split"):
        open_gguf(tmp_path / "m.gguf")


@pytest.mark.parametrize("seed", range(40))
def test_garbled_headers_never_escape_as_another_error(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_tiny(path, general=sentencepiece_metadata())
    content, random = bytearray(path.read_bytes()), np.random.default_rng(seed)
    header = open_gguf(path).data_offset
    for at in random.integers(4, header, 3):
        content[at] = random.integers(0, 256)
    path.write_bytes(content)
    with suppress(ModelError):  # anything else fails the test
        open_gguf(path)
