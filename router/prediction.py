"""What a request would meet on a worker, in seconds, from its cost model and its load.

Pure arithmetic. Nothing here knows about rules or choices.
"""

from router.candidate import Candidate
from router.demand import Demand

ASSUMED_ANSWER_TOKENS = 128
"""Length of an answer, for the time that requests stay, until the first have ended."""


def decode_step_s(worker: Candidate, more_sequences: int = 0, more_context: int = 0) -> float:
    """One decode step of what the worker has and will have, and this much more."""
    figures = worker.figures
    return worker.card.cost.decode.seconds(
        figures.sequences + more_sequences, figures.context_tokens + more_context
    )


def tpot_s(worker: Candidate, demand: Demand) -> float:
    """One decode step with the request in it."""
    return decode_step_s(worker, demand.choices, demand.context_tokens)


def prefill_s(worker: Candidate, tokens: int, prompts: int = 1) -> float:
    """Computing `prompts` prompts of `tokens` tokens together, in chunks, each of which shares its
    step with the decodes of a worker that does both."""
    if tokens <= 0:
        return 0.0
    cost = worker.card.cost.prefill
    chunk_s = cost.base_s
    if worker.figures.sequences:
        chunk_s += decode_step_s(worker)
    chunks = -(-tokens // worker.step_tokens)
    mean_context = tokens / prompts / 2
    return chunk_s * chunks + tokens * (cost.per_token_s + cost.per_token_context_s * mean_context)


def prefill_wait_s(worker: Candidate) -> float:
    """Until the prompts that were there first are computed."""
    figures = worker.figures
    if figures.queued_prefill_tokens <= 0:
        return 0.0
    return prefill_s(worker, figures.queued_prefill_tokens, max(1, figures.queued_prefills))


def transfer_s(prefill: Candidate, demand: Demand) -> float:
    """Moving the prompt's KV off a prefill worker."""
    return prefill.card.cost.transfer.seconds(demand.transfer_bytes)


def decode_wait_s(worker: Candidate, demand: Demand) -> float:
    """Until a decode worker has the blocks free and room in its batch.

    Requests leave at the rate of Little's law, held ÷ mean stay; what is missing leaves with them.
    Quarantined blocks belong to none of them.
    """
    figures = worker.figures
    missing_blocks = demand.begin_blocks - figures.blocks_free
    # More choices than the batch has places are let in alone.
    missing_places = min(figures.sequences, figures.sequences + demand.choices - worker.max_batch)
    if missing_blocks <= 0 and missing_places <= 0:
        return 0.0
    requests = max(1, figures.held.requests, figures.load.running)
    used_blocks = figures.blocks_usable - figures.blocks_free
    leaving = max(
        missing_blocks * requests / max(1, used_blocks),
        missing_places * requests / max(1, figures.sequences),
    )
    stay_s = figures.mean_stay_s
    if stay_s is None:
        stay_s = ASSUMED_ANSWER_TOKENS * decode_step_s(worker)
    return leaving * stay_s / requests
