"""What the supervisor is told, and what it asks for."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from core.ids import ProcessId
from launch.child_lifecycle import ChildState


class StopGroup(IntEnum):
    """Who is asked to end first: no new requests, then no more work, then nobody to ask."""

    GATEWAY = 0
    WORKER = 1
    ROUTER = 2


class ReportedState(StrEnum):
    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A child to keep alive. `name` is stable over restarts: `router`, `decode-0`."""

    name: str
    group: StopGroup


@dataclass(frozen=True, slots=True)
class ChildView:
    """One child as the outside sees it; `process` is None while none runs."""

    name: str
    group: StopGroup
    state: ChildState
    process: ProcessId | None
    detail: str
    address: str


# ---- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reported:
    """The child's own word. `setup`: a failure that a restart can't mend (the operator must)."""

    process: ProcessId
    state: ReportedState
    detail: str = ""
    address: str = ""
    setup: bool = False


@dataclass(frozen=True, slots=True)
class Exited:
    """Reaped (or it could not be spawned): nothing of this incarnation runs any more."""

    process: ProcessId
    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """It runs, yet shows no sign of life, or none that reaches us."""

    process: ProcessId
    reason: str


@dataclass(frozen=True, slots=True)
class Found:
    """A lost one is back."""

    process: ProcessId


@dataclass(frozen=True, slots=True)
class Hung:
    """A lost one isn't back after its time of grace."""

    process: ProcessId
    reason: str


@dataclass(frozen=True, slots=True)
class StopRequested:
    pass


@dataclass(frozen=True, slots=True)
class KillRequested:
    """End everything at once."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; due at `Supervisor.next_deadline_s` at the latest."""


Event = Reported | Exited | Lost | Found | Hung | StopRequested | KillRequested | Tick

# ---- actions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spawn:
    process: ProcessId


@dataclass(frozen=True, slots=True)
class Terminate:
    """SIGTERM: end in order."""

    process: ProcessId


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL."""

    process: ProcessId
    reason: str = "it didn't end in time"


@dataclass(frozen=True, slots=True)
class TellRouter:
    """This worker process is proven dead."""

    process: ProcessId


@dataclass(frozen=True, slots=True)
class Missing:
    """For the operator's eyes: nobody hears of a child. `patience_s`: it is killed after that;
    None: never."""

    name: str
    reason: str
    patience_s: float | None


@dataclass(frozen=True, slots=True)
class Restarting:
    """For the operator's eyes: a child died and comes back."""

    name: str
    reason: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class Recovered:
    """For the operator's eyes: it's back."""

    name: str


@dataclass(frozen=True, slots=True)
class AllReady:
    """The deployment serves; said once."""


@dataclass(frozen=True, slots=True)
class AllEnded:
    """No child is left; the last action. `failure` says why the start failed, None for an orderly
    stop; `setup`: the operator can mend it."""

    failure: str | None
    setup: bool


Action = (
    Spawn | Terminate | Kill | TellRouter | Missing | Restarting | Recovered | AllReady | AllEnded
)
