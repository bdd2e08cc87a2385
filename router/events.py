"""What can happen to the router, and what it wants done about it."""

from dataclasses import dataclass

from core.ids import ProcessId
from wire.messages import Message


@dataclass(frozen=True, slots=True)
class FromPeer:
    """A message has arrived."""

    sender: ProcessId
    message: Message


@dataclass(frozen=True, slots=True)
class PeerGone:
    """The connection to `address` broke, or the other end stopped answering."""

    address: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = FromPeer | PeerGone | Tick


@dataclass(frozen=True, slots=True)
class Send:
    address: str
    message: Message


@dataclass(frozen=True, slots=True)
class Forget:
    """Nobody lives at `address` any more: drop the connection and what waits for it."""

    address: str


Action = Send | Forget
