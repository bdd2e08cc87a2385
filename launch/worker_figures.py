"""What a worker counts beside its engine: its part of every heartbeat."""

from dataclasses import asdict, dataclass

from engine.engine_load import EngineLoad
from wire.messages import WorkerLoad


@dataclass(slots=True)
class WorkerFigures:
    """Counters of one worker process; they only grow."""

    transfer_bytes_total: int = 0
    transfers_total: int = 0
    transfers_failed_total: int = 0
    stale_messages_total: int = 0

    def transfer_ended(self, bytes_moved: int, failed: bool) -> None:
        self.transfers_total += 1
        self.transfers_failed_total += failed
        self.transfer_bytes_total += bytes_moved

    def load(self, engine: EngineLoad, transfers_open: int) -> WorkerLoad:
        """The heartbeat's figures: the engine's under the same names, and these."""
        return WorkerLoad(**asdict(engine), **asdict(self), transfers_open=transfers_open)
