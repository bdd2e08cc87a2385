"""What is refused, and with which words: too long for ever, too much for now, or nobody there."""

from collections.abc import Sequence
from dataclasses import dataclass

from core.config import RouterConfig
from router.candidate import Candidate
from router.prediction import BlockNeed, block_need
from wire.messages import RefusalKind, Route


@dataclass(frozen=True, slots=True)
class Declined:
    kind: RefusalKind
    reason: str
    retry_after_s: float = 0.0


def need_of(route: Route, worker: Candidate) -> BlockNeed:
    """What the request takes on a decode worker."""
    return block_need(
        worker.card.layout,
        prompt_tokens=route.prompt_tokens,
        max_tokens=route.max_tokens,
        choices=route.choices,
        max_context=worker.card.max_context,
    )


def fits_decode(route: Route, worker: Candidate) -> bool:
    """Whether the worker, were it idle, could bring the request to its end. Generation stops at
    the model's context, so no more than that is ever held."""
    card = worker.card
    return (
        route.prompt_tokens < card.max_context and need_of(route, worker).end <= card.blocks_total
    )


def fits_prefill(route: Route, worker: Candidate) -> bool:
    """Whether the worker could ever hold the prompt's blocks, all of which it takes at once."""
    card = worker.card
    return (
        route.prompt_tokens < card.max_context
        and card.layout.blocks_for(route.prompt_tokens) <= card.blocks_total
    )


def no_worker(reason: str, config: RouterConfig) -> Declined:
    """Nobody is there. By `dead_after_ms` the silent are back, or known as dead and replaced."""
    return Declined(RefusalKind.NO_WORKER, reason, config.dead_after_ms / 1e3)


def too_long(route: Route, decode: Sequence[Candidate]) -> Declined:
    """No worker of the matching pools could ever serve it; says what would fit the largest."""
    largest = max(decode, key=_most_tokens)
    card, asked = largest.card, _asked(route)
    if route.prompt_tokens >= card.max_context:
        return Declined(
            RefusalKind.TOO_LONG,
            f"{asked} exceeds the context of {card.max_context} tokens: "
            f"at most {card.max_context - 1} fit as a prompt",
        )
    return Declined(
        RefusalKind.TOO_LONG,
        f"{asked} needs {need_of(route, largest).end} KV blocks of {card.layout.block_tokens} "
        f"tokens; the largest worker has {card.blocks_total}: prompt and answer together "
        f"fit up to {_tokens_that_fit(route, largest)} tokens",
    )


def overloaded(ttft_s: float, wait_s: float, config: RouterConfig) -> Declined | None:
    """Refuse what would come too late because of others' work. A request that is slow by itself
    isn't helped by coming back, so it is taken when nothing is before it."""
    limit_s = config.max_queue_ms / 1e3
    if ttft_s <= limit_s or wait_s <= 0.0:
        return None
    return Declined(
        RefusalKind.OVERLOADED,
        f"the first token is predicted after {ttft_s:.1f} s, of which {wait_s:.1f} s in the queue; "
        f"the limit is {limit_s:g} s",
        # The queue drains in real time: by then the same request would be taken.
        min(wait_s, ttft_s - limit_s),
    )


def _asked(route: Route) -> str:
    choices = f" in each of {route.choices} choices" if route.choices > 1 else ""
    return (
        f"a prompt of {route.prompt_tokens} tokens with up to {route.max_tokens} generated{choices}"
    )


def _most_tokens(worker: Candidate) -> int:
    """Of one sequence, prompt and answer together; the last token needs no KV."""
    card = worker.card
    return min(card.blocks_total * card.layout.block_tokens + 1, card.max_context)


def _tokens_that_fit(route: Route, worker: Candidate) -> int:
    """Prompt and answer of each choice together, in tokens: the largest number that fits."""
    card = worker.card
    shared = route.prompt_tokens // card.layout.block_tokens
    own_blocks = (card.blocks_total - shared) // route.choices
    if route.choices == 1 or own_blocks < 1:
        return _most_tokens(worker)
    return min((shared + own_blocks) * card.layout.block_tokens + 1, card.max_context)
