"""What is known of one request for headers and metrics."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.choice_stream import ChoiceStream
from wire.messages import Assignment, PrefillReport

LOCAL = "local"


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """Times are seconds of the gateway's clock, durations milliseconds. Kept by the session;
    everybody else reads. On a retry the workers are the latest ones, the times the first."""

    received_s: float
    prompt_tokens: int
    assigned_s: float | None = None
    prefill: str = ""
    """Name of the worker that computed the prompt, or `local`."""
    decode: str = ""
    queue_ms: float | None = None
    prefill_ms: float | None = None
    cached_tokens: int = 0
    transfer_bytes: int = 0
    """KV that came from P; 0 where D computed it."""
    first_token_s: float | None = None
    last_token_s: float | None = None
    ended_s: float | None = None
    completion_tokens: int = 0
    longest_choice_tokens: int = 0
    finish_reasons: tuple[str, ...] = ()

    def assigned(self, assignment: Assignment, now_s: float) -> None:
        if self.assigned_s is None:
            self.assigned_s = now_s
        self.decode = assignment.decode.process.name
        self.prefill = assignment.prefill.process.name if assignment.prefill else LOCAL

    def prefilled(self, report: PrefillReport) -> None:
        self.queue_ms, self.prefill_ms = report.queue_ms, report.prefill_ms
        self.cached_tokens = min(report.cached_tokens, self.prompt_tokens)

    def delivered(self, choices: Sequence[ChoiceStream], now_s: float) -> None:
        """Tokens have come in; `choices` are all of the request's."""
        if self.first_token_s is None:
            self.first_token_s = now_s
        self.last_token_s = now_s
        self.completion_tokens = sum(len(choice.tokens) for choice in choices)
        self.longest_choice_tokens = max(len(choice.tokens) for choice in choices)
        self.finish_reasons = tuple(c.finish.value for c in choices if c.finish is not None)

    @property
    def route_ms(self) -> float | None:
        return None if self.assigned_s is None else (self.assigned_s - self.received_s) * 1e3

    @property
    def ttft_s(self) -> float | None:
        """Receipt → first token, at the gateway."""
        return None if self.first_token_s is None else self.first_token_s - self.received_s

    @property
    def tpot_s(self) -> float | None:
        """Mean gap between the tokens of the longest choice; None below two tokens."""
        if self.first_token_s is None or self.last_token_s is None:
            return None
        gaps = self.longest_choice_tokens - 1
        return (self.last_token_s - self.first_token_s) / gaps if gaps > 0 else None

    def log_fields(self) -> dict[str, str | int | float | None]:
        """One line of the log tells of the whole request."""
        return {
            "prefill": self.prefill,
            "decode": self.decode,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cached_tokens": self.cached_tokens,
            "ttft_ms": _ms(self.ttft_s),
            "tpot_ms": _ms(self.tpot_s),
        }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)
