"""What a session wants done: the actions of `gateway.request_session`."""

from dataclasses import dataclass

from core.errors import BatonError
from core.ids import Attempt
from gateway.choice_stream import Delta
from wire.messages import Cancel, Peer, Route, Settled, Submit


@dataclass(frozen=True, slots=True)
class ToRouter:
    message: Route | Settled


@dataclass(frozen=True, slots=True)
class ToWorker:
    peer: Peer
    message: Submit | Cancel


@dataclass(frozen=True, slots=True)
class Started:
    """The first token is here: who serves, from where, and how long it took are known."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request; `completion_tokens` over all its choices."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The one end of a request that was answered in full."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Failed:
    """The one end of a request that was refused, timed out or lost."""

    error: BatonError


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The one end of a request whose client went away."""


@dataclass(frozen=True, slots=True)
class AttemptLost:
    """Another attempt has begun in its place."""

    attempt: Attempt
    why: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """A late, stale or repeated message: counted, never acted on."""

    what: str


Output = Started | Delta | Finished | Failed | Cancelled
"""What concerns the client."""
SessionAction = ToRouter | ToWorker | AttemptLost | Ignored | Output
