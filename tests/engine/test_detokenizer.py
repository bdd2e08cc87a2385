"""Incremental detokenising: always the same text as decoding at once, never a broken character."""

from pathlib import Path

import pytest
from hypothesis import assume, given, strategies as st

from engine.detokenizer import IncrementalDetokenizer
from engine.tokenizer import Tokenizer
from engine.tokenizer_files import write_from_gguf, write_synthetic
from tests.engine.tokenizer_cases import TEXTS, sentencepiece_metadata, write_gguf


@pytest.fixture(scope="module")
def tokenizers(
    tmp_path_factory: pytest.TempPathFactory, smollm2: Tokenizer
) -> dict[str, Tokenizer]:
    root = tmp_path_factory.mktemp("tokenizers")
    write_synthetic(300, root / "bytes")
    write_from_gguf(write_gguf(root / "m.gguf", sentencepiece_metadata()), root / "spm")
    made = {name: Tokenizer.load(root / name) for name in ("bytes", "spm")}
    return {**made, "smollm2": smollm2}


NAMES = st.sampled_from(["bytes", "spm", "smollm2"])


def stream(tokenizer: Tokenizer, ids: list[int], keep: bool = False) -> list[str]:
    detokenizer = IncrementalDetokenizer(tokenizer.table, keep_leading_space=keep)
    return list(map(detokenizer.push, ids))


@given(st.data(), NAMES, st.booleans())
def test_pieces_make_the_whole(
    tokenizers: dict[str, Tokenizer], data: st.DataObject, name: str, keep: bool
) -> None:
    tokenizer = tokenizers[name]
    low_ids = st.integers(0, min(tokenizer.vocab_size, 400) - 1)  # byte tokens live there
    any_ids = st.integers(-1, tokenizer.vocab_size + 3)
    ids = data.draw(st.lists(low_ids | any_ids, max_size=40))
    assert "".join(stream(tokenizer, ids, keep)) == tokenizer.decode(ids, keep_leading_space=keep)


@given(st.text(max_size=60), NAMES)
def test_text_comes_back_whole_and_unbroken(
    tokenizers: dict[str, Tokenizer], text: str, name: str
) -> None:
    tokenizer = tokenizers[name]
    # SmolLM2's vocabulary lacks the bytes of unassigned planes, as its original does.
    known = {data[0] for data in tokenizer.table.token_bytes if len(data) == 1}
    assume(known.issuperset(text.encode()))
    assume(not any(tokenizer.token_text(mark) in text for mark in tokenizer.table.special))
    pieces = stream(tokenizer, tokenizer.encode(text, add_special=False))
    spoken = text
    if name == "spm":  # its blank is a real character too, and the prefix space takes one place
        spoken = text.replace("▁", " ")
        if spoken.startswith(" "):
            spoken = spoken[1:]
    assert "".join(pieces) == spoken
    if "\ufffd" not in text:
        assert all("\ufffd" not in piece for piece in pieces)


@pytest.mark.parametrize("name", ["bytes", "spm", "smollm2"])
def test_a_character_waits_for_its_last_byte(tokenizers: dict[str, Tokenizer], name: str) -> None:
    tokenizer = tokenizers[name]
    first = {"bytes": 0, "spm": 3, "smollm2": None}[name]
    if first is None:
        ids = tokenizer.encode("🜚", add_special=False)  # rare enough to be split
    else:
        ids = [first + byte for byte in "🜚".encode()]
    assert len(ids) > 1
    assert stream(tokenizer, ids) == [*[""] * (len(ids) - 1), "🜚"]
    assert "".join(stream(tokenizer, ids[:-1])) == tokenizer.decode(ids[:-1]) == ""


def test_whole_decoding_agrees_with_the_library(tokenizers: dict[str, Tokenizer]) -> None:
    for tokenizer in tokenizers.values():
        for text in TEXTS:
            ids = tokenizer.encode(text, add_special=True)
            assert tokenizer.decode(ids) == tokenizer._fast.decode(ids, skip_special_tokens=True)


def test_the_prefix_space(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["spm"]
    ids = tokenizer.encode("the", add_special=False)
    assert tokenizer.token_text(ids[0]) == " the"
    assert tokenizer.decode([1, *ids, *ids]) == "the the"
    assert tokenizer.decode(ids, keep_leading_space=True) == " the"
    assert stream(tokenizer, [1, *ids, *ids]) == ["", "the", " the"]
    assert stream(tokenizer, ids, keep=True) == [" the"]


def test_special_tokens_stay_out_of_the_text(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["bytes"]
    ids = tokenizer.encode("<|im_start|>hé<|im_end|>")
    assert "".join(stream(tokenizer, ids)) == "hé"
    assert tokenizer.token_text(258) == "<|im_end|>"
    assert tokenizer.token_bytes(0xC3) == b"\xc3"
    assert tokenizer.token_text(0xC3) == "\ufffd"
    assert tokenizer.token_bytes(300) == b""


def test_a_character_over_a_special_token(tokenizers: dict[str, Tokenizer]) -> None:
    assert tokenizers["bytes"].decode([0xC3, 258, 0xA9]) == "é"
    assert stream(tokenizers["bytes"], [0xC3, 258, 0xA9]) == ["", "", "é"]


def test_added_tokens_that_are_not_special_are_text(tmp_path: Path) -> None:
    write_from_gguf(write_gguf(tmp_path / "m.gguf", sentencepiece_metadata()), tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    ids = tokenizer.encode("<think>the", add_special=False)
    assert "<think>" in tokenizer.decode(ids)
