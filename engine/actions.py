"""What a scheduler tells the role around it, in the order in which it happened."""

from dataclasses import dataclass

from core.ids import Attempt
from core.request import SampledToken


@dataclass(frozen=True, slots=True)
class Reserved:
    """`blocks` are the attempt's, in the order of the tokens to compute, for the peer to write
    to: exactly as many as those tokens fill. (The block of the first output token, where it is
    another one, is reserved too but isn't the peer's business.)"""

    attempt: Attempt
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Started:
    """The first chunk of the attempt's prefill is planned. Once per attempt."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Computed:
    """The KV of the first `tokens` tokens to compute (prompt and, where resumed, generated) is
    complete, in the leading blocks of `Scheduler.blocks_of`. AddPrefill only, after each chunk."""

    attempt: Attempt
    tokens: int


@dataclass(frozen=True, slots=True)
class PrefillDone:
    """AddPrefill's end: the first token of each live choice, in order of choice. The blocks are
    held until Release or Abort, also when every choice has ended with it."""

    attempt: Attempt
    first: tuple[SampledToken, ...]


@dataclass(frozen=True, slots=True)
class Emit:
    """A token of an AddLocal or Delivered attempt, each (choice, position) once, in order of
    position per choice."""

    attempt: Attempt
    sampled: SampledToken


@dataclass(frozen=True, slots=True)
class DecodeStarted:
    """The first decode step after Delivered is planned: it starts now."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Ended:
    """All choices have ended; the blocks are free and the scheduler has forgotten the attempt."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Preempted:
    """The attempt gave its blocks to more urgent ones and waits to be recomputed."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Resumed:
    """A preempted attempt has blocks again; its recompute starts."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Impossible:
    """This worker can never serve the attempt, which is forgotten here; `reason` says why."""

    attempt: Attempt
    reason: str


Action = (
    Reserved
    | Started
    | Computed
    | PrefillDone
    | Emit
    | DecodeStarted
    | Ended
    | Preempted
    | Resumed
    | Impossible
)
