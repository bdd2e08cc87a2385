"""Predicted durations of prefill, decode steps and transfers: one model for all who plan.

Coefficients are measured by a worker's profiling run at start and sent at registration. The
split into what depends on a step's tokens and on their context follows Vidur (Agrawal et al. 2024).
"""

from dataclasses import dataclass, field


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
