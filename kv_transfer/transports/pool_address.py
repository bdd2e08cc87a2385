"""A transport's address as bytes: whose region it is, its shape, and how to reach it."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgpack

from core.errors import TransportError
from kv_transfer.region import Region

MAX_ADDRESS_BYTES = 64 << 10
MAX_NAME_LENGTH = 256

Detail = bytes | str | int


@dataclass(frozen=True, slots=True)
class PoolAddress:
    """`details` are the scheme's own; everything is checked by who decodes it."""

    scheme: str
    name: str
    block_bytes: int
    blocks: int
    details: Mapping[str, Detail]

    def text(self, key: str) -> str:
        value = self.details.get(key)
        if not isinstance(value, str):
            raise TransportError(f"{self.scheme} address of {self.name}: '{key}' is no text")
        return value

    def number(self, key: str) -> int:
        value = self.details.get(key)
        if not isinstance(value, int):
            raise TransportError(f"{self.scheme} address of {self.name}: '{key}' is no number")
        return value

    def data(self, key: str) -> bytes:
        value = self.details.get(key)
        if not isinstance(value, bytes):
            raise TransportError(f"{self.scheme} address of {self.name}: '{key}' is no bytes")
        return value


def encode_address(address: PoolAddress) -> bytes:
    """Raises TransportError where the peer would refuse it."""
    data: bytes = msgpack.packb(
        (
            address.scheme,
            address.name,
            address.block_bytes,
            address.blocks,
            dict(address.details),
        )
    )
    decode_address(data, address.scheme)
    return data


def decode_address(data: bytes, scheme: str) -> PoolAddress:
    """Raises TransportError for anything but an address of this scheme."""
    if len(data) > MAX_ADDRESS_BYTES:
        raise TransportError(f"a KV address has {len(data)} bytes, over {MAX_ADDRESS_BYTES}")
    try:
        fields = msgpack.unpackb(data, use_list=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise TransportError("a KV address isn't msgpack") from error
    match fields:
        case (str() as found, str() as name, int() as block_bytes, int() as blocks, dict() as more):
            pass
        case _:
            raise TransportError("a KV address lacks its fields")
    if found != scheme:
        raise TransportError(f"a KV address is of scheme {found!r:.40}, not {scheme}")
    if not (0 < len(name) <= MAX_NAME_LENGTH and block_bytes > 0 and blocks > 0):
        raise TransportError(
            f"a KV address names {blocks} blocks of {block_bytes} bytes of {name!r:.40}"
        )
    if not all(isinstance(k, str) and isinstance(v, Detail) for k, v in more.items()):
        raise TransportError(f"the KV address of {name!r:.40} has details of a wrong type")
    return PoolAddress(found, name, block_bytes, blocks, more)


def check_fits(local: Region, peer: PoolAddress) -> None:
    """Blocks move whole: both sides' must be of one size. Raises TransportError."""
    if peer.block_bytes != local.block_bytes:
        raise TransportError(
            f"KV blocks have {local.block_bytes} bytes here and {peer.block_bytes} at {peer.name}"
        )
