"""What a transfer session is told beside its peer's messages (which it takes as they are)."""

from dataclasses import dataclass

from core.request import SampledToken
from wire.messages import Fault

# ---- sender ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Accept:
    """P takes the transfer on; the prefill may still be queued."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """P doesn't, before anything was written: layouts don't fit, no link can be made, no room."""

    fault: Fault
    reason: str


@dataclass(frozen=True, slots=True)
class BlocksComputed:
    """The next blocks in the target's order hold their final KV.

    `local_blocks` are indices in P's pool; `checksums` has one per block (`kv_transfer.checksum`).
    """

    local_blocks: tuple[int, ...]
    checksums: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """The first token of each live choice; where all have a `finish`, nothing is handed over."""

    first: tuple[SampledToken, ...]


@dataclass(frozen=True, slots=True)
class WriteDone:
    """The transport reports the write with this number (of `actions.Write`) done."""

    number: int


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """The transport reports it failed. Either report means: it touches no block any more."""

    number: int
    reason: str


# ---- receiver ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChunkArrived:
    """A note of the sender's transport (`kv_transfer.note`): this many more blocks are written."""

    blocks: int


@dataclass(frozen=True, slots=True)
class Verified:
    """The answer to `actions.Verify`."""

    ok: bool


@dataclass(frozen=True, slots=True)
class Revoked:
    """The sender's way to our memory is cut for good (`Transport.revokes`)."""


# ---- both --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Abort:
    """Ours: cancelled, past its deadline, a fault of the engine. Known to the gateway already."""

    reason: str


@dataclass(frozen=True, slots=True)
class PeerLost:
    """The other process is gone; `proven` as in `wire.messages.WorkerLost`.

    Before a receiver is told of a proven death the node must call
    `transport.disconnect(Inbound(peer))`: on tcp, bytes that the dead sent last still lie in our
    own socket, and only closing it keeps them out of blocks that are then free.
    """

    proven: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes. Wanted at least every lease/4 while the session hasn't ended."""
