"""What can happen to a scheduler. Times come as `now_s` beside the event.

An event that names an attempt the scheduler doesn't hold (any more) is late: it is ignored and
counted (`Scheduler.late_events_total`), never an error. Adding an attempt twice is a BugError.
"""

from dataclasses import dataclass

from core.ids import Attempt
from core.request import Request, SampledToken
from engine.step_plan import StepOutput, StepPlan


@dataclass(frozen=True, slots=True)
class AddPrefill:
    """P: compute the prompt, draw the first token of every choice, hold the blocks until Release
    or Abort. A resumed request with one live choice is computed with what it had generated."""

    request: Request


@dataclass(frozen=True, slots=True)
class AddLocal:
    """D (or a worker alone): compute the prompt here and decode to the end."""

    request: Request


@dataclass(frozen=True, slots=True)
class Reserve:
    """D: take blocks for the prompt and the first output block, for a peer to write to.
    Answered by Reserved, now or after a wait, or by Impossible."""

    request: Request


@dataclass(frozen=True, slots=True)
class Delivered:
    """D: the KV of all the tokens to compute lies verified in the reserved blocks, and the peer
    writes no more. `first` has the first token of each live choice, drawn and reported to the
    gateway by P: decoding goes on after it. Choices whose first token has a finish are over."""

    attempt: Attempt
    first: tuple[SampledToken, ...]


@dataclass(frozen=True, slots=True)
class Recompute:
    """D: nothing usable came and the peer writes no more: a reservation (granted or still
    waiting) becomes a local prefill, in the reserved blocks where there are any. Every token
    from the first on is then drawn, and emitted, here."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Abort:
    """Drop the attempt, wherever it stands, and free its blocks (those that the running step
    writes to, when it is done). No Ended follows. Its receiving blocks become free at once: the
    caller vouches that no peer can write to them (else Quarantine)."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Quarantine:
    """D: like Abort, but its receiving blocks may still be written to by a peer: they stay out of
    use until EndQuarantine. Without receiving blocks it is an Abort."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class EndQuarantine:
    """D: the peer's word, its proven death or a revoked transport: no write can land any more."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Release:
    """P: the decode worker has verified the blocks, or the hand-over is over otherwise and no
    write reads them any more: free them."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class StepDone:
    """The step of the last `Scheduler.plan` has run."""

    plan: StepPlan
    output: StepOutput


Event = (
    AddPrefill
    | AddLocal
    | Reserve
    | Delivered
    | Recompute
    | Abort
    | Quarantine
    | EndQuarantine
    | Release
    | StepDone
)
