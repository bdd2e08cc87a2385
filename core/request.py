"""What a request *is*, to every role: token ids in, token ids out."""

from dataclasses import dataclass
from enum import StrEnum

from core.ids import Attempt
from core.sampling import SamplingParams
from core.slo import Slo


class FinishReason(StrEnum):
    """Why a choice ended; the values are the OpenAI API's words."""

    STOP = "stop"
    """End-of-sequence, a stop token, or (decided by the gateway) a stop string."""
    LENGTH = "length"
    """max_tokens or the model's context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One attempt at one request, as the workers see it.

    `generated` holds, per choice, the tokens earlier attempts already delivered: a worker
    rebuilds penalties, limits and sampler state from it by replay and goes on at the next
    position. It is empty for a first attempt; a choice that had already ended is None.
    """

    attempt: Attempt
    prompt: tuple[int, ...]
    generated: tuple[tuple[int, ...] | None, ...] = ()
    sampling: SamplingParams
    slo: Slo
    deadline_left_ms: float
    """Time left until the deadline when the message was made (clocks don't cross hosts)."""
    tenant: str = ""
    cache_salt: str = ""

    @property
    def resumed(self) -> bool:
        """Whether earlier attempts delivered tokens, which must not be delivered again."""
        return any(tokens is None or tokens for tokens in self.generated)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural-log probabilities of the drawn token and of the `top` most likely ones,
    after penalties and bias and before temperature and truncation, as (token id, logprob)."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class SampledToken:
    """A token at its place: `position` counts a choice's output tokens from 0."""

    choice: int
    position: int
    token: int
    finish: FinishReason | None = None
    logprobs: TokenLogprobs | None = None
