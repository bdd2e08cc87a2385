"""What a transfer session wants done; carried out by the node, in order."""

from dataclasses import dataclass
from typing import TypeAlias

from core.request import SampledToken
from wire.messages import Fault, Message


@dataclass(frozen=True, slots=True)
class Send:
    """Send this over the control channel to the peer of the transfer."""

    message: Message


@dataclass(frozen=True, slots=True)
class Ignored:
    """The event was late, repeated or stale: count it, do nothing."""

    what: str


# ---- sender ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Write:
    """Post one write of (local block, remote block) pairs to the transport.

    Answer with `events.WriteDone(number)` or `events.WriteFailed(number, reason)`, also when
    posting itself fails.
    """

    number: int
    pairs: tuple[tuple[int, int], ...]
    note: bytes
    """To be delivered to the receiver with the write (`kv_transfer.note`)."""


@dataclass(frozen=True, slots=True)
class StopComputing:
    """The prompt's KV isn't wanted any more. Its blocks stay until ReleaseBlocks: writes in
    flight still read them."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReleaseBlocks:
    """Free P's blocks of this attempt. Exactly once, and always the session's last own action."""


@dataclass(frozen=True, slots=True)
class DropLink:
    """Writes don't end although the lease has: disconnect the transport's link to this peer.

    The transport then reports every write on it failed; other transfers over it end too.
    """

    reason: str


# ---- receiver ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verify:
    """Compare the checksums of these blocks (in this order); answer with `events.Verified`."""

    blocks: tuple[int, ...]
    algorithm: str
    checksums: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Deliver:
    """The KV is here and right: decode on from these first tokens."""

    first: tuple[SampledToken, ...]


@dataclass(frozen=True, slots=True)
class Recompute:
    """The KV isn't right, and P writes no more: prefill into the same blocks here."""

    reason: str


@dataclass(frozen=True, slots=True)
class FinishAttempt:
    """Token 0 was the request's last; there is nothing to decode. FreeBlocks came before."""


@dataclass(frozen=True, slots=True)
class FailAttempt:
    """Tell the gateway that this attempt is lost (never sent for an `events.Abort` of our own)."""

    fault: Fault
    reason: str


@dataclass(frozen=True, slots=True)
class FreeBlocks:
    """Free D's blocks of this attempt: nothing can be written to them any more."""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Drop the attempt, but let nobody have its blocks: P may still write to them."""

    reason: str


@dataclass(frozen=True, slots=True)
class EndQuarantine:
    """The quarantined blocks are free."""


SendAction: TypeAlias = Send | Ignored | Write | StopComputing | ReleaseBlocks | DropLink
ReceiveAction: TypeAlias = (
    Send
    | Ignored
    | Verify
    | Deliver
    | Recompute
    | FinishAttempt
    | FailAttempt
    | FreeBlocks
    | Quarantine
    | EndQuarantine
)
