import msgpack
import pytest
from hypothesis import given, strategies as st

from core.errors import MalformedMessage
from core.ids import Attempt, Epoch, RequestId
from kv_transfer.note import MAX_NOTE_BYTES, ChunkNote, decode_note, encode_note


@given(st.text(max_size=80), st.integers(1, 2**31), st.integers(1, 2**20))
def test_round_trip(request: str, epoch: int, blocks: int) -> None:
    note = ChunkNote(Attempt(RequestId(request), Epoch(epoch)), blocks)
    assert decode_note(encode_note(note)) == note


@given(st.binary(max_size=MAX_NOTE_BYTES + 8))
def test_anything_else_is_refused_without_a_crash(data: bytes) -> None:
    try:
        note = decode_note(data)
    except MalformedMessage:
        return
    assert decode_note(encode_note(note)) == note


@pytest.mark.parametrize(
    "fields", [("r", 0, 1), ("r", 1, 0), ("r", 1), ("r", "1", 1), (1, 1, 1), {"r": 1}, 7]
)
def test_wrong_fields(fields: object) -> None:
    with pytest.raises(MalformedMessage):
        decode_note(msgpack.packb(fields))
