"""What can happen to a request: the events of `gateway.request_session`."""

from dataclasses import dataclass

from core.errors import BatonError
from core.ids import ProcessId
from wire.messages import Message


@dataclass(frozen=True, slots=True)
class Begin:
    """The request is accepted; sent once, first."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A message about this request, from the router or a worker."""

    sender: ProcessId
    message: Message


@dataclass(frozen=True, slots=True)
class WorkerGone:
    """The router says that a worker is lost. `proven`: its process has ended."""

    process: ProcessId
    proven: bool


@dataclass(frozen=True, slots=True)
class PeerUnreachable:
    """Our own connection to this address broke or fell silent."""

    address: str


@dataclass(frozen=True, slots=True)
class RouterUnreachable:
    """Our connection to the router broke: what was asked may never have arrived."""


@dataclass(frozen=True, slots=True)
class ClientGone:
    """Nobody waits for the answer any more."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The gateway itself can't go on with this request."""

    error: BatonError


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


SessionEvent = (
    Begin | Heard | WorkerGone | PeerUnreachable | RouterUnreachable | ClientGone | Broken | Tick
)
