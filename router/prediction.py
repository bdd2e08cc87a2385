"""What a request would meet on a worker, in seconds, from its cost model and its load.

Pure arithmetic. Nothing here knows about rules or choices.
"""

from dataclasses import dataclass
from math import ceil

from core.kv_layout import KvLayout
from router.candidate import Candidate

ASSUMED_ANSWER_TOKENS = 128
"""Length of an answer, for the time that requests stay, until the first have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockNeed:
    """KV blocks that a request takes on a decode worker, counted as its engine does: choices
    share the prompt's full blocks, and the last token drawn never gets any KV.

    `begin` is for the prompt and the first output token of each choice, `end` for the longest
    answer it may give."""

    begin: int
    end: int


def block_need(
    layout: KvLayout, *, prompt_tokens: int, max_tokens: int, choices: int, max_context: int
) -> BlockNeed:
    last = min(prompt_tokens + max_tokens, max_context) - 1
    shared = prompt_tokens // layout.block_tokens
    return BlockNeed(
        begin=shared + choices * (layout.blocks_for(min(prompt_tokens + 1, last)) - shared),
        end=shared + choices * (layout.blocks_for(last) - shared),
    )


def decode_step_s(worker: Candidate, more_sequences: int = 0, more_context: int = 0) -> float:
    """One decode step of what the worker has and will have, and this much more."""
    figures = worker.figures
    return worker.card.cost.decode.seconds(
        figures.sequences + more_sequences, figures.context_tokens + more_context
    )


def prefill_s(worker: Candidate, tokens: int, prompts: int = 1) -> float:
    """Computing `prompts` prompts of `tokens` tokens together, in chunks, each of which shares its
    step with the decodes of a worker that does both."""
    if tokens <= 0:
        return 0.0
    chunk_s = worker.card.cost.prefill.base_s
    if worker.figures.sequences:
        chunk_s += decode_step_s(worker)
    cost = worker.card.cost.prefill
    mean_context = tokens / prompts / 2
    return (
        chunk_s * ceil(tokens / worker.step_tokens)
        + tokens * cost.per_token_s
        + tokens * cost.per_token_context_s * mean_context
    )


def prefill_wait_s(worker: Candidate) -> float:
    """Until the prompts that were there first are computed."""
    figures = worker.figures
    tokens = figures.queued_prefill_tokens
    return prefill_s(worker, tokens, max(1, figures.queued_prefills)) if tokens > 0 else 0.0


def transfer_s(prefill: Candidate, prompt_tokens: int) -> float:
    """Moving a prompt's KV off a prefill worker."""
    layout = prefill.card.layout
    blocks = layout.blocks_for(prompt_tokens)
    return prefill.card.cost.transfer.seconds(blocks * layout.block_bytes)


def decode_wait_s(worker: Candidate, blocks: int, choices: int) -> float:
    """Until a decode worker has these blocks free and room in its batch.

    Requests leave at the rate of Little's law, held ÷ mean stay; what is missing leaves with them.
    """
    figures = worker.figures
    missing_blocks = blocks - figures.blocks_free
    # More choices than the batch has places are let in alone.
    missing_places = min(figures.sequences, figures.sequences + choices - worker.max_batch)
    if missing_blocks <= 0 and missing_places <= 0:
        return 0.0
    requests = max(1, figures.held.requests, figures.load.running)
    used_blocks = figures.blocks_total - figures.blocks_free
    leaving = max(
        missing_blocks * requests / max(1, used_blocks),
        missing_places * requests / max(1, figures.sequences),
    )
    stay_s = figures.mean_stay_s
    if stay_s is None:
        stay_s = ASSUMED_ANSWER_TOKENS * decode_step_s(worker)
    return leaving * stay_s / requests
