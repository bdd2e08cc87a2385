"""What the tcp transport says over one connection, and who may.

A frame is a 16-byte header (kind, length of the extra, number of blocks, post) followed by the
extra, for WRITE and READ by the block indices, and for WRITE and DATA by the blocks themselves.
The accepting side sends CHALLENGE; the connecting one proves with HELLO that it was told the
address (which holds a random token) and is shown with WELCOME that it reached its owner. The bytes
themselves travel in the clear: like RDMA, the transport is for a trusted network.
"""

import hashlib
import hmac
import struct
from dataclasses import dataclass
from enum import IntEnum

from core.errors import TransportError
from kv_transfer.note import MAX_NOTE_BYTES

HEADER = struct.Struct("!BxHIQ")
INDEX_BYTES = 4
TOKEN_BYTES = 32
NONCE_BYTES = 32
MAC_BYTES = 32
MAX_EXTRA_BYTES = max(MAX_NOTE_BYTES, MAC_BYTES + NONCE_BYTES + 1024)
_PROTOCOL = b"baton-kv-tcp-1"


class Kind(IntEnum):
    CHALLENGE = 1
    HELLO = 2
    WELCOME = 3
    WRITE = 4
    READ = 5
    DATA = 6
    """The answer to READ."""
    DONE = 7
    """The answer to WRITE: every byte is in its block."""
    NOTE = 8
    """After a READ: its initiator has everything."""


WITH_INDICES = frozenset({Kind.WRITE, Kind.READ})
WITH_BLOCKS = frozenset({Kind.WRITE, Kind.DATA})


@dataclass(frozen=True, slots=True)
class Frame:
    kind: Kind
    post: int = 0
    extra: bytes = b""
    blocks: tuple[int, ...] = ()
    """Of WRITE and READ: indices in the receiver's region."""
    count: int = 0
    """Of DATA: how many blocks follow."""


def encode_frame(frame: Frame) -> bytes:
    """All of the frame but the blocks' bytes."""
    count = len(frame.blocks) or frame.count
    header = HEADER.pack(frame.kind, len(frame.extra), count, frame.post)
    return header + frame.extra + struct.pack(f"!{len(frame.blocks)}I", *frame.blocks)


def rest_bytes(header: bytes, max_blocks: int) -> int:
    """How much of extra and indices follows this header. Raises TransportError."""
    kind, extra_bytes, count, _ = _unpack(header)
    if kind not in Kind.__members__.values():
        raise TransportError(f"a frame of unknown kind {kind}")
    if extra_bytes > MAX_EXTRA_BYTES or count > max_blocks:
        raise TransportError(f"a frame with an extra of {extra_bytes} bytes and {count} blocks")
    return extra_bytes + (INDEX_BYTES * count if kind in WITH_INDICES else 0)


def decode_frame(header: bytes, rest: bytes, region_blocks: int) -> Frame:
    """Header and extra and indices to a frame. Raises TransportError for foreign blocks."""
    kind, extra_bytes, count, post = _unpack(header)
    if kind not in WITH_INDICES:
        return Frame(Kind(kind), post, rest, count=count)
    blocks = struct.unpack(f"!{count}I", rest[extra_bytes:])
    if not blocks or max(blocks) >= region_blocks:
        raise TransportError(f"a frame for blocks outside of the region's {region_blocks}")
    return Frame(Kind(kind), post, rest[:extra_bytes], blocks)


def client_mac(token: bytes, server_nonce: bytes, client_nonce: bytes, name: bytes) -> bytes:
    message = _PROTOCOL + b" client " + server_nonce + client_nonce + name
    return hmac.digest(token, message, hashlib.sha256)


def server_mac(token: bytes, server_nonce: bytes, client_nonce: bytes) -> bytes:
    message = _PROTOCOL + b" server " + client_nonce + server_nonce
    return hmac.digest(token, message, hashlib.sha256)


def split_hello(extra: bytes) -> tuple[bytes, bytes, bytes]:
    """(mac, client nonce, name). Raises TransportError."""
    if len(extra) <= MAC_BYTES + NONCE_BYTES:
        raise TransportError("a HELLO that is too short")
    return (
        extra[:MAC_BYTES],
        extra[MAC_BYTES : MAC_BYTES + NONCE_BYTES],
        extra[MAC_BYTES + NONCE_BYTES :],
    )


def _unpack(header: bytes) -> tuple[int, int, int, int]:
    kind, extra_bytes, count, post = HEADER.unpack(header)
    return kind, extra_bytes, count, post
