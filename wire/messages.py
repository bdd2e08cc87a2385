"""Everything baton's processes say to each other. Frozen, exact types, a tag each, never reused.

Who says what: see the table in `docs/architecture.md`. A request's messages are keyed by its
`Attempt` (request, epoch); the sender's `ProcessId` travels in the frame's header.
Durations are milliseconds from the moment of sending: clocks don't cross hosts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from core.ids import Attempt, ProcessId
from core.request import Request, SampledToken
from core.slo import Slo
from wire.message_parts import (
    Fault as Fault,
    KvTarget as KvTarget,
    MemberState as MemberState,
    MemberView as MemberView,
    Peer as Peer,
    RefusalKind as RefusalKind,
    Role as Role,
    RoutePath as RoutePath,
    Stage as Stage,
    TokenItem as TokenItem,
    WorkerCard as WorkerCard,
    WorkerLoad as WorkerLoad,
)

# The parts are imported by their own names: whoever handles messages finds all of them here.

# ---- gateway <-> router ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Gateway → router: who shall serve this?"""

    attempt: Attempt
    gateway: Peer
    prompt_tokens: int
    """Tokens whose KV is needed: the prompt and, on a retry, what was generated."""
    max_tokens: int
    """Tokens that may still be generated, per choice."""
    choices: int
    slo: Slo
    deadline_left_ms: float
    tenant: str = ""
    path: RoutePath = RoutePath.ANY
    avoid: tuple[ProcessId, ...] = ()
    """Processes that earlier attempts of this request were lost on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Router → gateway. `prefill` is None where D prefills itself ("local")."""

    attempt: Attempt
    decode: Peer
    prefill: Peer | None
    predicted_ttft_ms: float
    predicted_tpot_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Router → gateway: nobody can serve this now."""

    attempt: Attempt
    kind: RefusalKind
    reason: str
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Settled:
    """Gateway → router: this attempt is over, however it ended; forget its load."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Gateway or launcher → router, at start and every second after: send me Members and
    WorkerLost."""

    gateway: Peer


@dataclass(frozen=True, slots=True)
class Members:
    """Router → gateways and launcher: every worker it knows; on each change and twice a second."""

    members: tuple[MemberView, ...]


# ---- workers, launcher <-> router --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """Worker → router, at start and again whenever the router asks or was restarted."""

    card: WorkerCard


@dataclass(frozen=True, slots=True)
class Registered:
    """Router → worker. A worker that hears nothing registers again."""

    router: ProcessId


@dataclass(frozen=True, slots=True)
class RegisterRefused:
    """Router → worker: not with this model, layout or protocol; the reason tells both sides."""

    reason: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Worker → router, four times a second. `address` is where the worker's channel listens: a
    router that doesn't know the sender asks there for its Register."""

    load: WorkerLoad
    address: str


@dataclass(frozen=True, slots=True)
class Reregister:
    """Router → worker: I don't know you (I was restarted); send Register."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """Worker → router: I am shutting down; give me no more work."""


@dataclass(frozen=True, slots=True)
class ProcessExited:
    """Launcher → router: this process is reaped; nothing of it can write any more."""

    process: ProcessId


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """Router → workers, gateways and launcher. `proven`: reaped or replaced by a newer incarnation,
    so its writes are over; otherwise only its heartbeats have ceased."""

    process: ProcessId
    proven: bool


# ---- gateway <-> workers -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """Gateway → D: serve this; have `prefill` compute the prompt, or do it yourself (None)."""

    request: Request
    gateway: Peer
    prefill: Peer | None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Gateway → D and P: stop. Remembered, so that it also wins over a later Submit or Prefill."""

    attempt: Attempt
    reason: str


@dataclass(frozen=True, slots=True)
class Progress:
    """D → gateway."""

    attempt: Attempt
    stage: Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillReport:
    """Whoever prefilled → gateway, just before token 0."""

    attempt: Attempt
    queue_ms: float
    prefill_ms: float
    cached_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffReport:
    """D → gateway when the first decode step after a transfer has started."""

    attempt: Attempt
    handoff_ms: float
    """Last prefill chunk computed on P → first decode step started on D."""
    transfer_bytes: int
    transport: str


@dataclass(frozen=True, slots=True)
class Tokens:
    """P (token 0) and D (the rest) → gateway: one message a step for all its requests."""

    items: tuple[TokenItem, ...]


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """D or P → gateway: this attempt is over here, without an end of its own."""

    attempt: Attempt
    fault: Fault
    reason: str


# ---- D <-> P -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """D → P: compute the prompt, write its KV into `target`, give token 0 to `gateway`."""

    request: Request
    gateway: Peer
    decode: Peer
    target: KvTarget
    lease_ms: float


@dataclass(frozen=True, slots=True)
class KvAccept:
    """P → D: the transfer is taken on."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class KvRefuse:
    """P → D: it isn't, and nothing was or will be written."""

    attempt: Attempt
    fault: Fault
    reason: str


@dataclass(frozen=True, slots=True)
class KvRenew:
    """Either → other: still at it; renews the lease while there is no other progress."""

    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class KvDone:
    """P → D: every block is written (the transport has said so). `checksums` has one per block of
    the target, in order; `first` the first token of each choice."""

    attempt: Attempt
    blocks: int
    algorithm: str
    checksums: tuple[int, ...]
    first: tuple[SampledToken, ...]
    elapsed_ms: float
    """Since the last prefill chunk was computed."""


@dataclass(frozen=True, slots=True)
class PrefillEnded:
    """P → D: token 0 ended every choice; no further KV moves and P writes no more."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class KvAck:
    """D → P: verified; P may free its blocks."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class KvAbort:
    """Either → other: give the transfer up. From D it asks for KvReleased, at `answer_to`: P may
    never have seen the Prefill that this ends."""

    attempt: Attempt
    reason: str
    answer_to: str = ""


@dataclass(frozen=True, slots=True)
class KvReleased:
    """P → D: P will not write for this attempt again; D may end its quarantine."""

    attempt: Attempt


Message = Any
"""One instance of a class in MESSAGES; `wire.codec` checks it."""

MESSAGES: Mapping[int, type[Any]] = MappingProxyType(
    {
        1: Route,
        2: Assignment,
        3: Refusal,
        4: Settled,
        5: Subscribe,
        6: Members,
        7: Register,
        8: Registered,
        9: RegisterRefused,
        10: Heartbeat,
        11: Reregister,
        12: Leaving,
        13: ProcessExited,
        14: WorkerLost,
        15: Submit,
        16: Cancel,
        17: Progress,
        18: PrefillReport,
        19: HandoffReport,
        20: Tokens,
        21: AttemptFailed,
        22: Prefill,
        23: KvAccept,
        24: KvRefuse,
        25: KvRenew,
        26: KvDone,
        27: PrefillEnded,
        28: KvAck,
        29: KvAbort,
        30: KvReleased,
    }
)
