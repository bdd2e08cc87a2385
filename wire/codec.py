"""The one codec: message ↔ frame.

A frame is one msgpack array, `[version, tag, sender name, sender incarnation, field, ...]`;
records inside it are arrays of their fields in the order of their dataclass. Types are exact, by
the dataclasses' own type hints: an int is no float, a bool no int. Encoders and decoders are
composed once per class when this module is imported, so no message is reflected upon.

Decoding never evaluates, imports or names anything a peer sent: the tag picks one of the closed
set in `wire.messages`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgpack

from core.errors import BugError, FrameTooLarge, MalformedMessage, VersionMismatch
from core.ids import Incarnation, ProcessId, WorkerName
from wire.field_codec import Codec, codec_of
from wire.messages import MESSAGES, Message

WIRE_VERSION = 1
"""Raised with every change of a message that its class keeps its tag through."""
MAX_FRAME_BYTES = 16 << 20
MAX_ARRAY_ITEMS = 4 << 20
"""More tokens than any model's context; msgpack allocates what an array's header claims."""
HEADER_ITEMS = 4

_BY_TAG: Mapping[int, Codec] = MappingProxyType(
    {tag: codec_of(cls) for tag, cls in MESSAGES.items()}
)
_BY_CLASS: Mapping[type[Any], tuple[int, Codec]] = MappingProxyType(
    {cls: (tag, codec_of(cls)) for tag, cls in MESSAGES.items()}
)


def encode(sender: ProcessId, message: Message) -> bytes:
    """The frame for `message` from `sender`.

    Raises:
        FrameTooLarge: it would exceed MAX_FRAME_BYTES.
        BugError: not an instance of a class in MESSAGES, or a field's value isn't of its type.
    """
    entry = _BY_CLASS.get(type(message))
    if entry is None:
        raise BugError(f"{type(message).__name__} is not a message")
    tag, codec = entry
    head = [WIRE_VERSION, tag, sender.name, sender.incarnation]
    try:
        frame: bytes = msgpack.packb(head + codec.encode(message))
    except (TypeError, ValueError, OverflowError) as error:
        raise BugError(f"can't encode this {type(message).__name__}: {error}") from error
    if len(frame) > MAX_FRAME_BYTES:
        raise FrameTooLarge(f"{len(frame)} bytes; the limit is {MAX_FRAME_BYTES}")
    return frame


def decode(frame: bytes) -> tuple[ProcessId, Message]:
    """The sender and the message of `frame`. Raises nothing else, whatever the bytes are.

    Raises:
        FrameTooLarge: longer than MAX_FRAME_BYTES.
        VersionMismatch: from a process that speaks another version.
        MalformedMessage: anything else that isn't exactly one message of ours.
    """
    if len(frame) > MAX_FRAME_BYTES:
        raise FrameTooLarge(f"{len(frame)} bytes; the limit is {MAX_FRAME_BYTES}")
    items = _unpack(frame)
    if type(items) is not tuple or len(items) < HEADER_ITEMS:
        raise MalformedMessage("a frame is an array that starts with its header")
    version, tag, name, incarnation = items[:HEADER_ITEMS]
    if type(version) is not int or version != WIRE_VERSION:
        raise VersionMismatch(f"the peer speaks version {version!r:.32}, we speak {WIRE_VERSION}")
    if type(name) is not str or type(incarnation) is not int:
        raise MalformedMessage("the header names no sender")
    codec = _BY_TAG.get(tag) if type(tag) is int else None
    if codec is None:
        raise MalformedMessage(f"unknown tag {tag!r:.32}")
    message = codec.decode(items[HEADER_ITEMS:])
    return ProcessId(WorkerName(name), Incarnation(incarnation)), message


def _unpack(frame: bytes) -> Any:
    size = len(frame)
    try:
        return msgpack.unpackb(
            frame,
            use_list=False,
            max_str_len=size,
            max_bin_len=size,
            max_array_len=min(size, MAX_ARRAY_ITEMS),
            max_map_len=0,
            max_ext_len=0,
        )
    except (ValueError, msgpack.UnpackException) as error:
        raise MalformedMessage(f"not one whole msgpack value: {error}") from error
