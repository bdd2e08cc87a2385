"""When a choice ends, and which tokens may not end it yet. Workers end on ids and lengths only."""

from collections.abc import Sequence

from core.request import FinishReason
from core.sampling import SamplingParams


def finish_of(
    token: int,
    *,
    position: int,
    sequence_tokens: int,
    params: SamplingParams,
    eos_token_ids: Sequence[int],
    max_context: int,
) -> FinishReason | None:
    """Why the choice ends with this token, or None where it goes on.

    Args:
        position: the token's index among the choice's output tokens.
        sequence_tokens: prompt and output together, this token included.
        max_context: longest prompt and output together, in tokens.
    """
    if position >= params.min_tokens:
        if token in eos_token_ids and not params.ignore_eos:
            return FinishReason.STOP
        if token in params.stop_token_ids:
            return FinishReason.STOP
    if position + 1 >= params.max_tokens or sequence_tokens >= max_context:
        return FinishReason.LENGTH
    return None


def banned_tokens(
    position: int, params: SamplingParams, eos_token_ids: tuple[int, ...]
) -> tuple[int, ...]:
    """Tokens that may not be drawn at `position`: below `min_tokens`, those that would end it.

    Under `ignore_eos` an end-of-sequence token is like any other and isn't banned.
    """
    if position >= params.min_tokens:
        return ()
    return params.stop_token_ids if params.ignore_eos else eos_token_ids + params.stop_token_ids
