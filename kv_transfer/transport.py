"""What every transport does: moves blocks between one registered region here and one at a peer.

Seven verbs and a scheme. A transport is synchronous and driven by `poll()`: no thread and no
event loop of its own, so that where prefill and decode share a machine nothing spins. It belongs
to one thread (the node's event loop); calling it from another one is a bug.

**Both ends must poll while a transfer is open**: an initiator may stay pending until the passive
side polls. Nobody needs to poll otherwise.

**What the ends of a post mean.** PostDone: the bytes are in the peer's (WRITE) or in our (READ)
blocks. PostFailed: they may be there in part. Both: the transport touches neither the local nor
the remote blocks for it any more. Nothing ends a post before that is certain, neither
`disconnect` nor time, because a post that is under way can't be recalled. A dead peer makes posts
fail and is no exception.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, TypeAlias

from core.errors import BugError
from kv_transfer.note import MAX_NOTE_BYTES
from kv_transfer.region import Region

Pairs: TypeAlias = Sequence[tuple[int, int]]
"""(local block, remote block), in units of the regions' equal block size."""


class Op(StrEnum):
    WRITE = "write"
    """Local blocks into the peer's."""
    READ = "read"
    """The peer's blocks into local ones."""


@dataclass(frozen=True, slots=True)
class Link:
    """Our way into one peer's region. A lost link stays lost; connecting again makes another."""

    peer: str
    serial: int


@dataclass(frozen=True, slots=True)
class Inbound:
    """One peer's way into our region; `peer` is the name it opened its transport with."""

    peer: str


@dataclass(frozen=True, slots=True)
class PostDone:
    post: int


@dataclass(frozen=True, slots=True)
class PostFailed:
    post: int
    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """A peer's post is done, and this is what it sent along."""

    peer: str
    data: bytes


@dataclass(frozen=True, slots=True)
class LinkLost:
    """A link of ours that we didn't disconnect is gone. Its posts report their own ends."""

    link: Link
    reason: str


TransportEvent: TypeAlias = PostDone | PostFailed | Note | LinkLost


class Transport(ABC):
    """One end. Names must differ between processes and between a process's starts."""

    scheme: ClassVar[str]
    """As in `KvTarget.transport`."""

    @abstractmethod
    def register(self, region: Region) -> None:
        """Make the KV pool readable and writable for peers. Once; one region is all there is.

        The memory must stay where it is until `close` or `abort` and, as peers may still have
        writes under way, until they are known to be over.

        Raises:
            TransportError: the memory can't be registered.
            BugError: the second call.
        """

    @abstractmethod
    def address(self) -> bytes:
        """What a peer needs in order to connect; carries the right to write: tell it only over the
        authenticated control channel. Raises BugError before `register`."""

    @abstractmethod
    def connect(self, peer: bytes) -> Link:
        """A link to the transport with this address; the live one if there is one.

        The peer's death may show here or later, as LinkLost.

        Raises:
            TransportError: the address is malformed, of another scheme or block size, or dead.
        """

    @abstractmethod
    def post(self, link: Link, op: Op, pairs: Pairs, note: bytes) -> int:
        """Start moving blocks; at the peer `note` (unless empty) appears once they are moved.

        Returns the post's number, unique in this transport; PostDone or PostFailed of it follows
        from `poll`, also where the link is lost already. Local blocks belong to the post until
        then.

        Raises:
            BugError: no pairs, blocks outside of either region, a note of over MAX_NOTE_BYTES.
        """

    @abstractmethod
    def poll(self) -> list[TransportEvent]:
        """Move things along and tell what has happened; never blocks, never raises for a peer."""

    @abstractmethod
    def disconnect(self, link: Link | Inbound) -> bool:
        """Cut a link of ours (no LinkLost follows), or a peer's way to our region, for good.

        Posts that are under way on a link of ours end when it is certain how.

        Returns:
            For an Inbound, whether it is *certain* that nothing more of that peer's posts lands
            here: a proof that ends a quarantine. `nixl` never can say so.
        """

    @abstractmethod
    def close(self) -> None:
        """End in order: waits (a bounded time) for posts under way, then aborts. Idempotent."""

    @abstractmethod
    def abort(self) -> None:
        """End at once. Idempotent, never raises. No call but `close` and `abort` may follow."""


def check_post(local: Region, remote_blocks: int, pairs: Pairs, note: bytes) -> None:
    """What every `post` checks first. Raises BugError."""
    if not pairs:
        raise BugError("a post without blocks")
    if len(note) > MAX_NOTE_BYTES:
        raise BugError(f"a note has {len(note)} bytes, over {MAX_NOTE_BYTES}")
    for here, there in pairs:
        if not (0 <= here < local.blocks and 0 <= there < remote_blocks):
            raise BugError(
                f"block pair ({here}, {there}) is outside of {local.blocks} local and "
                f"{remote_blocks} remote blocks"
            )
