"""What is refused, and with which words: too long for ever, too much for now, or nobody there."""

from collections.abc import Sequence
from dataclasses import dataclass

from core.config import RouterConfig
from router.candidate import Candidate
from router.demand import Demand
from wire.messages import RefusalKind, Route


@dataclass(frozen=True, slots=True)
class Declined:
    kind: RefusalKind
    reason: str
    retry_after_s: float = 0.0


def fits_decode(demand: Demand, worker: Candidate) -> bool:
    """Whether the worker, were it idle, could bring the request to its end."""
    card = worker.card
    return demand.prompt_tokens < card.max_context and demand.end_blocks <= card.blocks_total


def holds_now(demand: Demand, worker: Candidate) -> bool:
    """Whether the worker, were it idle but for its quarantine, could bring the request to its end.
    A quarantine ends with a peer's word or proven death, however long either takes."""
    return demand.end_blocks <= worker.figures.blocks_usable


def fits_prefill(demand: Demand, worker: Candidate) -> bool:
    """Whether the worker, were it idle but for its quarantine, could hold the prompt's blocks, all
    of which it takes at once."""
    fits = demand.prompt_blocks <= worker.figures.blocks_usable
    return fits and demand.prompt_tokens < worker.card.max_context


def no_worker(reason: str, config: RouterConfig) -> Declined:
    """Nobody is there. By `dead_after_ms` the silent are back, or known as dead and replaced."""
    return Declined(RefusalKind.NO_WORKER, reason, config.dead_after_ms / 1e3)


def too_long(route: Route, demand: Demand, decode: Sequence[Candidate]) -> Declined:
    """No worker of the matching pools could ever serve it; says what would fit the largest."""
    card = max(decode, key=lambda d: d.card.blocks_total).card
    block_tokens = card.layout.block_tokens
    asked = f"a prompt of {route.prompt_tokens} tokens"
    if route.prompt_tokens >= card.max_context:
        return Declined(
            RefusalKind.TOO_LONG,
            f"{asked} exceeds the context of {card.max_context} tokens: "
            f"at most {card.max_context - 1} fit as a prompt",
        )
    each = f" in each of {route.choices} choices" if route.choices > 1 else ""
    shared = route.prompt_tokens // block_tokens
    own_blocks = (card.blocks_total - shared) // route.choices
    # The last token of an answer needs no KV.
    fit = (shared + own_blocks) * block_tokens + 1
    if fit > route.prompt_tokens:
        advice = f"at most {fit} tokens of prompt and answer fit{each}"
    else:
        longest = max(0, card.blocks_total + 1 - route.choices) * block_tokens
        advice = f"at most {longest} tokens fit as a prompt"
    return Declined(
        RefusalKind.TOO_LONG,
        f"{asked} with up to {route.max_tokens} generated{each} needs {demand.end_blocks} KV "
        f"blocks of {block_tokens} tokens, and the largest worker has {card.blocks_total}; "
        f"{advice}",
    )


def quarantined(demand: Demand, decode: Sequence[Candidate], config: RouterConfig) -> Declined:
    """It would fit, but for blocks that a silent peer may still write to. By `dead_after_ms` the
    peer has given its word, or its death is known."""
    usable = max(d.figures.blocks_usable for d in decode)
    return Declined(
        RefusalKind.OVERLOADED,
        f"it needs {demand.end_blocks} KV blocks, and no worker has more than {usable} outside of "
        "quarantine",
        config.dead_after_ms / 1e3,
    )


def overloaded(ttft_s: float, wait_s: float, route: Route, config: RouterConfig) -> Declined | None:
    """Refuse what would come too late because of others' work: beyond the operator's limit or
    beyond its own deadline. A request that is slow by itself isn't helped by coming back, so it is
    taken when nothing is before it."""
    limit_s = min(config.max_queue_ms, route.deadline_left_ms) / 1e3
    if ttft_s <= limit_s or wait_s <= 0.0:
        return None
    return Declined(
        RefusalKind.OVERLOADED,
        f"the first token is predicted after {ttft_s:.1f} s, of which {wait_s:.1f} s in the queue; "
        f"the limit is {limit_s:g} s",
        # The queue drains in real time: by then the same request would be taken.
        min(wait_s, ttft_s - limit_s),
    )
