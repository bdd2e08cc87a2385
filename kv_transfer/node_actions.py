"""What the two roles of a worker (prefill, decode) ask of the process around them.

The roles are plain objects; `launch/worker.py` carries these out, in order: messages over the
control channel, events into the engine, block writes into the transport, checksums on a thread.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from core.ids import Attempt, ProcessId
from wire.messages import Message

EngineEvent = TypeVar("EngineEvent")
EngineAction = TypeVar("EngineAction")


# ---- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FromPeer:
    """A message off the control channel."""

    sender: ProcessId
    message: Message


@dataclass(frozen=True, slots=True)
class FromEngine(Generic[EngineAction]):
    """What the engine's scheduler told, in order: one event a step, however many actions."""

    actions: tuple[EngineAction, ...]


@dataclass(frozen=True, slots=True)
class AddressGone:
    """The control channel's connection to this address broke or fell silent."""

    address: str


@dataclass(frozen=True, slots=True)
class WriteEnded:
    """The transport's report of a `WriteBlocks`; `failed` is empty when it is done."""

    attempt: Attempt
    number: int
    failed: str = ""


@dataclass(frozen=True, slots=True)
class NoteArrived:
    """A peer's write has landed: `blocks` more blocks of this attempt."""

    attempt: Attempt
    blocks: int


@dataclass(frozen=True, slots=True)
class Checksummed:
    """The answer to `ComputeChecksums`, in the order in which they were asked for."""

    attempt: Attempt
    blocks: tuple[int, ...]
    checksums: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlocksVerified:
    """The answer to `VerifyBlocks`."""

    attempt: Attempt
    ok: bool


@dataclass(frozen=True, slots=True)
class RoleTick:
    """Time passes; wanted several times a lease."""


# ---- actions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendTo:
    """Over the control channel."""

    address: str
    message: Message


@dataclass(frozen=True, slots=True)
class ToEngine(Generic[EngineEvent]):
    """Hand this event to the engine's scheduler."""

    event: EngineEvent


@dataclass(frozen=True, slots=True)
class WriteBlocks:
    """Post a one-sided write of (local, remote) blocks to the transport at `peer`; answer with one
    WriteEnded, also when posting itself fails."""

    attempt: Attempt
    number: int
    peer: bytes
    pairs: tuple[tuple[int, int], ...]
    note: bytes


@dataclass(frozen=True, slots=True)
class DropPeerLink:
    """Cut the transport's link to `peer`: its writes fail, all of them."""

    peer: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class ComputeChecksums:
    """Of these local blocks, keyed by the attempt; answer with Checksummed."""

    attempt: Attempt
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VerifyBlocks:
    """Compare these local blocks' checksums; answer with BlocksVerified."""

    attempt: Attempt
    blocks: tuple[int, ...]
    checksums: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stale:
    """Something came late, twice or for a stranger: counted, otherwise ignored."""

    what: str


@dataclass(frozen=True, slots=True)
class TransferEnded:
    """For the counters: a transfer is over. `bytes_moved` is 0 where it failed."""

    bytes_moved: int
    failed: bool
