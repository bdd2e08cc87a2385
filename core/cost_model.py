"""Predicted durations of prefill, decode steps and transfers: one model for all who plan.

Coefficients are measured by a worker's profiling run at start and sent at registration. The
split into what depends on a step's tokens and on their context follows Vidur (Agrawal et al. 2024).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

UNBOUNDED_TOKENS = 1 << 30
"""What `PrefillCost.tokens_within` says where tokens cost nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillCost:
    """Seconds of prefilling n new tokens after ctx cached ones: a + b·n + c·n·(ctx + n/2)."""

    base_s: float = 0.005
    per_token_s: float = 0.001
    per_token_context_s: float = 0.0

    def seconds(self, new_tokens: int, context_tokens: int = 0) -> float:
        if new_tokens <= 0:
            return 0.0
        seen = context_tokens + new_tokens / 2
        return (
            self.base_s
            + self.per_token_s * new_tokens
            + self.per_token_context_s * new_tokens * seen
        )

    def tokens_within(self, seconds: float, context_tokens: int = 0) -> int:
        """Most new tokens after `context_tokens` whose cost beyond the base stays in `seconds`."""
        if seconds <= 0.0:
            return 0
        slope = self.per_token_s + self.per_token_context_s * context_tokens
        if self.per_token_context_s > 0.0:
            # The positive root of c/2·n² + slope·n = seconds.
            root = math.sqrt(slope * slope + 2.0 * self.per_token_context_s * seconds)
            return min(UNBOUNDED_TOKENS, int((root - slope) / self.per_token_context_s))
        return min(UNBOUNDED_TOKENS, int(seconds / slope)) if slope > 0.0 else UNBOUNDED_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeCost:
    """Seconds of one decode step: a + b·batch + c·Σcontext tokens."""

    base_s: float = 0.020
    per_sequence_s: float = 0.001
    per_context_token_s: float = 0.0

    def seconds(self, batch: int, context_tokens: int) -> float:
        return self.base_s + self.per_sequence_s * batch + self.per_context_token_s * context_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferCost:
    """Seconds of moving n bytes: latency + n ÷ bandwidth."""

    latency_s: float = 0.001
    bytes_per_s: float = 2e9

    def seconds(self, payload_bytes: int) -> float:
        return self.latency_s + payload_bytes / self.bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """One worker's predicted durations."""

    prefill: PrefillCost = field(default_factory=PrefillCost)
    decode: DecodeCost = field(default_factory=DecodeCost)
    transfer: TransferCost = field(default_factory=TransferCost)

    def step_seconds(
        self,
        prefill: Sequence[tuple[int, int]],
        decodes: int = 0,
        decode_context_tokens: int = 0,
    ) -> float:
        """One step of prefill chunks, as (new tokens, context before them), and decodes together.

        The larger base is paid once; the rest adds up.
        """
        base = max(
            self.decode.base_s if decodes else 0.0,
            self.prefill.base_s if prefill else 0.0,
        )
        seconds = base
        if decodes:
            seconds += self.decode.seconds(decodes, decode_context_tokens) - self.decode.base_s
        for new_tokens, context_tokens in prefill:
            if new_tokens:
                seconds += self.prefill.seconds(new_tokens, context_tokens) - self.prefill.base_s
        return seconds
