"""The note that travels with a write: which transfer it belongs to and how much of it is there."""

from dataclasses import dataclass

import msgpack

from core.errors import MalformedMessage
from core.ids import Attempt, Epoch, RequestId

MAX_NOTE_BYTES = 512


@dataclass(frozen=True, slots=True)
class ChunkNote:
    """`blocks` more blocks of this attempt's target are written."""

    attempt: Attempt
    blocks: int


def encode_note(note: ChunkNote) -> bytes:
    data: bytes = msgpack.packb((note.attempt.request, note.attempt.epoch, note.blocks))
    return data


def decode_note(data: bytes) -> ChunkNote:
    """Raises MalformedMessage for anything that `encode_note` wouldn't have made."""
    if len(data) > MAX_NOTE_BYTES:
        raise MalformedMessage(f"a transport note has {len(data)} bytes, over {MAX_NOTE_BYTES}")
    try:
        fields = msgpack.unpackb(data, use_list=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise MalformedMessage("a transport note isn't msgpack") from error
    match fields:
        case (str() as request, int() as epoch, int() as blocks) if epoch > 0 and blocks > 0:
            return ChunkNote(Attempt(RequestId(request), Epoch(epoch)), blocks)
    raise MalformedMessage("a transport note doesn't name an attempt and a block count")
