"""The messages a session writes: the question to the router, the order to D, the end of both."""

from collections.abc import Sequence

from core.ids import Attempt, ProcessId
from core.request import Request
from gateway.attempt_state import AttemptState
from gateway.choice_stream import ChoiceStream
from gateway.generation import Generation
from gateway.lost_attempts import LostAttempts
from gateway.session_actions import ToRouter, ToWorker
from wire.messages import Cancel, Peer, Route, RoutePath, Submit


def ask_router(
    generation: Generation,
    attempt: Attempt,
    gateway: Peer,
    choices: Sequence[ChoiceStream],
    deadline_left_ms: float,
    avoid: tuple[ProcessId, ...],
) -> ToRouter:
    """Route for this attempt; the context grows by what was delivered before."""
    longest = max(len(choice.tokens) for choice in choices if not choice.ended)
    diverged = len(choices) > 1 and any(choice.tokens for choice in choices)
    route = Route(
        attempt=attempt,
        gateway=gateway,
        prompt_tokens=len(generation.prompt) + longest,
        max_tokens=max(1, generation.sampling.max_tokens - longest),
        choices=len(choices),
        slo=generation.slo,
        deadline_left_ms=deadline_left_ms,
        tenant=generation.tenant,
        # Choices that have gone different ways have no one KV that P could hand over.
        path=RoutePath.LOCAL if diverged else generation.path,
        avoid=avoid,
    )
    return ToRouter(route)


def submit(
    generation: Generation,
    current: AttemptState,
    gateway: Peer,
    choices: Sequence[ChoiceStream],
    deadline_left_ms: float,
) -> list[ToWorker]:
    """Submit for D. Delivered tokens travel apart from the prompt, so that penalties, limits and
    sampler state are rebuilt by replay; a first attempt has none."""
    if current.decode is None:
        return []
    resumed = any(choice.tokens for choice in choices)
    generated = tuple(None if choice.ended else tuple(choice.tokens) for choice in choices)
    request = Request(
        attempt=current.attempt,
        prompt=generation.prompt,
        generated=generated if resumed else (),
        sampling=generation.sampling,
        slo=generation.slo,
        deadline_left_ms=deadline_left_ms,
        tenant=generation.tenant,
        cache_salt=generation.cache_salt,
    )
    message = Submit(request=request, gateway=gateway, prefill=current.prefill)
    return [ToWorker(current.decode, message)]


def cancels(current: AttemptState, losses: LostAttempts, reason: str) -> list[ToWorker]:
    """To both workers, whatever they are believed to hold; a cancel is remembered where it's early.
    A process that is proven dead gets none: nothing of it is left."""
    return [
        ToWorker(peer, Cancel(current.attempt, reason))
        for peer in current.peers()
        if not losses.has_ended(peer.process)
    ]
