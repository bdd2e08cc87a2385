"""Bytes by token id, for every kind of decoder that is known."""

import pytest
import tokenizers
from tokenizers import AddedToken, Regex, decoders, pre_tokenizers
from tokenizers.models import BPE, WordPiece

from core.errors import ModelError
from engine.token_table import TokenTable, build_token_table, byte_spelling


def table_of(decoder: decoders.Decoder | None, tokens: list[str]) -> TokenTable:
    fast = tokenizers.Tokenizer(BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=[]))
    fast.decoder = decoder
    fast.add_special_tokens([AddedToken("<end>", special=True)])
    fast.add_tokens([AddedToken("é▁x", special=False)])
    return build_token_table(fast)


def test_the_byte_alphabet_is_the_librarys() -> None:
    spelling = byte_spelling()
    assert sorted(spelling) == list(range(256))
    assert set(spelling.values()) == set(pre_tokenizers.ByteLevel.alphabet())
    assert (spelling[0x20], spelling[0x0A], spelling[ord("a")]) == ("Ġ", "Ċ", "a")


def test_byte_level() -> None:
    table = table_of(decoders.ByteLevel(), ["Ġa", "Ã©", "日"])
    # A normal token outside the alphabet, and added tokens, stand for themselves.
    assert table.token_bytes == (b" a", b"\xc3\xa9", "日".encode(), b"<end>", "é▁x".encode())
    assert table.special == {3}
    assert not table.strips_space


@pytest.mark.parametrize("strips", [True, False])
def test_sentencepiece(strips: bool) -> None:
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if strips:
        steps.append(decoders.Strip(content=" ", left=1))
    table = table_of(decoders.Sequence(steps), ["▁a▁", "<0x0A>", "<0xC3>", "<0xZZ>"])
    assert table.token_bytes[:4] == (b" a ", b"\n", b"\xc3", b"<0xZZ>")
    assert table.strips_space is strips


@pytest.mark.parametrize(
    ("scheme", "strips"), [("always", True), ("first", True), ("never", False)]
)
def test_metaspace(scheme: str, strips: bool) -> None:
    table = table_of(decoders.Metaspace(prepend_scheme=scheme), ["▁a", "<0x0A>"])
    assert table.token_bytes[:2] == (b" a", b"<0x0A>")  # no byte fallback without its step
    assert table.strips_space is strips


def test_gaps_have_no_bytes() -> None:
    fast = tokenizers.Tokenizer(BPE(vocab={"a": 0, "b": 5}, merges=[]))
    fast.decoder = decoders.ByteLevel()
    assert build_token_table(fast).token_bytes == (b"a", b"", b"", b"", b"", b"b")


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        decoders.BPEDecoder(),
        decoders.Sequence([decoders.ByteLevel(), decoders.Fuse()]),
        decoders.Sequence([decoders.Replace(Regex("a+"), "b")]),
        decoders.Sequence([decoders.Fuse(), decoders.Strip(content=" ", left=2)]),
    ],
)
def test_another_decoder_is_refused(decoder: decoders.Decoder | None) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        table_of(decoder, ["a"])


def test_wordpiece_is_named() -> None:
    fast = tokenizers.Tokenizer(WordPiece(vocab={"a": 0}, unk_token="a"))
    fast.decoder = decoders.WordPiece()
    with pytest.raises(ModelError, match="WordPiece"):
        build_token_table(fast)
