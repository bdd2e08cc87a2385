"""When the pieces of one streamed answer arrived, and what follows from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.figures import percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTiming:
    """One answer, in instants of one monotonic clock.

    Args:
        sent_s: just before the request left.
        arrivals_s: of every event that brought text, in order; a token may bring none (half a
            character), so there may be fewer than tokens.
        ended_s: of the event that ended the choice.
        prompt_tokens, completion_tokens: as the server counts them.
    """

    sent_s: float
    arrivals_s: Sequence[float]
    ended_s: float
    prompt_tokens: int
    completion_tokens: int

    def __post_init__(self) -> None:
        if self.completion_tokens < 2 or len(self.arrivals_s) < 2:
            raise ValueError(
                f"an answer of {self.completion_tokens} tokens in {len(self.arrivals_s)} pieces "
                "tells nothing about the time between tokens"
            )

    @property
    def ttft_ms(self) -> float:
        return (self.arrivals_s[0] - self.sent_s) * 1e3

    @property
    def decode_s(self) -> float:
        """From the first token's arrival to the end of the answer."""
        return self.ended_s - self.arrivals_s[0]

    @property
    def itl_mean_ms(self) -> float:
        return self.decode_s / (self.completion_tokens - 1) * 1e3

    @property
    def itl_p99_ms(self) -> float:
        """Of the gaps between pieces."""
        return percentile([(b - a) * 1e3 for a, b in pairwise(self.arrivals_s)], 99)

    @property
    def decode_tokens_per_s(self) -> float:
        return (self.completion_tokens - 1) / self.decode_s
