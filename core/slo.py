"""Service-level objectives of one request."""

from dataclasses import dataclass

from core.errors import ClientError

DEFAULT_DEADLINE_MS = 600_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Targets and the one limit. All in milliseconds from the gateway's receipt.

    `ttft_ms` (time to first token) and `tpot_ms` (time per output token after it) are targets:
    they decide admission, order and attainment, and never end an admitted request. Only
    `deadline_ms` does, with a 504.
    """

    slo_class: str = "standard"
    ttft_ms: float = 2_000.0
    tpot_ms: float = 100.0
    deadline_ms: float = DEFAULT_DEADLINE_MS

    def __post_init__(self) -> None:
        for name in ("ttft_ms", "tpot_ms", "deadline_ms"):
            value = getattr(self, name)
            if not 0.0 < value < 1e9:
                raise ClientError(
                    f"slo.{name} must be a positive number of milliseconds below 1e9, not {value}",
                    param=f"slo.{name}",
                )
